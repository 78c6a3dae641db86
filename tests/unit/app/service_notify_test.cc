#include "app/service_notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace staffel {
namespace {

#ifdef STAFFEL_HAVE_SYSTEMD

// The service manager's end: a datagram socket in the abstract name space ("@name").
TEST(ServiceNotify, StatesArriveAsDatagrams) {
  const std::string name = "staffel-notify-test-" + std::to_string(getpid());
  const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(manager, reinterpret_cast<sockaddr*>(&address), size), 0);
  setenv("NOTIFY_SOCKET", ("@" + name).c_str(), 1);
  NotifyService("READY=1\nSTATUS=serving");
  char buffer[100];
  const ssize_t count = recv(manager, buffer, sizeof buffer, MSG_DONTWAIT);
  ASSERT_GT(count, 0);
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(count)), "READY=1\nSTATUS=serving");
  close(manager);
  NotifyService("STOPPING=1");  // nobody listens any more
  unsetenv("NOTIFY_SOCKET");
}

TEST(ServiceNotify, TheWatchdogIsAskedForInTheEnvironment) {
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  setenv("WATCHDOG_USEC", "3000000", 1);
  EXPECT_EQ(WatchdogTimeout(), Duration(std::chrono::seconds(3)));
  setenv("WATCHDOG_PID", "1", 1);  // meant for another process
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(WatchdogTimeout(), std::nullopt);
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
}

#endif

TEST(ServiceNotify, WithoutAManagerNothingHappens) {
  unsetenv("NOTIFY_SOCKET");
  NotifyService("READY=1");
  setenv("NOTIFY_SOCKET", "/nonexistent/socket", 1);
  NotifyService("READY=1");
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace staffel
