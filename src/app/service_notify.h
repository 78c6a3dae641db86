// Messages to the service manager (systemd, sd_notify(3)). Without one, or when this was built
// without libsystemd, they go nowhere; failures to send are ignored.
#pragma once

#include <optional>
#include <string>

#include "staffel/clock.h"

namespace staffel {

// "READY=1", "STOPPING=1", "STATUS=...", "WATCHDOG=1"; several joined by newlines.
void NotifyService(const std::string& state);

// How often the manager wants WATCHDOG=1 at least; nullopt if it does not ask.
std::optional<Duration> WatchdogTimeout();

}  // namespace staffel
