#include "server/api/generation.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "server/api/api_error.h"

namespace staffel::api {
namespace {

std::vector<TokenId> StopTokens(const ServedModel& model, const GenerationOptions& options) {
  std::vector<TokenId> stop = options.stop_token_ids;
  if (!options.ignore_eos) {
    absl::Span<const TokenId> ends = model.tokenizer->end_tokens();
    stop.insert(stop.end(), ends.begin(), ends.end());
  }
  std::sort(stop.begin(), stop.end());
  stop.erase(std::unique(stop.begin(), stop.end()), stop.end());
  return stop;
}

double Seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

Time Now() { return std::chrono::steady_clock::now(); }

double MeanLogprob(const ChoiceResult& choice) {
  double sum = 0;
  for (const GeneratedToken& token : choice.all.tokens) sum += token.logprob;
  return choice.all.tokens.empty() ? 0 : sum / static_cast<double>(choice.all.tokens.size());
}

// Of each prompt's n choices the `kept` with the highest log-probability a token, best first.
void KeepBest(int n, int kept, std::vector<ChoiceResult>& choices) {
  std::vector<ChoiceResult> best;
  for (auto begin = choices.begin(); begin != choices.end(); begin += n) {
    std::stable_sort(begin, begin + n, [](const ChoiceResult& a, const ChoiceResult& b) {
      return MeanLogprob(a) > MeanLogprob(b);
    });
    std::move(begin, begin + kept, std::back_inserter(best));
  }
  for (size_t i = 0; i < best.size(); i++) best[i].index = static_cast<int>(i);
  choices = std::move(best);
}

void Append(Piece& all, Piece piece) {
  all.text += piece.text;
  for (answer::Delta& delta : piece.deltas) answer::Append(all.deltas, std::move(delta));
  std::move(piece.tokens.begin(), piece.tokens.end(), std::back_inserter(all.tokens));
}

}  // namespace

RequestId NextRequestIds(int count) {
  static std::atomic<uint64_t> next{1};
  return RequestId(next.fetch_add(count, std::memory_order_relaxed));
}

Generation::Generation(GenerationSpec spec) : spec_(std::move(spec)), started_(Now()) {
  const GenerationOptions& options = spec_.options;
  std::vector<TokenId> stop = StopTokens(*spec_.model, options);
  for (size_t p = 0; p < spec_.prompts.size(); p++) {
    requests_.push_back(NextRequestIds(1));
    cached_tokens_.push_back(0);
    for (int i = 0; i < options.n; i++) {
      choices_.push_back({ChoiceDecoder(*spec_.model->tokenizer, options.stop, stop,
                                        options.include_stop_text, options.skip_special_tokens)});
      if (!spec_.parser) continue;
      answer::ParserOptions parser = *spec_.parser;
      parser.id_seed += choices_.size();
      choices_.back().decoder.Parse(answer::MakeParser(parser), answer::Markers(parser.formats),
                                    spec_.rules);
    }
  }
  open_choices_ = static_cast<int>(choices_.size());
}

void Generation::Start(GenerationSpec spec) {
  std::shared_ptr<Generation> self(new Generation(std::move(spec)));
  // The stream begins before the first event can, since events are read by Drain, after this.
  if (Status status = self->Submit(); !status.ok()) {
    self->answered_ = true;
    self->spec_.sink->Fail(FromStatus(status));
    return;
  }
  if (self->spec_.options.stream) {
    if (!self->spec_.sink->BeginStream()) self->CancelAll();
    // Choices without an echo of prompt log-probabilities can be opened at once.
    if (self->spec_.prompt_logprobs < 0) {
      for (size_t i = 0; i < self->choices_.size(); i++) self->Open(static_cast<int>(i));
    }
  }
  std::weak_ptr<Generation> weak = self;
  self->spec_.sink->OnDisconnect([weak] {
    if (std::shared_ptr<Generation> generation = weak.lock()) generation->CancelAll();
  });
  self->Drain();
}

Status Generation::Submit() {
  const GenerationOptions& options = spec_.options;
  const ServedModel& model = *spec_.model;
  for (size_t p = 0; p < spec_.prompts.size(); p++) {
    const std::vector<TokenId>& prompt = spec_.prompts[p].tokens;
    GenerateRequest request;
    request.id = requests_[p];
    request.prompt = prompt;
    request.n = options.n;
    request.sampling = options.sampling;
    request.sampling.prompt_logprobs = spec_.prompt_logprobs;
    int64_t room =
        std::max<int64_t>(0, model.limits.max_model_len - static_cast<int64_t>(prompt.size()));
    int64_t wanted = options.max_tokens.value_or(std::min<int64_t>(spec_.max_tokens_default, room));
    request.max_tokens = static_cast<int>(std::min(wanted, room));
    request.min_tokens = std::min(options.min_tokens, request.max_tokens);
    request.stop_tokens = StopTokens(model, options);
    request.priority = options.priority;
    request.cache_salt = options.cache_salt;
    Status status = model.engine->Submit(std::move(request), shared_from_this());
    if (!status.ok()) {
      CancelAll();
      return status;
    }
  }
  return absl::OkStatus();
}

void Generation::CancelAll() {
  for (RequestId request : requests_) spec_.model->engine->Cancel(request);
}

void Generation::OnEvent(const SeqEvent& event) {
  if (inbox_.Put(event)) spec_.runner->PostShort([self = shared_from_this()] { self->Drain(); });
}

void Generation::Drain() {
  inbox_.Drain([this](const SeqEvent& event) { Apply(event); });
}

void Generation::Apply(const SeqEvent& event) {
  if (answered_) return;
  auto request = std::find(requests_.begin(), requests_.end(), event.request);
  STAFFEL_CHECK(request != requests_.end()) << "event of a request that is not ours";
  int prompt = static_cast<int>(request - requests_.begin());
  int index = prompt * spec_.options.n + event.index;
  Choice& choice = choices_[index];
  if (choice.closed) return;
  if (event.finish == FinishReason::kError) return Fail(event.error);
  if (event.first) {
    if (event.index == 0) cached_tokens_[prompt] = event.cached_tokens;
    choice.prompt_logprobs = event.prompt_logprobs;
  }
  if (!choice.opened && spec_.options.stream) Open(index);
  ObserveTokens(choice, static_cast<int>(event.tokens.size()));
  choice.decoder.Apply(event);
  if (choice.decoder.must_cancel()) spec_.model->engine->Cancel(event.request, event.index);
  SendPiece(index);
  if (choice.decoder.finished()) {
    choice.closed = true;
    open_choices_--;
    FinishIfComplete();
  }
}

void Generation::ObserveTokens(Choice& choice, int token_count) {
  if (token_count == 0) return;
  Time now = Now();
  if (!first_token_) first_token_ = now;
  if (!choice.first_token) choice.first_token = now;
  const std::optional<Time> before = std::exchange(choice.last_token, now);
  ModelMetrics* metrics = spec_.model->metrics;
  if (metrics == nullptr) return;
  if (!before) {
    metrics->ObserveTimeToFirstToken(Seconds(now - started_));
  } else {
    metrics->ObserveInterTokenLatency(Seconds(now - *before) / token_count);
  }
}

void Generation::ObserveFinish(FinishReason reason) {
  if (spec_.model->metrics == nullptr) return;
  Usage usage = TotalUsage();
  spec_.model->metrics->ObserveFinished(FinishName(reason), Seconds(Now() - started_),
                                        static_cast<int>(usage.prompt_tokens),
                                        static_cast<int>(usage.completion_tokens));
}

void Generation::Open(int index) {
  choices_[index].opened = true;
  if (!spec_.sink->OpenChoice(Result(index))) CancelAll();
}

void Generation::SendPiece(int index) {
  Choice& choice = choices_[index];
  Piece piece = choice.decoder.Take();
  if (piece.empty()) return;
  if (piece.finish) {
    choice.all.finish = piece.finish;
    choice.all.stop_string = piece.stop_string;
    choice.all.stop_token = piece.stop_token;
  }
  if (!spec_.options.stream) return Append(choice.all, std::move(piece));
  if (spec_.gather) Append(choice.all, piece);
  // Tokens whose text is held back wait for it, so that a chunk without text is not sent for each.
  if (piece.text.empty() && piece.deltas.empty() && !piece.finish && !spec_.token_pieces) return;
  piece.usage = UsageOf(index);
  if (!spec_.sink->WritePiece(index, piece)) CancelAll();
}

void Generation::FinishIfComplete() {
  if (open_choices_ > 0) return;
  answered_ = true;
  ObserveFinish(choices_[0].all.finish.value_or(FinishReason::kStop));
  std::vector<ChoiceResult> results;
  for (size_t i = 0; i < choices_.size(); i++) results.push_back(Result(static_cast<int>(i)));
  if (spec_.best_of > 0) KeepBest(spec_.options.n, spec_.best_of, results);
  spec_.sink->Complete(results, TotalUsage());
}

void Generation::Fail(const Status& error) {
  answered_ = true;
  CancelAll();
  ObserveFinish(FinishReason::kError);
  spec_.sink->Fail(FromStatus(error));
}

ChoiceResult Generation::Result(int index) const {
  const Choice& choice = choices_[index];
  const GenerationPrompt& prompt = spec_.prompts[index / spec_.options.n];
  ChoiceResult result;
  result.index = index;
  result.all = choice.all;
  result.all.usage = UsageOf(index);
  result.completion_tokens = choice.decoder.completion_tokens();
  result.echo_text = prompt.echo_text;
  result.prompt = prompt.tokens;
  result.prompt_logprobs = spec_.prompt_logprobs >= 0 ? &choice.prompt_logprobs : nullptr;
  return result;
}

Usage Generation::UsageOf(int index) const {
  const Choice& choice = choices_[index];
  const int prompt = index / spec_.options.n;
  Usage usage;
  usage.prompt_tokens = static_cast<int64_t>(spec_.prompts[prompt].tokens.size());
  usage.completion_tokens = choice.decoder.completion_tokens();
  usage.reasoning_tokens = choice.decoder.reasoning_tokens();
  usage.cached_tokens = cached_tokens_[prompt];
  const Time first = choice.first_token.value_or(Now());
  usage.prompt_time = first - started_;
  usage.answer_time = choice.last_token.value_or(first) - first;
  return usage;
}

Usage Generation::TotalUsage() const {
  Usage usage;
  for (const GenerationPrompt& prompt : spec_.prompts)
    usage.prompt_tokens += static_cast<int64_t>(prompt.tokens.size());
  for (int cached : cached_tokens_) usage.cached_tokens += cached;
  for (const Choice& choice : choices_)
    usage.completion_tokens += choice.decoder.completion_tokens();
  for (const Choice& choice : choices_) usage.reasoning_tokens += choice.decoder.reasoning_tokens();
  const Time now = Now();
  usage.prompt_time = first_token_.value_or(now) - started_;
  usage.answer_time = now - first_token_.value_or(now);
  return usage;
}

}  // namespace staffel::api
