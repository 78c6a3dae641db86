#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "text/pre_tokenizer_table.h"
#include "text/utf8.h"

namespace staffel {
namespace {

template <auto kFree>
struct Deleter {
  template <class T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using CodePtr = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContextPtr = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

// \s and \S by the Unicode property. PCRE2's own \s counts U+180E in, which has not been white
// space since Unicode 6.3.
std::string WithUnicodeSpaces(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); i++) {
    out.push_back(pattern[i]);
    if (pattern[i] != '\\') continue;
    const char next = pattern[++i];
    if (next == 's') {
      out += "p{White_Space}";
    } else if (next == 'S') {
      out += "P{White_Space}";
    } else {
      out.push_back(next);
    }
  }
  return out;
}

}  // namespace

class PreTokenizer::Expression {
 public:
  Expression(const std::string& pattern, bool jit) : context_(pcre2_match_context_create(nullptr)) {
    int error = 0;
    size_t offset = 0;
    const std::string text = WithUnicodeSpaces(pattern);
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    STAFFEL_CHECK(code_ != nullptr) << "expression " << text << " at " << offset;
    // Where executable memory is forbidden this fails, and matching is interpreted.
    if (jit) pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    // The expressions take linear time, so a limit could only refuse a long text.
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
    pcre2_set_depth_limit(context_.get(), UINT32_MAX);
  }

  // Cuts a valid piece of text at `base` of the whole: appends the end of every match and of every
  // stretch between matches.
  void Split(std::string_view piece, uint32_t base, pcre2_match_data* data,
             std::vector<uint32_t>* ends) const {
    size_t done = 0;
    const size_t* match = pcre2_get_ovector_pointer(data);
    while (done < piece.size() && Find(piece, done, data)) {
      const size_t begin = match[0], end = match[1];
      // No expression matches the empty text; were it to, the rest is one word.
      if (end <= begin) break;
      if (begin > done) ends->push_back(base + static_cast<uint32_t>(begin));
      ends->push_back(base + static_cast<uint32_t>(end));
      done = end;
    }
    if (done < piece.size()) ends->push_back(base + static_cast<uint32_t>(piece.size()));
  }

 private:
  bool Find(std::string_view piece, size_t from, pcre2_match_data* data) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    int rc = pcre2_match(code_.get(), subject, piece.size(), from, PCRE2_NO_UTF_CHECK, data,
                         context_.get());
    if (rc < PCRE2_ERROR_NOMATCH) {
      // The JIT's stack is small; the interpreter keeps its frames on the heap.
      rc = pcre2_match(code_.get(), subject, piece.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data, context_.get());
    }
    return rc > 0;
  }

  CodePtr code_;
  MatchContextPtr context_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::Create(std::string_view name, PreTokenizerOptions options) {
  for (const PreTokenizerRule& rule : PreTokenizerRules()) {
    if (std::find(rule.names.begin(), rule.names.end(), name) == rule.names.end()) continue;
    PreTokenizer result;
    for (const std::string& stage : rule.stages) {
      result.stages_.push_back(std::make_unique<Expression>(stage, options.jit));
    }
    result.whole_words_ = rule.whole_words;
    result.normalizes_ = rule.normalizes;
    return result;
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(
        "the model file does not name its pre-tokenizer (tokenizer.ggml.pre); convert the model "
        "again with a newer converter");
  }
  std::string known;
  for (const std::string& other : Names()) known += (known.empty() ? "" : ", ") + other;
  return absl::InvalidArgumentError(StrCat(
      "the pre-tokenizer '", name, "' (tokenizer.ggml.pre) is not known; known are ", known));
}

std::vector<std::string> PreTokenizer::Names() {
  std::vector<std::string> names;
  for (const PreTokenizerRule& rule : PreTokenizerRules()) {
    names.insert(names.end(), rule.names.begin(), rule.names.end());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void PreTokenizer::Split(std::string_view text, std::vector<uint32_t>* ends) const {
  const MatchDataPtr data(pcre2_match_data_create(1, nullptr));
  std::vector<uint32_t> pieces, cut;
  size_t base = 0;
  while (base < text.size()) {
    const size_t valid = ValidUtf8Prefix(text.substr(base));
    if (valid > 0) {
      pieces.assign(1, static_cast<uint32_t>(base + valid));
      for (const auto& stage : stages_) {
        cut.clear();
        uint32_t begin = static_cast<uint32_t>(base);
        for (const uint32_t end : pieces) {
          stage->Split(text.substr(begin, end - begin), begin, data.get(), &cut);
          begin = end;
        }
        pieces.swap(cut);
      }
      ends->insert(ends->end(), pieces.begin(), pieces.end());
      base += valid;
      continue;
    }
    base += DecodeUtf8(text.substr(base)).length;
    ends->push_back(static_cast<uint32_t>(base));
  }
}

}  // namespace staffel
