#include "server/http_message.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>

#include "base/strings.h"

namespace staffel {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  char lower = Lower(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool StartsWithIgnoringCase(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() && EqualsIgnoringCase(text.substr(0, prefix.size()), prefix);
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

HttpError BadRequest(std::string message) { return {.status = 400, .message = std::move(message)}; }

std::string FreshRequestId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  char text[40];
  std::snprintf(text, sizeof text, "req-%016llx%016llx",
                static_cast<unsigned long long>(generator()),
                static_cast<unsigned long long>(generator()));
  return text;
}

}  // namespace

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

std::optional<RequestTarget> ParseTarget(std::string_view target) {
  if (target == "*") return RequestTarget{"*", ""};
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!StartsWithIgnoringCase(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    size_t end = target.find_first_of("/?#");
    if (end == 0) return std::nullopt;
    target.remove_prefix(std::min(end, target.size()));
    if (target.empty() || target[0] != '/') {
      return target.empty() || target[0] == '?'
                 ? std::optional(RequestTarget{"/", std::string(target.substr(!target.empty()))})
                 : std::nullopt;
    }
    break;
  }
  if (target.empty() || target[0] != '/') return std::nullopt;
  if (target.find('#') != std::string_view::npos) return std::nullopt;
  size_t mark = target.find('?');
  if (mark == std::string_view::npos) return RequestTarget{std::string(target), ""};
  return RequestTarget{std::string(target.substr(0, mark)), std::string(target.substr(mark + 1))};
}

std::optional<std::string> PercentDecode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      int high = HexDigit(text[i + 1]), low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  return out;
}

bool HasHttpVersion(std::string_view request_line) {
  if (request_line.size() < 9) return false;
  std::string_view version = request_line.substr(request_line.size() - 9);
  return version.starts_with(" HTTP/") && IsDigits(version.substr(6, 1)) && version[7] == '.' &&
         IsDigits(version.substr(8, 1));
}

std::optional<HttpError> CheckHead(const RequestHead& head) {
  int hosts = 0, lengths = 0, encodings = 0;
  for (const auto& [name, value] : head.headers) {
    if (name == "host") hosts++;
    if (name == "content-length") {
      lengths++;
      if (!IsDigits(value)) return BadRequest("Content-Length is not a plain number.");
    }
    if (name == "transfer-encoding") {
      encodings++;
      if (head.version < 11) return BadRequest("HTTP/1.0 has no Transfer-Encoding.");
      if (!EqualsIgnoringCase(value, "chunked")) {
        return HttpError{.status = 501,
                         .message = "The only Transfer-Encoding that is understood is chunked.",
                         .headers = {{"x-should-retry", "false"}}};
      }
    }
    if (name == "expect" && !EqualsIgnoringCase(value, "100-continue")) {
      return HttpError{.status = 417,
                       .message = "The only Expect that can be met is 100-continue."};
    }
  }
  if (lengths > 1) return BadRequest("Content-Length is given more than once.");
  if (encodings > 1) return BadRequest("Transfer-Encoding is given more than once.");
  if (lengths && encodings) {
    return BadRequest("Content-Length and Transfer-Encoding are both given; send one of them.");
  }
  if (hosts > 1 || (hosts == 0 && head.version >= 11)) {
    return BadRequest("The request must have one Host header.");
  }
  return std::nullopt;
}

bool ExpectsContinue(const RequestHead& head) {
  return head.version >= 11 &&
         std::any_of(head.headers.begin(), head.headers.end(),
                     [](const auto& header) { return header.first == "expect"; });
}

std::string RequestIdFor(std::string_view client_id) {
  bool safe = !client_id.empty() && client_id.size() <= 128 &&
              std::all_of(client_id.begin(), client_id.end(), [](char c) {
                return (Lower(c) >= 'a' && Lower(c) <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
                       c == '_' || c == ':' || c == '-';
              });
  return safe ? std::string(client_id) : FreshRequestId();
}

std::string_view ReasonPhrase(int status) {
  static constexpr std::pair<int, std::string_view> kPhrases[] = {
      {100, "Continue"},
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [number, phrase] : kPhrases) {
    if (number == status) return phrase;
  }
  return status < 400 ? "OK" : status < 500 ? "Client Error" : "Server Error";
}

std::string HttpDate(int64_t unix_seconds) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  time_t seconds = unix_seconds;
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[utc.tm_wday],
                utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                utc.tm_sec);
  return text;
}

std::string FormatHead(int status, const HttpHeaders& headers) {
  std::string out = StrCat("HTTP/1.1 ", status, " ", ReasonPhrase(status), "\r\n");
  for (const auto& [name, value] : headers) {
    out += name;
    out += ": ";
    for (char c : value) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    out += "\r\n";
  }
  out += "\r\n";
  return out;
}

void AppendEvent(std::string& out, std::string_view data, std::string_view name) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  while (true) {
    size_t end = data.find_first_of("\r\n");
    out += "data: ";
    out += data.substr(0, end);
    out += '\n';
    if (end == std::string_view::npos) break;
    bool pair = data[end] == '\r' && end + 1 < data.size() && data[end + 1] == '\n';
    data.remove_prefix(end + (pair ? 2 : 1));
  }
  out += '\n';
}

void AppendChunk(std::string& out, std::string_view data) {
  char size[20];
  int length = std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  out.append(size, length);
  out += data;
  out += "\r\n";
}

std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 200)) {
    if (c > 0x20 && c < 0x7f && c != '"' && c != '\\') {
      out += c;
    } else {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(c));
      out += hex;
    }
  }
  return out;
}

}  // namespace staffel
