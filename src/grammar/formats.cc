#include "grammar/formats.h"

#include <array>
#include <utility>

namespace staffel::grammar {
namespace {

// RFC 3339, leap years included.
#define DATE                                                                       \
  "((\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|" \
  "30)|02-(0[1-9]|1\\d|2[0-8])))|(\\d\\d(0[48]|[2468][048]|[13579][26])|"          \
  "([02468][048]|[13579][26])00)-02-29)"
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?"
#define OFFSET "(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
// RFC 1123: labels of letters, digits and inner hyphens; four of them stay below 253 characters.
// No two hyphens in a row: labels that have them in third and fourth place are encodings with rules
// of their own (RFC 5891).
#define LABEL "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){0,2}"
#define HOST LABEL "(\\." LABEL "){0,3}"
// RFC 5321: a dot-atom within 64 characters.
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
#define OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(\\." OCTET "){3}"
#define HEXTET "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                   \
  "((" HEXTET ":){7}" HEXTET "|(" HEXTET ":){1,7}:|(" HEXTET ":){1,6}:" HEXTET "|(" HEXTET     \
  ":){1,5}(:" HEXTET "){1,2}|(" HEXTET ":){1,4}(:" HEXTET "){1,3}|(" HEXTET ":){1,3}(:" HEXTET \
  "){1,4}|(" HEXTET ":){1,2}(:" HEXTET "){1,5}|" HEXTET ":(:" HEXTET "){1,6}|:(:" HEXTET       \
  "){1,7}|::)"
// RFC 3986: characters of a path, a query and a fragment, percent-encoding included.
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define TAIL "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"
#define AUTHORITY "([A-Za-z0-9._~-]{1,32}@)?" HOST "(:\\d{1,5})?"
#define SEGMENTS "(/" PCHAR "*)*"
#define SCHEME "[A-Za-z][A-Za-z0-9+.-]{0,15}"
#define PLAIN_SEGMENT "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+"
#define URI SCHEME ":(//" AUTHORITY SEGMENTS "|" PCHAR "+" SEGMENTS ")" TAIL
#define POINTER "(/([^/~]|~[01])*)*"

constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kFormats = {{
    {"date", DATE},
    {"time", CLOCK OFFSET},
    {"date-time", DATE "T" CLOCK OFFSET},
    {"duration",
     "P(\\d{1,4}W|(\\d{1,4}Y(\\d{1,4}M(\\d{1,4}D)?)?|\\d{1,4}M(\\d{1,4}D)?|\\d{1,4}D)"
     "(T(\\d{1,4}H(\\d{1,4}M(\\d{1,4}S)?)?|\\d{1,4}M(\\d{1,4}S)?|\\d{1,4}S))?|"
     "T(\\d{1,4}H(\\d{1,4}M(\\d{1,4}S)?)?|\\d{1,4}M(\\d{1,4}S)?|\\d{1,4}S))"},
    {"email", ATOM "(\\." ATOM "){0,2}@" LABEL "(\\." LABEL "){1,2}"},
    {"idn-email", ATOM "(\\." ATOM "){0,2}@" LABEL "(\\." LABEL "){1,2}"},
    {"hostname", HOST},
    {"idn-hostname", HOST},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uuid", "[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"},
    {"uri", URI},
    {"iri", URI},
    {"uri-reference", "(" URI "|(//" AUTHORITY SEGMENTS "|(/(" PCHAR "+" SEGMENTS ")?)?"
                      "|" PLAIN_SEGMENT SEGMENTS ")" TAIL ")"},
    {"iri-reference", "(" URI "|(//" AUTHORITY SEGMENTS "|(/(" PCHAR "+" SEGMENTS ")?)?"
                      "|" PLAIN_SEGMENT SEGMENTS ")" TAIL ")"},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(0|[1-9]\\d{0,5})(#|" POINTER ")"},
    {"byte", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
    {"base64", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
    {"password", ""},
    {"binary", ""},
    {"float", ""},
    {"double", ""},
    {"number", ""},
}};

}  // namespace

std::optional<std::string_view> FormatPattern(std::string_view format) {
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return std::nullopt;
}

}  // namespace staffel::grammar
