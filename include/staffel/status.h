// Result and the two macros for passing an error on. Codes carry the treatment:
//   InvalidArgument, OutOfRange, NotFound, FailedPrecondition  the caller's mistake (HTTP 4xx)
//   ResourceExhausted                                          a full queue (429), or memory that
//   does not suffice Unavailable, DeadlineExceeded, Aborted, DataLoss           the world's failure
//   (503, or retried by the engine)
// A message is one sentence for the person who can act on it: what is wrong, and what to do.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace staffel {

using Status = absl::Status;
template <class T>
using Result = absl::StatusOr<T>;

}  // namespace staffel

#define STAFFEL_RETURN_IF_ERROR(expression)                                   \
  do {                                                                        \
    if (::absl::Status staffel_status_ = (expression); !staffel_status_.ok()) \
      return staffel_status_;                                                 \
  } while (false)

#define STAFFEL_CONCAT_INNER_(a, b) a##b
#define STAFFEL_CONCAT_(a, b) STAFFEL_CONCAT_INNER_(a, b)

// STAFFEL_ASSIGN_OR_RETURN(auto file, OpenModel(path));
#define STAFFEL_ASSIGN_OR_RETURN(declaration, expression)                                 \
  STAFFEL_ASSIGN_OR_RETURN_IMPL_(STAFFEL_CONCAT_(staffel_result_, __LINE__), declaration, \
                                 expression)
#define STAFFEL_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                           \
  if (!result.ok()) return std::move(result).status();                  \
  declaration = *std::move(result)
