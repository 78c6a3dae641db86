// What stands before, between and behind the arguments of calls in the formats that write them into
// the text (all but harmony). A syntax has no state: what an open call needs is in a CallPlace.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer/cursor.h"
#include "answer/parser.h"

namespace staffel::answer {

// Where in its format the text is.
struct CallPlace {
  bool tagged = false, fenced = false;  // an end marker is to come
  bool in_array = false;                // of calls
  bool in_object = false;               // that holds the arguments
};

struct CallHead {
  enum class Arguments : unsigned char {
    kComplete,  // `arguments`
    kFollow,    // as a JSON object, from here
    kXml,       // as <parameter=…> elements, from here
  };
  std::string name;
  Arguments kind = Arguments::kComplete;
  std::string arguments;
};

class CallSyntax {
 public:
  virtual ~CallSyntax() = default;

  // Texts that a call may begin with.
  virtual const std::vector<std::string_view>& begins() const = 0;
  // A call may also begin with a bracket at the beginning of a line.
  virtual bool bare() const { return false; }
  // What ends arguments that are no JSON; empty: nothing.
  virtual std::string_view EndOfBroken(const CallPlace& place) const = 0;

  // Reads up to the arguments; `first`: from a begin, else from where ReadTail said that another
  // call may come. Changes *place and *head also if it fails.
  virtual void ReadHead(Cursor& cursor, bool first, CallPlace* place, CallHead* head) const = 0;
  // Reads what stands behind arguments. True: another call may begin at the cursor; if it does not,
  // the calls end at *end. False: they end at the cursor, which may stand where it stood.
  virtual bool ReadTail(Cursor& cursor, CallPlace* place, size_t* end) const = 0;
};

// Calls of known tools without markers, or in a code fence, whatever the format.
std::unique_ptr<CallSyntax> MakeBareSyntax(const std::vector<ToolSignature>& tools);

// For formats other than kNone and kHarmony. The tools must outlive it.
std::unique_ptr<CallSyntax> MakeCallSyntax(CallFormat format,
                                           const std::vector<ToolSignature>& tools);

}  // namespace staffel::answer
