#include "server/auth.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <optional>

#include "server/http_message.h"

namespace staffel {
namespace {

// credentials = auth-scheme 1*SP token68 (RFC 9110, 11.4)
std::optional<std::string_view> BearerToken(std::string_view value) {
  size_t space = value.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  if (!EqualsIgnoringCase(value.substr(0, space), "bearer")) return std::nullopt;
  size_t begin = value.find_first_not_of(' ', space);
  if (begin == std::string_view::npos) return std::nullopt;
  return value.substr(begin);
}

// The value of the only header of that name. `count` tells how many there are.
std::string_view Only(const HttpHeaders& headers, std::string_view name, int& count) {
  std::string_view found;
  count = 0;
  for (const auto& [key, value] : headers) {
    if (key != name) continue;
    found = value;
    count++;
  }
  return found;
}

}  // namespace

Result<ApiKeys> ApiKeys::Make(const std::vector<std::string>& keys) {
  ApiKeys made;
  for (const std::string& key : keys) {
    if (key.empty()) {
      return absl::InvalidArgumentError(
          "An API key is empty; give a key, or leave the option out to serve without keys.");
    }
    for (unsigned char c : key) {
      if (c <= ' ' || c == 0x7f) {
        return absl::InvalidArgumentError(
            "An API key holds a space or a control character, which no client can send.");
      }
    }
    made.digests_.push_back(DigestOf(key));
  }
  return made;
}

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

bool ApiKeys::Contains(std::string_view key) const {
  // Digests have one length and all are compared: the time tells nothing about the keys.
  Digest digest = DigestOf(key);
  int found = 0;
  for (const Digest& known : digests_) {
    found |= CRYPTO_memcmp(digest.data(), known.data(), digest.size()) == 0 ? 1 : 0;
  }
  return found != 0;
}

bool ApiKeys::Admits(const HttpHeaders& headers) const {
  if (empty()) return true;
  int count = 0;
  std::string_view authorization = Only(headers, "authorization", count);
  if (count > 1) return false;
  if (count == 1) {
    std::optional<std::string_view> token = BearerToken(authorization);
    return token && Contains(*token);
  }
  std::string_view key = Only(headers, "x-api-key", count);
  return count == 1 && Contains(key);
}

}  // namespace staffel
