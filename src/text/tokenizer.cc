#include "text/tokenizer.h"

#include <utility>

#include "base/strings.h"
#include "text/bpe.h"
#include "text/spm.h"

namespace staffel {

Result<std::unique_ptr<Tokenizer>> MakeTokenizer(TokenizerSpec spec) {
  if (spec.model == "gpt2") return MakeBpeTokenizer(std::move(spec));
  if (spec.model == "llama") return MakeSpmTokenizer(std::move(spec));
  return absl::UnimplementedError(
      StrCat("the tokenizer model '", spec.model,
             "' (tokenizer.ggml.model) is not supported; supported are gpt2 and llama"));
}

}  // namespace staffel
