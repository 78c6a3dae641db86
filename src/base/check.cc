#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace staffel {

CheckFailure::CheckFailure(const char* file, int line, std::string_view what) {
  message_ << file << ":" << line << ": check failed: " << what << " ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_.str().c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace staffel
