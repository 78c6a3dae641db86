// Pure pieces of HTTP/1.1 messages (RFC 9110, RFC 9112) and of server-sent events: what is read
// from a request head after the parser has split it, and what is written. No sockets; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_error.h"

namespace staffel {

struct RequestTarget {
  std::string path;  // as sent, not decoded
  std::string query;
};

// Origin form ("/v1/models?x"), absolute form with http or https ("http://host/v1/models"), or "*".
// Nothing for any other target.
std::optional<RequestTarget> ParseTarget(std::string_view target);

// Nothing where a '%' is not followed by two hexadecimal digits, or the result holds a NUL.
std::optional<std::string> PercentDecode(std::string_view text);

// Whether a request line ends in a well-formed version, "HTTP/2.0": one that this server need not
// speak, but can refuse as such.
bool HasHttpVersion(std::string_view request_line);

struct RequestHead {
  int version = 11;  // 10 or 11
  HttpHeaders headers;
};

// What framing and expectations of a head get wrong, if anything: Host missing or repeated (400),
// Content-Length not plain digits or repeated (400), beside Transfer-Encoding (400),
// Transfer-Encoding in HTTP/1.0 (400) or other than "chunked" (501), Expect other than
// "100-continue" (417).
std::optional<HttpError> CheckHead(const RequestHead& head);

bool ExpectsContinue(const RequestHead& head);

// The client's id if it is 1..128 characters of [A-Za-z0-9._:-], else a fresh one.
std::string RequestIdFor(std::string_view client_id);

std::string_view ReasonPhrase(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7).
std::string HttpDate(int64_t unix_seconds);

// Status line (HTTP/1.1) and headers up to the empty line. Control characters in values become
// spaces, so that a value cannot end its line; names are taken as they are.
std::string FormatHead(int status, const HttpHeaders& headers);

// One event: its name, if it has one, behind "event: ", each line of `data` behind "data: ", then
// an empty line.
void AppendEvent(std::string& out, std::string_view data, std::string_view name = {});

// One chunk of the chunked coding; `data` is not empty.
void AppendChunk(std::string& out, std::string_view data);

// Text for a log line: what is not printable ASCII as \xHH, cut at 200 characters.
std::string Printable(std::string_view text);

bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace staffel
