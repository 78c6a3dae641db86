// What clients must see: the right text, known in advance, and the rules of events.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "staffel/request.h"

namespace staffel::sim {

// The whole right answer of one sequence, were nothing to disturb it.
struct ExpectedText {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kLength;
};
ExpectedText ExpectText(const GenerateRequest& request, int index, int max_model_len);
std::vector<float> ExpectPromptLogprobs(const GenerateRequest& request);
std::vector<float> ExpectEmbedding(const GenerateRequest& request);

// One request as its client sees it.
class ClientOracle {
 public:
  ClientOracle(const GenerateRequest& request, int max_model_len, int block_size);

  // Checks an event; returns what is wrong with it, or nothing. `block_count`: of the pool now, or
  // the smallest since the last event. `failure_expected`: kError may come.
  std::string OnEvent(const SeqEvent& event, int block_count, bool failure_expected);

  void Cancelled(int index);  // -1: all
  bool finished() const { return unfinished_ == 0; }
  // Every sequence whose cancellation was handled must have finished.
  bool AwaitsCancelled() const;
  int tokens_received() const { return tokens_received_; }
  bool exhausted() const { return exhausted_; }  // ended early by the KV pool
  const GenerateRequest& request() const { return request_; }
  const ExpectedText& expected(int index) const { return sequences_[index].expected; }
  int cached_tokens() const { return cached_tokens_; }  // the most reported

 private:
  struct SequenceView {
    ExpectedText expected;
    size_t received = 0;
    bool spoke = false, finished = false, cancelled = false;
  };
  std::string CheckFirst(const SeqEvent& event, SequenceView& view);
  std::string CheckFinish(const SeqEvent& event, SequenceView& view, int block_count,
                          bool failure_expected);

  GenerateRequest request_;
  int block_size_;
  std::vector<SequenceView> sequences_;
  int unfinished_;
  int tokens_received_ = 0;
  int cached_tokens_ = 0;
  bool exhausted_ = false;
};

}  // namespace staffel::sim
