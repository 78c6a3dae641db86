// Random JSON Schemas, instances of them that are made without the grammar, and a vocabulary to
// spell them with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "grammar/vocabulary.h"
#include "nlohmann/json.hpp"

namespace staffel::grammar {

class SchemaMaker {
 public:
  explicit SchemaMaker(uint64_t seed);
  ~SchemaMaker();

  nlohmann::ordered_json Schema();
  // A value by the schema (or a part of it, references being into `root`), members in the grammar's
  // order; nothing where this maker gives up.
  std::optional<nlohmann::ordered_json> Instance(const nlohmann::ordered_json& schema,
                                                 const nlohmann::ordered_json& root);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Tokens 0 to 255 are the bytes, then some longer pieces, the last one is the end.
std::shared_ptr<const Vocabulary> WalkVocabulary();

}  // namespace staffel::grammar
