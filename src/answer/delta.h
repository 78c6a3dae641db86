// What an answer is made of, in the words of no front: the deltas that a choice's text becomes, and
// a whole answer gathered from them. Values; used from any thread.
//
// The deltas of one choice keep an order that every front may rely on:
//   - kReasoning and kContent come at any place outside of calls; their texts are not empty;
//   - a call is one kCallBegin (its index counts from 0 and rises by one; id and name are set and
//   do
//     not change), then kCallArguments, then one kCallEnd; calls do not nest or overlap, and
//     nothing else comes in between;
//   - each begun call has its kCallEnd before the choice's finish, also when the answer was cut.
// How a front writes them:
//   OpenAI chat      kReasoning: delta.reasoning_content; kContent: delta.content; kCallBegin:
//                    tool_calls[{index, id, type, function: {name, arguments: ""}}];
//                    kCallArguments: tool_calls[{index, function: {arguments}}]; kCallEnd: nothing
//   OpenAI responses, Anthropic messages: each run of one kind is an item or content block;
//   kCallEnd
//                    closes the call's
//   Ollama and other fronts that take whole calls: Answer::Add, then `calls`
// The texts of all kCallArguments of a call together are its arguments as JSON text: an object,
// unless the model wrote something else or was cut (see parser.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace staffel::answer {

struct Delta {
  enum class Kind : uint8_t { kContent, kReasoning, kCallBegin, kCallArguments, kCallEnd };
  Kind kind = Kind::kContent;
  std::string text;      // kContent, kReasoning, kCallArguments; valid UTF-8
  int call = -1;         // kCall…: index of the call in the answer
  std::string id, name;  // kCallBegin
  bool operator==(const Delta&) const = default;
};

// Appends; text of the kind (and call) of the last delta goes on there.
void Append(std::vector<Delta>& deltas, Delta delta);

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call&) const = default;
};

// All deltas of a choice together.
struct Answer {
  std::string content, reasoning;
  std::vector<Call> calls;

  void Add(const Delta& delta);
  bool operator==(const Answer&) const = default;
};

}  // namespace staffel::answer
