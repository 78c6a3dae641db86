// API keys: deny by default, compared in constant time.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"
#include "staffel/status.h"

namespace staffel {

// Immutable; any thread.
class ApiKeys {
 public:
  // No keys: everybody is let in. InvalidArgument: a key is empty, or holds a character that cannot
  // stand in a header as one token (space, tab, other control characters).
  static Result<ApiKeys> Make(const std::vector<std::string>& keys);

  // Whether a request with these headers (names in lower case) may pass. "Authorization: Bearer
  // KEY" (RFC 6750; the scheme in any case) decides if it is there, else "X-Api-Key: KEY". Two
  // headers of the kind that decides are refused. Keys are bytes: a key that is not ASCII is sent
  // as UTF-8.
  bool Admits(const HttpHeaders& headers) const;

  bool empty() const { return digests_.empty(); }

 private:
  using Digest = std::array<unsigned char, 32>;
  static Digest DigestOf(std::string_view key);
  bool Contains(std::string_view key) const;

  std::vector<Digest> digests_;
};

}  // namespace staffel
