// What the front hands to the engine and what comes back: plain values, copied between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "staffel/grammar.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {

struct LogitBias {
  TokenId token;
  float bias;
};

// How one token is drawn from a row of logits. Order of application (OpenAI / vLLM): logit_bias,
// penalties, allowed and banned tokens, the grammar's mask, then temperature, top_k, top_p, min_p.
// Log-probabilities that are reported are of the raw model (log-softmax of the unchanged logits).
// temperature 0 is greedy; ties go to the lowest token id.
struct SamplingParams {
  float temperature = 1.0f;
  float top_p = 1.0f;               // (0, 1]
  int top_k = 0;                    // 0: off
  float min_p = 0.0f;               // [0, 1]
  float presence_penalty = 0.0f;    // over generated tokens
  float frequency_penalty = 0.0f;   // over generated tokens
  float repetition_penalty = 1.0f;  // over prompt and generated tokens
  // The draw of the token at position p of sequence i of a request is a pure function of (seed, i,
  // p): it does not depend on the batch, on preemption or on the rank.
  uint64_t seed = 0;
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_tokens;  // ascending; no other token is drawn. Empty: any
  // None is empty. What is generated never ends with one of them: its last token is not drawn where
  // the ones before it were generated just before.
  std::vector<std::vector<TokenId>> banned_sequences;
  int top_logprobs = -1;     // -1: none; k >= 0: the chosen token's and the k best
  int prompt_logprobs = -1;  // the same for each prompt token but the first (echo)
  // What the answer must be; null: any text. Its end tokens are those of the model.
  std::shared_ptr<const grammar::GrammarSpec> grammar;
};

// How the hidden states of a prompt (after the last layer's norm) become one vector.
enum class Pooling : uint8_t {
  kNone,  // none is wanted
  kLast,  // that of the last token
  kMean,  // the mean over all tokens
};

struct GenerateRequest {
  RequestId id;
  std::vector<TokenId> prompt;  // at least one token
  int n = 1;                    // sequences; they share the prompt's blocks
  SamplingParams sampling;
  int max_tokens = 16;  // generated tokens of each sequence; 0 computes the prompt only (echo)
  int min_tokens = 0;   // stop tokens are banned before that many
  std::vector<TokenId>
      stop_tokens;         // end a sequence (the model's end tokens are put here by the front)
  int priority = 0;        // lower runs first
  std::string cache_salt;  // prefix blocks are shared only between equal salts
  // Not kNone: an embedding of the prompt is wanted; n is 1 and max_tokens 0.
  Pooling pooling = Pooling::kNone;
};

enum class FinishReason : uint8_t {
  kStop,    // a stop token was drawn
  kLength,  // max_tokens, the context length, or a KV pool that cannot hold more with nothing else
            // to preempt
  kCancelled,  // Cancel() was called
  kError,      // SeqEvent::error says why
};

struct TokenLogprob {
  TokenId token;
  float logprob;
};

struct GeneratedToken {
  TokenId token;
  float logprob = 0;              // of the chosen token; only if top_logprobs >= 0
  std::vector<TokenLogprob> top;  // best first, top_logprobs entries
};

struct PromptLogprob {  // entry i speaks of prompt[i + 1]
  float logprob = 0;
  int rank = 0;  // 1: no token is likelier
  std::vector<TokenLogprob> top;
};

// Progress of sequence `index` of a request. Every sequence gets exactly one event with `finish`,
// and it is its last.
struct SeqEvent {
  RequestId request;
  int index = 0;
  std::vector<GeneratedToken> tokens;  // new ones; a stop token is included (the front hides it)
  std::optional<FinishReason> finish;
  Status error;  // set with kError
  // On the first event of each sequence:
  bool first = false;
  int cached_tokens = 0;  // prompt tokens whose KV came from the prefix cache, < prompt size
  std::vector<PromptLogprob> prompt_logprobs;
  // With the finish kLength of a request that pools: [hidden], as pooled, of any length.
  std::vector<float> embedding;
};

// Receives the events of one request. Called on the engine thread, in order: it must not block and
// must not call back into the engine client from within.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvent(const SeqEvent& event) = 0;
};

// What a front must know to refuse a request before it is queued.
struct EngineLimits {
  int max_model_len = 0;       // tokens of prompt + answer
  int kv_capacity_tokens = 0;  // block_count * block_size; a longer prompt can never run
  int vocab_size = 0;
  int max_queue = 0;  // waiting sequences
};

struct EngineStats {
  int running = 0, waiting = 0;  // sequences
  int blocks_total = 0, blocks_free = 0,
      blocks_cached = 0;  // cached: reusable, held by no sequence
  uint64_t preemptions = 0;
  uint64_t prefix_queries_tokens = 0, prefix_hits_tokens = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;
  uint64_t forced_tokens = 0;  // of generation_tokens: a grammar left no choice, nothing was drawn
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  uint64_t steps = 0;
  double last_step_age_s = 0;  // since the last step ended while work is waiting; 0 when idle
  int epoch = 0;               // of the workers; rises with each change of them
  int steps_in_flight = 0;
  uint64_t losses = 0;   // of workers, each of which ended an epoch
  uint64_t resumes = 0;  // epochs begun after a loss or a planned change
  double paused_s = 0;   // total without workers, the present pause included
  double compute_s = 0, wait_s = 0,
         plan_s = 0;  // totals over steps: in the worker, idle between steps, in the scheduler
};

// The front's view of the engine; all calls from any thread.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  // Queues a request; its events then go to `sink`, ending with one finish per sequence. Without OK
  // there are no events. ResourceExhausted: the queue is full. InvalidArgument: it can never run
  // (empty prompt, over the limits). Unavailable: the engine drains or has failed.
  virtual Status Submit(GenerateRequest request, std::shared_ptr<EventSink> sink) = 0;
  // Ends all sequences of a request (or one of them, index >= 0) with kCancelled within one step.
  // Unknown ids are ignored.
  virtual void Cancel(RequestId request, int index = -1) = 0;
  virtual EngineLimits limits() const = 0;
  virtual EngineStats stats() const = 0;
  // OK when a request would be served now; else the reason.
  virtual Status health() const = 0;
};

}  // namespace staffel
