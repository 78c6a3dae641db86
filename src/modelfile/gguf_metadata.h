// The metadata of a GGUF file behind the Metadata contract. Points into the mapped file, which must
// outlive it; immutable, usable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "modelfile/gguf_header.h"
#include "staffel/model_file.h"

namespace staffel {

class GgufMetadata final : public Metadata {
 public:
  explicit GgufMetadata(const std::vector<std::pair<std::string_view, GgufValue>>& entries);

  bool Has(const std::string& key) const override;
  Result<int64_t> Int(const std::string& key, int64_t min, int64_t max) const override;
  // Integers count as floats.
  Result<double> Float(const std::string& key) const override;
  Result<bool> Bool(const std::string& key) const override;
  // Valid UTF-8 without NUL.
  Result<std::string> String(const std::string& key) const override;
  Result<std::vector<int64_t>> IntArray(const std::string& key) const override;
  std::vector<std::string> Keys() const override;  // in file order

  // Elements as they are, not checked for UTF-8; at most `count_max` of at most `bytes_max` each.
  Result<std::vector<std::string>> StringArray(const std::string& key, uint64_t count_max,
                                               size_t bytes_max) const;
  Result<std::vector<float>> FloatArray(const std::string& key, uint64_t count_max) const;
  // Null if absent.
  const GgufValue* Find(std::string_view key) const;

 private:
  Result<const GgufValue*> Get(std::string_view key) const;
  absl::flat_hash_map<std::string_view, GgufValue> values_;
  std::vector<std::string_view> order_;
};

}  // namespace staffel
