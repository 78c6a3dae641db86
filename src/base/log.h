// Logging: spdlog to stderr, as text or as JSON lines. Use spdlog::info(...) and its sisters.
#pragma once

#include <cstdint>

namespace staffel {

enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat : uint8_t { kText, kJson };

// Sets the process's default logger; call before other threads log. Control characters in messages
// are escaped in both formats: a line is one message, whatever a client has sent.
//   text: 2026-01-31 12:00:00.123 info  message
//   json: {"time":"2026-01-31T12:00:00.123Z","level":"info","thread":42,"message":"message"}
void InitLogging(LogLevel level, LogFormat format);

}  // namespace staffel
