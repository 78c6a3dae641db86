#include "app/service_notify.h"

#ifdef STAFFEL_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace staffel {

#ifdef STAFFEL_HAVE_SYSTEMD

void NotifyService(const std::string& state) { sd_notify(0, state.c_str()); }

std::optional<Duration> WatchdogTimeout() {
  uint64_t timeout_us = 0;
  if (sd_watchdog_enabled(0, &timeout_us) <= 0 || timeout_us == 0) return std::nullopt;
  return std::chrono::microseconds(timeout_us);
}

#else

void NotifyService(const std::string&) {}
std::optional<Duration> WatchdogTimeout() { return std::nullopt; }

#endif

}  // namespace staffel
