#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string_view>
#include <utility>

namespace staffel {
namespace {

// The message with control characters (and, for JSON, quotes and backslashes) escaped. Bytes that
// are not UTF-8 stay: readers of logs cope with them.
class EscapedMessage final : public spdlog::custom_flag_formatter {
 public:
  explicit EscapedMessage(bool json) : json_(json) {}

  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    for (const char c : std::string_view(message.payload.data(), message.payload.size())) {
      AppendEscaped(c, out);
    }
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<EscapedMessage>(json_);
  }

 private:
  static void Append(std::string_view text, spdlog::memory_buf_t& out) {
    out.append(text.data(), text.data() + text.size());
  }
  void AppendEscaped(char c, spdlog::memory_buf_t& out) const {
    constexpr char kHex[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (json_ && (c == '"' || c == '\\')) {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      Append("\\n", out);
    } else if (byte < 0x20 || byte == 0x7F) {
      Append(json_ ? "\\u00" : "\\x", out);
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }

  const bool json_;
};

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

void InitLogging(LogLevel level, LogFormat format) {
  const bool json = format == LogFormat::kJson;
  auto logger =
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>(
      json ? spdlog::pattern_time_type::utc : spdlog::pattern_time_type::local);
  formatter->add_flag<EscapedMessage>('*', json);
  formatter->set_pattern(
      json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l","thread":%t,"message":"%*"})"
           : "%Y-%m-%d %H:%M:%S.%e %-7l %*");
  logger->set_formatter(std::move(formatter));
  logger->set_level(SpdlogLevel(level));
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace staffel
