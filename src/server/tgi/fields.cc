#include "server/tgi/fields.h"

#include <cstdint>

namespace staffel::api::tgi {
namespace {

constexpr Field kParameters[] = {
    {.name = "max_new_tokens",
     .kind = FieldKind::kInt,
     .note = "of the answer; capped at the room in the context",
     .fallback = "100",
     .min = 1},
    {.name = "do_sample",
     .kind = FieldKind::kBool,
     .note = "false, without a field that shapes sampling: greedy",
     .fallback = "false"},
    {.name = "temperature", .kind = FieldKind::kNumber, .note = "0: greedy", .min = 0, .max = 2},
    {.name = "top_k", .kind = FieldKind::kInt, .note = "-1 or 0: off", .min = -1, .max = INT32_MAX},
    {.name = "top_p", .kind = FieldKind::kNumber, .note = "", .min = 0, .max = 1},
    {.name = "typical_p",
     .kind = FieldKind::kNumber,
     .note = "",
     .fallback = "1.0",
     .use = FieldUse::kNeutral},
    {.name = "repetition_penalty",
     .kind = FieldKind::kNumber,
     .note = "over prompt and generated tokens",
     .fallback = "1.0",
     .min = 0.01,
     .max = 100},
    {.name = "frequency_penalty",
     .kind = FieldKind::kNumber,
     .note = "over generated tokens",
     .fallback = "0.0",
     .min = -2,
     .max = 2},
    {.name = "seed", .kind = FieldKind::kInt, .note = "absent: random", .min = 0},
    {.name = "stop",
     .kind = FieldKind::kArray,
     .note = "strings that end the answer, which holds the one that did"},
    {.name = "return_full_text",
     .kind = FieldKind::kBool,
     .note = "generated_text begins with the prompt",
     .fallback = "false"},
    {.name = "details", .kind = FieldKind::kBool, .note = "", .fallback = "false"},
    {.name = "decoder_input_details",
     .kind = FieldKind::kBool,
     .note = "log-probabilities of the prompt, in details; not streamed",
     .fallback = "false"},
    {.name = "top_n_tokens",
     .kind = FieldKind::kInt,
     .note = "so many of the likeliest tokens beside each one",
     .min = 0,
     .max = 20},
    {.name = "best_of",
     .kind = FieldKind::kInt,
     .note = "so many answers are drawn and the likeliest is shown; not streamed",
     .fallback = "1",
     .min = 1,
     .max = 128},
    {.name = "truncate",
     .kind = FieldKind::kInt,
     .note = "the last so many tokens of a longer prompt",
     .min = 1,
     .max = INT32_MAX},
    {.name = "grammar",
     .kind = FieldKind::kObject,
     .note = "type json, regex or json_schema, and value"},
    {.name = "watermark",
     .kind = FieldKind::kMixed,
     .note = "this server marks no text; leave it out or send false",
     .use = FieldUse::kRefused},
    {.name = "adapter_id",
     .kind = FieldKind::kMixed,
     .note = "this server has no adapters",
     .use = FieldUse::kRefused},
};

constexpr Field kInputs = {
    .name = "inputs", .kind = FieldKind::kString, .note = "the prompt", .use = FieldUse::kRequired};
constexpr Field kParametersField = {.name = "parameters",
                                    .kind = FieldKind::kObject,
                                    .note = "how the answer is made",
                                    .members = kParameters};
constexpr Field kModel = {.name = "model",
                          .kind = FieldKind::kString,
                          .note = "a served name; may be left out where there is one model"};

constexpr Field kGenerate[] = {kInputs, kParametersField, kModel};
constexpr Field kStream[] = {
    {.name = "stream", .kind = FieldKind::kBool, .note = "", .fallback = "false"}};
constexpr Field kChatTokenize[] = {
    kModel,
    {.name = "messages",
     .kind = FieldKind::kArray,
     .note = "the conversation",
     .use = FieldUse::kRequired},
};

// One answer, or several where the whole is an array.
constexpr RouteDoc Doc(RouteDoc doc, std::string_view answer_type = R"("object")") {
  doc.answer_type = answer_type;
  doc.error_schema =
      R"({"type":"object","required":["error","error_type"],"properties":{"error":{"type":"string"},"error_type":{"type":"string"}}})";
  return doc;
}

constexpr std::string_view kAnswers = R"(["object","array"])";

constexpr RouteDoc kRoutes[] = {
    Doc({"POST", "/generate", "An answer in the shape of text-generation-inference", kGenerate}),
    Doc({"POST", "/generate_stream", "The same as events, one a token", kGenerate, {}, true}),
    Doc({"POST", "/", "Either of the two", kGenerate, kStream, true}, kAnswers),
    Doc({"POST", "/chat_tokenize", "The tokens of a conversation", kChatTokenize}, kAnswers),
    Doc({"GET", "/info", "The model and the limits"}),
};

}  // namespace

std::span<const Field> GenerateFields() { return kGenerate; }
std::span<const RouteDoc> RouteDocs() { return kRoutes; }

}  // namespace staffel::api::tgi
