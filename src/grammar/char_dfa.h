// Deterministic automata over code points, for what needs a whole language at once: intersections
// (pattern and maxLength and format of one string, ranges of numbers) and complements (keys that
// are none of the declared ones). Values; no threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"
#include "staffel/status.h"

namespace staffel::grammar {

class CharDfa {
 public:
  struct Edge {
    CodeRange range;
    int target;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, disjoint; what has no edge is refused
    bool accepts = false;
  };

  // States [0, n); 0 is where texts begin. No state at all: no text.
  explicit CharDfa(std::vector<State> states) : states_(std::move(states)) {}

  static CharDfa AllTexts();
  // Texts that are none of `words` (valid UTF-8).
  static CharDfa AllBut(const std::vector<std::string_view>& words);
  // Texts of min to max characters; max < 0: no bound.
  static CharDfa Length(int min, int max);

  const std::vector<State>& states() const { return states_; }
  bool IsEmpty() const;
  bool Accepts(std::string_view utf8) const;  // false for text that is not valid UTF-8

  CharDfa Complement() const;
  // ResourceExhausted: more than `limit` states.
  static Result<CharDfa> Intersect(const CharDfa& a, const CharDfa& b, int64_t limit);
  // The same texts, and every state leads to the end of one.
  CharDfa WithoutDeadStates() const;

 private:
  std::vector<State> states_;
};

// One with edges in any number for a character, for CharDfa's construction by subsets.
struct CharNfa {
  struct Edge {
    CodeRange range;
    int target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<int> empty;  // targets without a character
  };
  std::vector<State> states;
  int start = 0, end = 0;

  int AddState() {
    states.emplace_back();
    return static_cast<int>(states.size()) - 1;
  }
  // ResourceExhausted: more than `limit` states.
  Result<CharDfa> Determinize(int64_t limit) const;
};

}  // namespace staffel::grammar
