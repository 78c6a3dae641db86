#include "server/api/embedding.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "server/api/event_inbox.h"
#include "server/api/generation.h"
#include "server/api/json_text.h"

namespace staffel::api {
namespace {

// Inputs of one request in the engine, for each sequence that runs: one computes, one is next.
constexpr int kInputsPerSequence = 2;

void Normalize(std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : values) value = static_cast<float>(value * scale);
}

bool AreFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

ApiError Cancelled() {
  return FromStatus(absl::UnavailableError("the request was cancelled; try again in a moment"));
}

// As in Generation, events are only queued on the engine thread.
class Embedding final : public EventSink, public std::enable_shared_from_this<Embedding> {
 public:
  explicit Embedding(EmbeddingSpec spec)
      : spec_(std::move(spec)),
        started_(std::chrono::steady_clock::now()),
        first_id_(NextRequestIds(static_cast<int>(spec_.inputs.size()))),
        in_flight_max_(std::max(1, spec_.model->max_sequences) * kInputsPerSequence) {
    result_.vectors.resize(spec_.inputs.size());
  }

  void Start() {
    SubmitMore();
    if (!answered_) {
      spec_.on_disconnect([weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->Stop();
      });
    }
    Drain();
  }

  void OnEvent(const SeqEvent& event) override {
    if (inbox_.Put(event)) spec_.runner->PostShort([self = shared_from_this()] { self->Drain(); });
  }

 private:
  RequestId IdOf(size_t input) const { return RequestId(first_id_.value + input); }

  // Any thread. An input that is being submitted meanwhile is cancelled by SubmitMore.
  void Stop() {
    stopped_ = true;
    for (size_t i = 0; i < spec_.inputs.size(); i++) spec_.model->engine->Cancel(IdOf(i));
  }

  void SubmitMore() {
    while (!stopped_ && submitted_ < spec_.inputs.size() && in_flight_ < in_flight_max_) {
      const RequestId id = IdOf(submitted_);
      GenerateRequest request;
      request.id = id;
      request.prompt = spec_.inputs[submitted_];
      request.max_tokens = 0;
      request.priority = spec_.priority;
      request.cache_salt = spec_.cache_salt;
      request.pooling = spec_.model->pooling;
      const Status status = spec_.model->engine->Submit(std::move(request), shared_from_this());
      // A full queue: the next input that is done makes a place.
      if (absl::IsResourceExhausted(status) && in_flight_ > 0) return;
      if (!status.ok()) return Fail(FromStatus(status));
      submitted_++;
      in_flight_++;
      if (stopped_) spec_.model->engine->Cancel(id);
    }
    if (stopped_ && in_flight_ == 0) Fail(Cancelled());
  }

  void Drain() {
    inbox_.Drain([this](SeqEvent& event) { Apply(event); });
  }

  void Apply(SeqEvent& event) {
    if (answered_) return;
    const size_t input = event.request.value - first_id_.value;
    STAFFEL_CHECK(input < spec_.inputs.size()) << "event of a request that is not ours";
    if (event.first) result_.usage.cached_tokens += event.cached_tokens;
    if (!event.finish) return;
    if (event.finish == FinishReason::kError) return Fail(FromStatus(event.error));
    if (event.finish == FinishReason::kCancelled) return Fail(Cancelled());
    if (event.embedding.empty() || !AreFinite(event.embedding)) {
      return Fail(FromStatus(
          absl::InternalError("the model gives no numbers for this input; other inputs may work")));
    }
    Keep(input, std::move(event.embedding));
    in_flight_--;
    if (++finished_ == spec_.inputs.size()) return Complete();
    SubmitMore();
  }

  void Keep(size_t input, std::vector<float> values) {
    if (spec_.dimensions > 0 && values.size() > static_cast<size_t>(spec_.dimensions))
      values.resize(spec_.dimensions);
    if (spec_.normalize) Normalize(values);
    result_.vectors[input] = std::move(values);
  }

  void Complete() {
    answered_ = true;
    for (const auto& input : spec_.inputs)
      result_.usage.prompt_tokens += static_cast<int64_t>(input.size());
    result_.usage.prompt_time = std::chrono::steady_clock::now() - started_;
    Observe("stop");
    spec_.done(std::move(result_));
  }

  void Fail(ApiError error) {
    answered_ = true;
    if (submitted_ > 0) Observe(stopped_ ? "abort" : "error");
    Stop();
    spec_.done(std::move(error));
  }

  void Observe(std::string_view finish_reason) {
    if (spec_.model->metrics == nullptr) return;
    const Duration took = std::chrono::steady_clock::now() - started_;
    spec_.model->metrics->ObserveFinished(finish_reason,
                                          std::chrono::duration<double>(took).count(),
                                          static_cast<int>(result_.usage.prompt_tokens), 0);
  }

  EmbeddingSpec spec_;
  const Time started_;
  const RequestId first_id_;  // of input 0; the others follow
  const int in_flight_max_;
  std::atomic<bool> stopped_ = false;

  // Only touched in Start and Drain, which do not run at the same time.
  Embeddings result_;
  size_t submitted_ = 0, finished_ = 0;
  int in_flight_ = 0;
  bool answered_ = false;

  EventInbox inbox_;
};

}  // namespace

void StartEmbedding(EmbeddingSpec spec) { std::make_shared<Embedding>(std::move(spec))->Start(); }

void AnswerEmbedding(Call call, EmbeddingSpec spec,
                     std::function<std::string(const Embeddings&)> body, ErrorShape error_shape) {
  spec.runner = call.runner;
  spec.done = [writer = call.writer, body = std::move(body),
               error_shape](const Checked<Embeddings>& result) {
    if (const auto* error = std::get_if<ApiError>(&result))
      return SendError(*writer, *error, error_shape);
    writer->Send(200, "application/json", body(std::get<Embeddings>(result)));
  };
  spec.on_disconnect = [writer = std::move(call.writer)](std::function<void()> callback) {
    writer->OnDisconnect(std::move(callback));
  };
  StartEmbedding(std::move(spec));
}

void AppendVector(std::string& out, absl::Span<const float> values) {
  out += '[';
  for (size_t i = 0; i < values.size(); i++) {
    if (i > 0) out += ',';
    AppendJsonNumber(out, values[i]);
  }
  out += ']';
}

}  // namespace staffel::api
