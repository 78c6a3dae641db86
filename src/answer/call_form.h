// How calls of a format are written so that its parser reads back just them: the literals of a
// grammar. Pure.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "answer/format.h"

namespace staffel::answer {

// One call is begin, name, middle, arguments, end; calls in a row stand between list_begin and
// list_end.
struct CallForm {
  std::string begin, middle, end;
  bool json_name = false;  // the name is a JSON string
  bool xml = false;        // the arguments are <parameter=…> elements, else a JSON object
  std::string list_begin, list_separator, list_end;
  // What a parser takes for the beginning of a call: text beside calls may not have it.
  std::vector<std::string> triggers;
  bool leads = false;      // calls have no marker: they stand at the beginning or nowhere
  bool single = false;     // an answer has one call at most
  std::string text_begin;  // in front of an answer that is no call
};

// `spell` gives a marker as it is to be written, for one may be a control token. Not for kNone.
CallForm FormOf(CallFormat format, const std::function<std::string(std::string_view)>& spell);

// Literals around reasoning; empty where there is none.
struct ReasoningForm {
  std::string begin, end;
};
ReasoningForm FormOf(ReasoningFormat format,
                     const std::function<std::string(std::string_view)>& spell);

}  // namespace staffel::answer
