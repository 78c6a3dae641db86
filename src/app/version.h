// What this program is and what was built into it.
#pragma once

#include <string>

namespace staffel {

// "0.1.0".
const char* Version();

// The lines of `staffel --version`: version, compiler, processor, libraries.
std::string VersionTable();

}  // namespace staffel
