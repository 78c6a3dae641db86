#include <array>
#include <string>
#include <utility>
#include <vector>

#include "grammar/regex.h"
#include "utf8proc.h"

namespace staffel::grammar {
namespace {

// Long names of Unicode's PropertyValueAliases, for those that patterns use.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kLongNames = {{
    {"Letter", "L"},
    {"Lowercase_Letter", "Ll"},
    {"Uppercase_Letter", "Lu"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Currency_Symbol", "Sc"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Control", "Cc"},
}};

}  // namespace

CharSet UnicodeCategory(std::string_view name) {
  if (name.starts_with("General_Category=")) name.remove_prefix(17);
  if (name.starts_with("gc=")) name.remove_prefix(3);
  for (const auto& [longer, shorter] : kLongNames) {
    if (name == longer) name = shorter;
  }
  std::vector<CodeRange> ranges;
  if (name.empty() || name.size() > 2) return {};
  for (uint32_t c = 0; c <= kCodePointMax; ++c) {
    const std::string_view category = utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    if (!category.starts_with(name)) continue;
    if (!ranges.empty() && ranges.back().last + 1 == c) {
      ranges.back().last = c;
    } else {
      ranges.push_back({c, c});
    }
  }
  return CharSet(std::move(ranges));
}

}  // namespace staffel::grammar
