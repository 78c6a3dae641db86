// Values of options as people write them. Pure. Errors are sentences without a subject, to stand
// behind the name of the flag, variable or key: "is 70000; it must be from 0 to 65535".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

// A decimal number.
Result<int64_t> ParseInteger(std::string_view text, int64_t min, int64_t max);
// "1048576", "512M", "1.5GiB", "2GB": K, M, G, T and KiB ... count in 1024s, KB ... in 1000s.
Result<int64_t> ParseByteCount(std::string_view text, int64_t min, int64_t max);
// "15", "15s", "500ms", "2m", "1h", "0.5s"; a number alone counts seconds.
Result<Duration> ParseDuration(std::string_view text, Duration min, Duration max);
// "true", "on", "yes", "1" and their opposites, in any case.
Result<bool> ParseSwitch(std::string_view text);

// The shortest exact form that the parsers above read back: "32MiB", "15s".
std::string FormatByteCount(int64_t bytes);
std::string FormatDuration(Duration duration);

// A byte count for people: "93.8 MiB".
std::string HumanBytes(int64_t bytes);

// The number of edits (insert, delete, replace, swap of neighbours) between two words.
int EditDistance(std::string_view a, std::string_view b);

}  // namespace staffel
