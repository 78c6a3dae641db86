// A client's message from its bytes. Pure; any thread.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http_error.h"

namespace staffel {

// An empty message inside of another takes two bytes on the wire and some 150 in memory: without a
// limit a client could have fifty times of what the limit of bytes allows it.
inline constexpr int64_t kMessageFieldsMax = 1'000'000;

// 400 where the bytes are no message of that type, a string in it is not UTF-8, or it has more
// fields (those of messages within included; a packed list counts once).
std::optional<HttpError> ReadMessage(std::string_view bytes, google::protobuf::Message& message);

// The number that a client wrote: 0.1, not the double next to the float. Not finite ones stay.
double WidenFloat(float value);

}  // namespace staffel
