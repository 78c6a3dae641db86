#include "app/commands.h"

#include <cstdio>

namespace staffel {

int Fail(const Status& status, int exit_code) {
  std::fprintf(stderr, "staffel: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

}  // namespace staffel
