#include "tests/sim/oracle.h"

#include <algorithm>

#include "base/strings.h"
#include "tests/sim/fake_model.h"

namespace staffel::sim {

ExpectedText ExpectText(const GenerateRequest& request, int index, int max_model_len) {
  ExpectedText text;
  uint64_t prefix = kEmptyPrefix;
  for (TokenId token : request.prompt) prefix = ExtendPrefix(prefix, token);
  const int limit =
      std::min(request.max_tokens, max_model_len - static_cast<int>(request.prompt.size()));
  while (static_cast<int>(text.tokens.size()) < limit) {
    const bool ban = static_cast<int>(text.tokens.size()) < request.min_tokens;
    const TokenId token = DrawToken(prefix, request.sampling.seed, index, ban, request.stop_tokens);
    text.tokens.push_back(token);
    prefix = ExtendPrefix(prefix, token);
    if (!ban && std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
                    request.stop_tokens.end()) {
      text.finish = FinishReason::kStop;
      return text;
    }
  }
  return text;
}

std::vector<float> ExpectPromptLogprobs(const GenerateRequest& request) {
  std::vector<float> logprobs;
  uint64_t prefix = kEmptyPrefix;
  for (size_t i = 0; i + 1 < request.prompt.size(); ++i) {
    prefix = ExtendPrefix(prefix, request.prompt[i]);
    logprobs.push_back(PromptLogprobOf(prefix, request.prompt[i + 1]));
  }
  return logprobs;
}

std::vector<float> ExpectEmbedding(const GenerateRequest& request) {
  if (request.pooling == Pooling::kNone) return {};
  uint64_t prefix = kEmptyPrefix;
  float sum = 0, last = 0;
  for (TokenId token : request.prompt) {
    prefix = ExtendPrefix(prefix, token);
    sum += last = HiddenOf(prefix);
  }
  if (request.pooling == Pooling::kLast) return {last};
  return {sum / static_cast<float>(request.prompt.size())};
}

ClientOracle::ClientOracle(const GenerateRequest& request, int max_model_len, int block_size)
    : request_(request), block_size_(block_size), unfinished_(request.n) {
  for (int i = 0; i < request.n; ++i) {
    sequences_.push_back({.expected = ExpectText(request, i, max_model_len)});
  }
}

void ClientOracle::Cancelled(int index) {
  for (int i = 0; i < request_.n; ++i) {
    if (index < 0 || index == i) sequences_[i].cancelled = true;
  }
}

bool ClientOracle::AwaitsCancelled() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const SequenceView& view) { return view.cancelled && !view.finished; });
}

std::string ClientOracle::OnEvent(const SeqEvent& event, int block_count, bool failure_expected) {
  if (event.request != request_.id || event.index < 0 || event.index >= request_.n) {
    return "event of another request";
  }
  SequenceView& view = sequences_[event.index];
  if (view.finished) return "event after the last";
  if (event.first == view.spoke) return "`first` on a later event, or not on the first";
  if (event.first) {
    view.spoke = true;
    if (std::string wrong = CheckFirst(event, view); !wrong.empty()) return wrong;
  }
  for (const GeneratedToken& token : event.tokens) {
    if (view.received == view.expected.tokens.size()) return "more text than is right";
    const TokenId want = view.expected.tokens[view.received];
    if (token.token != want) {
      return StrCat("wrong text: token ", view.received, " of sequence ", event.index, " is ",
                    token.token, ", right is ", want);
    }
    ++view.received;
    ++tokens_received_;
  }
  if (event.tokens.empty() && !event.finish.has_value()) return "an event that says nothing";
  return event.finish.has_value() ? CheckFinish(event, view, block_count, failure_expected) : "";
}

std::string ClientOracle::CheckFirst(const SeqEvent& event, SequenceView& view) {
  const int prompt = static_cast<int>(request_.prompt.size());
  const int cached = event.cached_tokens;
  if (cached < 0 || cached >= prompt || cached % block_size_ != 0) {
    return StrCat("cached_tokens ", cached, " of a prompt of ", prompt);
  }
  cached_tokens_ = std::max(cached_tokens_, cached);
  const bool cut_short =
      event.finish == FinishReason::kCancelled || event.finish == FinishReason::kError;
  if (request_.sampling.prompt_logprobs < 0) {
    return event.prompt_logprobs.empty() ? "" : "prompt log-probabilities that nobody asked for";
  }
  if (cut_short && event.prompt_logprobs.empty()) return "";
  const std::vector<float> want = ExpectPromptLogprobs(request_);
  if (want.size() != event.prompt_logprobs.size()) {
    return StrCat(event.prompt_logprobs.size(), " prompt log-probabilities, right are ",
                  want.size());
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (event.prompt_logprobs[i].logprob != want[i])
      return StrCat("wrong prompt log-probability ", i);
  }
  return "";
}

std::string ClientOracle::CheckFinish(const SeqEvent& event, SequenceView& view, int block_count,
                                      bool failure_expected) {
  view.finished = true;
  --unfinished_;
  const bool whole = view.received == view.expected.tokens.size();
  if (event.finish == FinishReason::kLength ? event.embedding != ExpectEmbedding(request_)
                                            : !event.embedding.empty()) {
    return "a wrong embedding";
  }
  switch (*event.finish) {
    case FinishReason::kStop:
      if (!whole || view.expected.finish != FinishReason::kStop) return "a stop that is none";
      return "";
    case FinishReason::kLength: {
      if (whole && view.expected.finish == FinishReason::kLength) return "";
      // Only where the next token could not be computed in the whole pool.
      const int known = static_cast<int>(request_.prompt.size() + view.received);
      if (view.received > 0 && known > block_count * block_size_) {
        exhausted_ = true;
        return "";
      }
      return StrCat("kLength after ", view.received, " of ", view.expected.tokens.size(),
                    " tokens");
    }
    case FinishReason::kCancelled:
      return view.cancelled ? "" : "cancelled by nobody";
    case FinishReason::kError:
      if (event.error.ok()) return "kError without an error";
      if (failure_expected) return "";
      // A prompt that a smaller pool cannot hold any more.
      if (static_cast<int>(request_.prompt.size()) > block_count * block_size_) return "";
      return StrCat("failed: ", std::string(event.error.message()));
  }
  return "an unknown finish reason";
}

}  // namespace staffel::sim
