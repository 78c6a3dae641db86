#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace staffel {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
  void Begin() { STAFFEL_CHECK(EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { state_->Begin(); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Add(absl::Span<const uint8_t> bytes) {
  STAFFEL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

void Sha256::Add(std::string_view text) {
  Add(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

std::string Sha256::Hex() {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  STAFFEL_CHECK(EVP_DigestFinal_ex(state_->context, digest, &size) == 1);
  state_->Begin();
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace staffel
