// The text of one answer → deltas, while it is being written. Pure; one object per choice, used by
// one thread at a time.
//
// Whatever the model writes becomes content, reasoning or a call, and no input is an error. The
// deltas together do not depend on how the text was cut into pieces.
//   - Markers, and white space between them and the text around, belong to no text.
//   - A call begins once its name is known and its arguments begin with "{" (or are known to be
//     empty): what looked like a call before, and then was none, is content as it stands, markers
//     included. Formats without markers (kJson, kLlama, kGemma) take only names of tools that the
//     request has, and where there is a name without arguments it is no call.
//   - From then on what the model writes is the call's arguments, up to the bracket that closes
//     them. Arguments that cannot become JSON any more go on up to the format's end marker, or else
//     to the end of the answer: the client gets them as they are. Behind closed arguments, what the
//     format does not have is content.
//   - kQwenXml's parameters and kGemma's Python become JSON; a parameter is a string where the tool
//     says so, else JSON if it is, else a string. Arguments given as a JSON string are unpacked.
//   - In formats with markers, an answer that is nothing but calls of known tools as JSON (one, a
//     list, or one behind the other, perhaps in a code fence) is calls though it has no marker.
//     What may become that is held back until the answer's end.
//   - Reasoning is recognised at the beginning of the answer only, or where the prompt has opened
//     it; calls within it are reasoning.
//   - Bytes of control tokens never become text, unless show_control.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/delta.h"
#include "answer/format.h"

namespace staffel::answer {

struct ToolSignature {
  std::string name;
  std::vector<std::string> string_parameters;  // those of type "string"
};

struct ParserOptions {
  Formats formats;
  bool in_reasoning = false;         // the prompt has opened it
  std::vector<ToolSignature> tools;  // empty: any name
  bool show_control = false;         // markers that are control tokens may become text
  // A grammar writes the calls, as CallForm says: none that stands elsewhere is taken for one.
  bool held_calls = false;
  uint64_t id_seed = 0;  // the ids of calls are a function of it and their index
};

class Parser {
 public:
  virtual ~Parser() = default;
  // The next piece of text, whole characters; `control`: it is the name of a control token, one of
  // Markers(formats). Appends to *out.
  virtual void Push(std::string_view text, bool control, std::vector<Delta>* out) = 0;
  // The answer has ended: gives out all that was held back, and ends a call.
  virtual void Finish(std::vector<Delta>* out) = 0;
  // The text that comes next is reasoning, as far as is known.
  virtual bool in_reasoning() const = 0;
};

std::unique_ptr<Parser> MakeParser(ParserOptions options);

// The id of a call: "call_" and 24 letters and digits; 9 of them for Mistral's formats, whose
// templates take no other.
std::string CallId(CallFormat format, uint64_t seed, int index);

}  // namespace staffel::answer
