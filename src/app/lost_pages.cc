#include "app/lost_pages.h"

#include <signal.h>
#include <unistd.h>

namespace staffel {
namespace {

// Only calls that are safe in a signal handler.
void OnLostPage(int) {
  constexpr char kMessage[] =
      "staffel: a model file became shorter while it was read, or its disk failed; put a whole "
      "file "
      "in its place by renaming, not by writing into it\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(1);
}

}  // namespace

void ExplainLostPages() {
  struct sigaction action = {};
  action.sa_handler = OnLostPage;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace staffel
