#include "server/anthropic/fields.h"

#include <cstdint>

namespace staffel::api::anthropic {
namespace {

constexpr Field kMessages[] = {
    {.name = "model",
     .kind = FieldKind::kString,
     .note = "a served name; may be left out where there is one model"},
    {.name = "messages",
     .kind = FieldKind::kArray,
     .note = "the conversation",
     .use = FieldUse::kRequired},
    {.name = "system",
     .kind = FieldKind::kMixed,
     .note = "text, or text blocks",
     .schema = R"({"type":["string","array"]})"},
    {.name = "temperature",
     .kind = FieldKind::kNumber,
     .note = "0: greedy",
     .fallback = "1.0",
     .min = 0,
     .max = 2},
    {.name = "top_p",
     .kind = FieldKind::kNumber,
     .note = "",
     .fallback = "1.0",
     .min = 0,
     .max = 1},
    {.name = "top_k",
     .kind = FieldKind::kInt,
     .note = "-1 or 0: off",
     .fallback = "0",
     .min = -1,
     .max = INT32_MAX},
    {.name = "stop_sequences", .kind = FieldKind::kArray, .note = "strings that end the answer"},
    {.name = "stream", .kind = FieldKind::kBool, .note = "", .fallback = "false"},
    {.name = "tools", .kind = FieldKind::kArray, .note = "name, description and input_schema"},
    {.name = "tool_choice", .kind = FieldKind::kObject, .note = "auto, any, tool or none"},
    {.name = "thinking", .kind = FieldKind::kObject, .note = "enabled, adaptive or disabled"},
    {.name = "output_config", .kind = FieldKind::kObject, .note = "effort and format"},
    {.name = "output_format",
     .kind = FieldKind::kObject,
     .note = "the earlier name of output_config.format"},
    {.name = "cache_control", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "metadata", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "service_tier", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "inference_geo", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "speed", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "diagnostics", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "user_profile_id", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "workspace_id", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "container",
     .kind = FieldKind::kMixed,
     .note = "this server keeps nothing between requests and runs no tools",
     .use = FieldUse::kRefused},
    {.name = "mcp_servers",
     .kind = FieldKind::kMixed,
     .note = "this server runs no tools",
     .use = FieldUse::kRefused},
    {.name = "context_management",
     .kind = FieldKind::kMixed,
     .note = "this server does not shorten conversations; send what must be read",
     .use = FieldUse::kRefused},
};

constexpr Field kMaxTokens[] = {
    {.name = "max_tokens",
     .kind = FieldKind::kInt,
     .note = "of the answer",
     .min = 1,
     .use = FieldUse::kRequired},
};

constexpr RouteDoc kRoutes[] = {
    {"POST", "/v1/messages", "An answer in the shape of the Messages API", kMessages, kMaxTokens,
     true},
    {"POST",
     "/v1/messages/count_tokens",
     "How many tokens the model would read",
     kMessages,
     {},
     false},
};

}  // namespace

std::span<const Field> MessagesFields() { return kMessages; }
std::span<const Field> MaxTokensField() { return kMaxTokens; }
std::span<const RouteDoc> RouteDocs() { return kRoutes; }

}  // namespace staffel::api::anthropic
