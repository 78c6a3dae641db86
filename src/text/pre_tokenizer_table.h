// Which expressions a name of tokenizer.ggml.pre stands for. Syntax is PCRE2's, but \s and \S mean
// the Unicode property White_Space.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace staffel {

struct PreTokenizerRule {
  std::vector<std::string_view> names;
  std::vector<std::string> stages;
  bool whole_words = false;
  bool normalizes = false;
};

const std::vector<PreTokenizerRule>& PreTokenizerRules();

}  // namespace staffel
