#include "sched/config.h"

#include "base/strings.h"

namespace staffel::sched {

Status Config::Validate() const {
  const struct {
    const char* name;
    int value, least;
  } bounds[] = {{"block_count", block_count, 1},
                {"block_size", block_size, 1},
                {"max_model_len", max_model_len, 1},
                {"max_sequences", max_sequences, 1},
                {"chunk_tokens_max", chunk_tokens_max, 1},
                {"prefill_beside_decodes_min", prefill_beside_decodes_min, 1},
                {"prefill_beside_decodes", prefill_beside_decodes, prefill_beside_decodes_min},
                {"step_stretch_percent", step_stretch_percent, 0},
                {"prefill_reserve_tokens", prefill_reserve_tokens, 1},
                {"prompt_logprob_rows_max", prompt_logprob_rows_max, 1},
                {"oldest_share_percent", oldest_share_percent, 1},
                {"overtakes_max", overtakes_max, 0},
                {"promised_tokens_max", promised_tokens_max, 1},
                {"micro_batches", micro_batches, 1},
                {"micro_batch_tokens_min", micro_batch_tokens_min, prefill_beside_decodes_min}};
  for (const auto& [name, value, least] : bounds) {
    if (value < least) {
      return absl::InvalidArgumentError(
          StrCat(name, " is ", value, "; it must be at least ", least));
    }
  }
  if (oldest_share_percent > 100) {
    return absl::InvalidArgumentError(
        StrCat("oldest_share_percent is ", oldest_share_percent, "; it must be at most 100"));
  }
  if (tokens_per_step_max < max_sequences + prefill_reserve_tokens) {
    return absl::InvalidArgumentError(
        StrCat("tokens_per_step_max is ", tokens_per_step_max,
               "; it must hold one token of each of max_sequences (", max_sequences,
               ") sequences and prefill_reserve_tokens (", prefill_reserve_tokens, ")"));
  }
  return absl::OkStatus();
}

}  // namespace staffel::sched
