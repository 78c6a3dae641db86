// Finds stop strings in the text of an answer while it is being written. One object per sequence,
// used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace staffel {

// The result is that of a search in the whole text, however it was cut: the match that starts first
// wins, and of several that start there the shortest. The order of the list has no influence. Text
// is held back only while it may still belong to a match that would win, so it is never taken back
// and never sent twice; at most the longest stop string's length less one is held.
//
// Matching is on bytes: with valid UTF-8 in text and stop strings every piece given out is valid
// UTF-8 too. One pass over the text whatever the number of stop strings (Aho and Corasick 1975).
class StopMatcher {
 public:
  // Empty strings never match. include_stop: the stop string itself is part of the text given out.
  explicit StopMatcher(std::vector<std::string> stops, bool include_stop = false);

  // Takes the next piece of text and appends to *out what may be sent. True once a match has won:
  // the text is complete, further calls add nothing.
  bool Push(std::string_view text, std::string* out);
  // The answer has ended by itself: decides for a complete match that a longer, earlier one was
  // still competing with, and gives out the rest. True if a match has won.
  bool Flush(std::string* out);

  // Index in the list of the string that won (the lowest, if the list repeats it).
  std::optional<int> matched() const { return finished_ ? matched_ : std::nullopt; }
  const std::vector<std::string>& stops() const { return stops_; }
  // Bytes held back now.
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Node {
    int32_t fail = 0;
    int32_t depth = 0;
    int32_t stop = -1;  // longest stop string that is a suffix of this node's string
  };
  struct Match {
    size_t start = 0;
    int stop = -1;
  };

  int32_t Child(int32_t node, char byte) const;
  int32_t Step(int32_t node, char byte) const;
  void Build();
  void Win(std::string* out);

  std::vector<std::string> stops_;
  bool include_stop_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int32_t> edges_;  // node << 8 | byte

  int32_t state_ = 0;
  size_t read_ = 0;   // bytes read so far
  size_t given_ = 0;  // bytes given out so far; held_ follows them
  std::string held_;  // the last bytes read that were not given out
  std::optional<Match> best_;
  bool finished_ = false;
  std::optional<int> matched_;
};

}  // namespace staffel
