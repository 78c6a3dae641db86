// SHA-256 (FIPS 180-4): names content. Value class; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace staffel {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Add(absl::Span<const uint8_t> bytes);
  void Add(std::string_view text);
  // The 64 hexadecimal digits of all that was added; the object begins anew.
  std::string Hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace staffel
