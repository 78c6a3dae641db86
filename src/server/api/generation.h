// One API request in flight: submits its prompts to the engine, gathers the events of all choices
// and answers once, whole or as a stream.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/answer_sink.h"
#include "server/api/choice_decoder.h"
#include "server/api/event_inbox.h"
#include "server/api/generation_options.h"
#include "server/api/served_model.h"
#include "server/http.h"
#include "staffel/clock.h"
#include "staffel/request.h"

namespace staffel::api {

// The first of `count` ids in a row that no other request of this process has. Any thread.
RequestId NextRequestIds(int count);

struct GenerationPrompt {
  std::vector<TokenId> tokens;
  std::string echo_text;  // put before the answer
  bool is_text = false;   // echo_text is what the client gave
};

struct GenerationSpec {
  std::shared_ptr<const ServedModel> model;
  std::vector<GenerationPrompt> prompts;
  GenerationOptions options;
  int max_tokens_default = 16;  // when the request names none; capped by the room in the context
  // Log-probabilities of the prompts' tokens, with so many of the likeliest ones; -1: none.
  int prompt_logprobs = -1;
  int best_of = 0;            // 0: all n answers are shown; else that many, the likeliest, of n
  bool token_pieces = false;  // stream a piece for tokens without text, too
  bool gather = false;        // streamed: Complete gets the whole answer, too
  // Chats: how reasoning and calls are told apart from content; absent: all is content.
  std::optional<answer::ParserOptions> parser;
  AnswerRules rules;  // where there is a parser
  std::unique_ptr<AnswerSink> sink;
  TaskRunner* runner = nullptr;  // outlives the generation
};

// Events come on the engine thread and are only queued there; the text is made on the runner's
// threads.
class Generation final : public EventSink, public std::enable_shared_from_this<Generation> {
 public:
  // Submits all prompts and opens the stream, or answers with an error. After this the generation
  // keeps itself alive until it has answered and the engine has let go of it.
  static void Start(GenerationSpec spec);

  void OnEvent(const SeqEvent& event) override;

 private:
  struct Choice {
    ChoiceDecoder decoder;
    Piece all;  // so far; see AnswerSink::Complete
    std::vector<PromptLogprob> prompt_logprobs;
    bool opened = false, closed = false;  // for the client
    std::optional<Time> first_token, last_token;
  };

  explicit Generation(GenerationSpec spec);
  Status Submit();
  void CancelAll();
  void Drain();  // runner thread; one at a time
  void Apply(const SeqEvent& event);
  void ObserveTokens(Choice& choice, int token_count);
  void ObserveFinish(FinishReason reason);
  void SendPiece(int index);
  void Open(int index);
  void FinishIfComplete();
  void Fail(const Status& error);
  ChoiceResult Result(int index) const;
  Usage UsageOf(int index) const;
  Usage TotalUsage() const;

  GenerationSpec spec_;
  const Time started_;
  std::optional<Time> first_token_;
  std::vector<RequestId> requests_;  // by prompt
  std::vector<Choice> choices_;      // prompt * n + sequence index
  std::vector<int> cached_tokens_;   // by prompt
  int open_choices_ = 0;
  bool answered_ = false;  // only touched in Drain

  EventInbox inbox_;
};

}  // namespace staffel::api
