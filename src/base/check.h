// Checks for our own bugs: a failed check prints what was expected and where, then aborts.
// What a caller or the world can get wrong is an absl::Status, never a check. Active in every build
// type.
#pragma once

#include <sstream>
#include <string_view>

namespace staffel {

// Collects the message of one failed check and aborts in its destructor.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, std::string_view what);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace staffel

// STAFFEL_CHECK(a < b) << "why it must hold";
#define STAFFEL_CHECK(condition)            \
  while (__builtin_expect(!(condition), 0)) \
  ::staffel::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define STAFFEL_CHECK_OP_(a, op, b) STAFFEL_CHECK((a)op(b)) << "(" << (a) << " vs. " << (b) << ") "
#define STAFFEL_CHECK_EQ(a, b) STAFFEL_CHECK_OP_(a, ==, b)
#define STAFFEL_CHECK_NE(a, b) STAFFEL_CHECK_OP_(a, !=, b)
#define STAFFEL_CHECK_LT(a, b) STAFFEL_CHECK_OP_(a, <, b)
#define STAFFEL_CHECK_LE(a, b) STAFFEL_CHECK_OP_(a, <=, b)
#define STAFFEL_CHECK_GE(a, b) STAFFEL_CHECK_OP_(a, >=, b)
#define STAFFEL_CHECK_GT(a, b) STAFFEL_CHECK_OP_(a, >, b)
