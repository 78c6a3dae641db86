// The first cut of a byte-level BPE tokenizer: text into words that are merged each by itself. GGUF
// names the rule by tokenizer.ggml.pre; the rules are the expressions in the pre_tokenizer section
// of the families' tokenizer.json.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "staffel/status.h"

namespace staffel {

struct PreTokenizerOptions {
  bool jit = true;  // false: PCRE2's interpreter, which is also the fallback of the JIT
};

// Immutable after construction, used from any thread.
class PreTokenizer {
 public:
  // InvalidArgument, naming it, for a name that is not known: a wrong rule gives slightly worse
  // answers that nobody notices, so there is no default for unknown names.
  static Result<PreTokenizer> Create(std::string_view name, PreTokenizerOptions options = {});
  // All names that Create knows, sorted.
  static std::vector<std::string> Names();

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Appends the end of each word to *ends; words tile the text (at most 4 GiB), each from the end
  // of the one before. Bytes that are not valid UTF-8 are words of their own, one a maximal
  // subpart. Time grows linearly with the text, also for one long run of a letter or of spaces.
  void Split(std::string_view text, std::vector<uint32_t>* ends) const;

  // A word that is a token as it stands is taken without merging (Llama 3, Tekken).
  bool whole_words() const { return whole_words_; }
  // The family's tokenizer works on text in Unicode normalisation form C.
  bool normalizes() const { return normalizes_; }

 private:
  class Expression;

  PreTokenizer();

  // Each cuts the pieces that the ones before left; what it does not match is a piece too.
  std::vector<std::unique_ptr<const Expression>> stages_;
  bool whole_words_ = false;
  bool normalizes_ = false;
};

}  // namespace staffel
