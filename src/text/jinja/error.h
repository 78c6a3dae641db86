// How a render or a parse ends early inside this folder. It never leaves the folder: Template turns
// it into a Status.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace staffel::jinja {

class TemplateError : public std::runtime_error {
 public:
  enum class Reason {
    kFailed,  // the template did what its values do not allow, or hit a limit
    kRaised,  // raise_exception: the template refuses its input
    kInput    // the caller's data are unusable whatever the template is
  };
  explicit TemplateError(const std::string& message, Reason reason = Reason::kFailed)
      : std::runtime_error(message), reason(reason) {}
  const Reason reason;
};

template <class... Pieces>
[[noreturn]] void Fail(const Pieces&... pieces) {
  throw TemplateError(StrCat(pieces...));
}

}  // namespace staffel::jinja
