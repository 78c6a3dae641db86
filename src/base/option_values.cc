#include "base/option_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/strings.h"

namespace staffel {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

template <class... Parts>
Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

std::string Quoted(std::string_view text) { return StrCat("\"", text, "\""); }

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// A number and what follows it: "1.5GiB" is 1.5 and "GiB". False: there is no number.
bool SplitUnit(std::string_view text, double* number, std::string_view* unit) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(*number)) return false;
  *unit = text.substr(end - text.data());
  while (unit->starts_with(' ')) unit->remove_prefix(1);
  return true;
}

struct ByteUnit {
  const char* name;
  int64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"TiB", int64_t{1} << 40},
    {"GiB", int64_t{1} << 30},
    {"MiB", int64_t{1} << 20},
    {"KiB", int64_t{1} << 10},
    {"t", int64_t{1} << 40},
    {"g", int64_t{1} << 30},
    {"m", int64_t{1} << 20},
    {"k", int64_t{1} << 10},
    {"ti", int64_t{1} << 40},
    {"gi", int64_t{1} << 30},
    {"mi", int64_t{1} << 20},
    {"ki", int64_t{1} << 10},
    {"tb", 1'000'000'000'000},
    {"gb", 1'000'000'000},
    {"mb", 1'000'000},
    {"kb", 1'000},
    {"b", 1},
    {"", 1},
};

}  // namespace

Result<int64_t> ParseInteger(std::string_view text, int64_t min, int64_t max) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end == text.data() + text.size();
  if (error == std::errc::invalid_argument || !whole) {
    return Invalid("is ", Quoted(text), "; it must be a whole number from ", min, " to ", max);
  }
  if (error == std::errc::result_out_of_range || value < min || value > max) {
    return Invalid("is ", text, "; it must be from ", min, " to ", max);
  }
  return value;
}

Result<int64_t> ParseByteCount(std::string_view text, int64_t min, int64_t max) {
  double number = 0;
  std::string_view unit_name;
  const ByteUnit* unit = nullptr;
  if (SplitUnit(text, &number, &unit_name)) {
    const std::string lower = Lower(unit_name);
    for (const ByteUnit& candidate : kByteUnits) {
      if (lower == Lower(candidate.name)) unit = &candidate;
    }
  }
  if (unit == nullptr) {
    return Invalid("is ", Quoted(text), "; it must be a number of bytes such as 4194304, 512M or ",
                   "1.5GiB");
  }
  const double bytes = number * static_cast<double>(unit->bytes);
  if (!(bytes >= static_cast<double>(min)) || bytes > static_cast<double>(max)) {
    return Invalid("is ", text, "; it must be from ", FormatByteCount(min), " to ",
                   FormatByteCount(max));
  }
  // Exact for plain integers beyond 2^53 too.
  if (unit->bytes == 1) {
    if (const Result<int64_t> exact = ParseInteger(text, min, max); exact.ok()) return exact;
  }
  return std::clamp(static_cast<int64_t>(std::min(bytes, 0x1p62)), min, max);
}

Result<Duration> ParseDuration(std::string_view text, Duration min, Duration max) {
  double number = 0;
  std::string_view unit;
  double unit_s = 0;
  if (SplitUnit(text, &number, &unit)) {
    unit_s = unit.empty() || unit == "s"    ? 1
             : unit == "ms"                 ? 1e-3
             : unit == "m" || unit == "min" ? 60
             : unit == "h"                  ? 3600
                                            : 0;
  }
  if (unit_s == 0) {
    return Invalid("is ", Quoted(text), "; it must be a time such as 15s, 500ms or 2m");
  }
  const double value_s = number * unit_s;
  const auto in_s = [](Duration d) { return std::chrono::duration<double>(d).count(); };
  if (!(value_s >= in_s(min)) || value_s > in_s(max)) {
    return Invalid("is ", text, "; it must be from ", FormatDuration(min), " to ",
                   FormatDuration(max));
  }
  return std::clamp(duration_cast<Duration>(std::chrono::duration<double>(value_s)), min, max);
}

Result<bool> ParseSwitch(std::string_view text) {
  const std::string lower = Lower(text);
  if (lower == "true" || lower == "on" || lower == "yes" || lower == "1") return true;
  if (lower == "false" || lower == "off" || lower == "no" || lower == "0") return false;
  return Invalid("is ", Quoted(text), "; it must be true or false");
}

std::string FormatByteCount(int64_t bytes) {
  for (const ByteUnit& unit : kByteUnits) {
    if (bytes != 0 && unit.bytes > 1 && bytes % unit.bytes == 0) {
      return StrCat(bytes / unit.bytes, unit.name);
    }
    if (unit.bytes == 1 << 10) break;
  }
  return StrCat(bytes);
}

std::string FormatDuration(Duration duration) {
  const auto ms = duration_cast<milliseconds>(duration).count();
  if (ms % 1000 != 0) return StrCat(ms, "ms");
  const auto s = ms / 1000;
  if (s != 0 && s % 3600 == 0) return StrCat(s / 3600, "h");
  if (s != 0 && s % 60 == 0) return StrCat(s / 60, "m");
  return StrCat(s, "s");
}

std::string HumanBytes(int64_t bytes) {
  if (bytes < 1024) return StrCat(bytes, " B");
  double value = static_cast<double>(bytes);
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  while (value >= 1024) value /= 1024, unit++;
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, units[unit]);
}

int EditDistance(std::string_view a, std::string_view b) {
  // Three rows of the table: two above the current one are needed for swaps.
  std::vector<int> older(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); j++) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); i++) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], older[j - 2] + 1);
      }
    }
    std::swap(older, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace staffel
