#include "server/ollama/fields.h"

#include <cstdint>

#include "server/api/embedding_request.h"
#include "server/api/generation_options.h"

namespace staffel::api::ollama {
namespace {

constexpr Field kOptions[] = {
    {.name = "num_predict",
     .kind = FieldKind::kInt,
     .note = "tokens of an answer; 0 or less: as many as the context holds",
     .fallback = "-1",
     .min = INT32_MIN,
     .max = INT32_MAX},
    {.name = "temperature",
     .kind = FieldKind::kNumber,
     .note = "0: greedy",
     .fallback = "0.8",
     .min = 0,
     .max = 2},
    {.name = "top_k",
     .kind = FieldKind::kInt,
     .note = "-1 or 0: off",
     .fallback = "40",
     .min = -1,
     .max = INT32_MAX},
    {.name = "top_p",
     .kind = FieldKind::kNumber,
     .note = "",
     .fallback = "0.9",
     .min = 0,
     .max = 1},
    {.name = "min_p",
     .kind = FieldKind::kNumber,
     .note = "",
     .fallback = "0.0",
     .min = 0,
     .max = 1},
    {.name = "seed", .kind = FieldKind::kInt, .note = "-1: random", .fallback = "-1"},
    {.name = "stop",
     .kind = FieldKind::kMixed,
     .note = "strings that end the answer",
     .schema =
         R"({"anyOf":[{"type":"string","minLength":1},{"type":"array","items":{"type":"string","minLength":1},"maxItems":16}]})"},
    {.name = "repeat_penalty",
     .kind = FieldKind::kNumber,
     .note = "over prompt and generated tokens",
     .fallback = "1.0",
     .min = 0.01,
     .max = 100},
    {.name = "repeat_last_n",
     .kind = FieldKind::kInt,
     .note = "0: no penalties; otherwise they count all tokens",
     .fallback = "64",
     .min = -1,
     .max = INT32_MAX},
    {.name = "presence_penalty",
     .kind = FieldKind::kNumber,
     .note = "over generated tokens",
     .fallback = "0.0",
     .min = -2,
     .max = 2},
    {.name = "frequency_penalty",
     .kind = FieldKind::kNumber,
     .note = "over generated tokens",
     .fallback = "0.0",
     .min = -2,
     .max = 2},
    {.name = "typical_p",
     .kind = FieldKind::kMixed,
     .note = "",
     .fallback = "1.0",
     .use = FieldUse::kNeutral},
    {.name = "mirostat",
     .kind = FieldKind::kMixed,
     .note = "",
     .fallback = "0",
     .use = FieldUse::kNeutral},
    {.name = "tfs_z",
     .kind = FieldKind::kMixed,
     .note = "",
     .fallback = "1.0",
     .use = FieldUse::kNeutral},
    {.name = "num_ctx", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "num_batch", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "num_gpu", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "main_gpu", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "num_thread", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "num_keep", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "num_gqa", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "low_vram", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "f16_kv", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "logits_all", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "vocab_only", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "use_mmap", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "use_mlock", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "numa", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "embedding_only", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "rope_frequency_base",
     .kind = FieldKind::kMixed,
     .note = "",
     .use = FieldUse::kIgnored},
    {.name = "rope_frequency_scale",
     .kind = FieldKind::kMixed,
     .note = "",
     .use = FieldUse::kIgnored},
    {.name = "mirostat_tau", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "mirostat_eta", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "penalize_newline", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
    {.name = "draft_num_predict", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
};

constexpr Field kShared[] = {
    {.name = "model",
     .kind = FieldKind::kString,
     .note = "a served name, with or without :latest; may be left out where there is one model"},
    {.name = "stream", .kind = FieldKind::kBool, .note = "lines of JSON", .fallback = "true"},
    {.name = "format",
     .kind = FieldKind::kMixed,
     .note = "json, or a JSON Schema",
     .schema = R"({"type":["string","object"]})"},
    {.name = "options",
     .kind = FieldKind::kObject,
     .note = "how tokens are drawn",
     .members = kOptions},
    {.name = "think",
     .kind = FieldKind::kMixed,
     .note = "whether the model reasons, or how much: low, medium, high",
     .schema = R"({"type":["boolean","string"]})"},
    {.name = "logprobs", .kind = FieldKind::kBool, .note = "", .fallback = "false"},
    {.name = "top_logprobs",
     .kind = FieldKind::kInt,
     .note = "only with logprobs",
     .min = 0,
     .max = kTopLogprobsMax},
    {.name = "keep_alive",
     .kind = FieldKind::kMixed,
     .note = "models stay loaded",
     .use = FieldUse::kIgnored},
    {.name = "truncate",
     .kind = FieldKind::kMixed,
     .note = "a conversation that does not fit is refused",
     .use = FieldUse::kIgnored},
    {.name = "shift",
     .kind = FieldKind::kMixed,
     .note = "an answer ends where the context is full",
     .use = FieldUse::kIgnored},
};

constexpr Field kGenerate[] = {
    {.name = "prompt",
     .kind = FieldKind::kString,
     .note = "without one the model is only looked up"},
    {.name = "suffix",
     .kind = FieldKind::kString,
     .note = "text behind the gap that the answer fills"},
    {.name = "system", .kind = FieldKind::kString, .note = "text of a system message"},
    {.name = "raw",
     .kind = FieldKind::kBool,
     .note = "the prompt is read as it is, control tokens included",
     .fallback = "false"},
    {.name = "context",
     .kind = FieldKind::kArray,
     .note = "of an earlier answer, whose conversation goes on"},
    {.name = "template",
     .kind = FieldKind::kMixed,
     .note = "",
     .fallback = "\"\"",
     .use = FieldUse::kNeutral},
    {.name = "images",
     .kind = FieldKind::kMixed,
     .note = "this model reads text",
     .use = FieldUse::kRefused},
};

constexpr Field kChat[] = {
    {.name = "messages",
     .kind = FieldKind::kArray,
     .note = "the conversation; without any the model is only looked up"},
    {.name = "tools", .kind = FieldKind::kArray, .note = "functions that the model may call"},
};

constexpr Field kEmbed[] = {
    {.name = "model",
     .kind = FieldKind::kString,
     .note = "a served name, with or without :latest; may be left out where there is one model"},
    {.name = "input",
     .kind = FieldKind::kMixed,
     .note = "a text, or texts",
     .schema = kInputSchema},
    {.name = "truncate",
     .kind = FieldKind::kBool,
     .note = "false: a text that is too long is refused, else its end is left out",
     .fallback = "true"},
    {.name = "dimensions",
     .kind = FieldKind::kInt,
     .note = "the first so many values; 0: all",
     .fallback = "0",
     .min = 0},
    {.name = "options",
     .kind = FieldKind::kMixed,
     .note = "nothing is drawn",
     .use = FieldUse::kIgnored},
    {.name = "keep_alive",
     .kind = FieldKind::kMixed,
     .note = "models stay loaded",
     .use = FieldUse::kIgnored},
};

constexpr Field kEmbeddings[] = {
    {.name = "model", .kind = FieldKind::kString, .note = "as for /api/embed"},
    {.name = "prompt", .kind = FieldKind::kString, .note = "the text"},
    {.name = "options",
     .kind = FieldKind::kMixed,
     .note = "nothing is drawn",
     .use = FieldUse::kIgnored},
    {.name = "keep_alive",
     .kind = FieldKind::kMixed,
     .note = "models stay loaded",
     .use = FieldUse::kIgnored},
};

constexpr Field kShow[] = {
    {.name = "model", .kind = FieldKind::kString, .note = "a served name"},
    {.name = "name", .kind = FieldKind::kString, .note = "the earlier name of model"},
    {.name = "verbose",
     .kind = FieldKind::kBool,
     .note = "lists of the file are left out in any case",
     .fallback = "false"},
};

constexpr Field kPull[] = {
    {.name = "model", .kind = FieldKind::kString, .note = "a served name"},
    {.name = "name", .kind = FieldKind::kString, .note = "the earlier name of model"},
    {.name = "stream", .kind = FieldKind::kBool, .note = "", .fallback = "true"},
    {.name = "insecure", .kind = FieldKind::kMixed, .note = "", .use = FieldUse::kIgnored},
};

constexpr RouteDoc Doc(RouteDoc doc) {
  doc.stream_type = "application/x-ndjson";
  doc.error_schema =
      R"({"type":"object","required":["error"],"properties":{"error":{"type":"string"}}})";
  return doc;
}

constexpr RouteDoc kRoutes[] = {
    Doc({"POST", "/api/chat", "Ollama: an answer to a conversation", kChat, kShared, true}),
    Doc({"POST", "/api/generate", "Ollama: an answer to a prompt", kGenerate, kShared, true}),
    Doc({"POST", "/api/embed", "Ollama: vectors of texts", kEmbed}),
    Doc({"POST", "/api/embeddings", "Ollama: the vector of a text, as it was asked for earlier",
         kEmbeddings}),
    Doc({"POST", "/api/show", "Ollama: what a model is", kShow}),
    Doc({"POST", "/api/pull", "Ollama: success for a model that is served", kPull, {}, true}),
    Doc({"GET", "/api/tags", "Ollama: the served models"}),
    Doc({"GET", "/api/ps", "Ollama: the served models, all of which are loaded"}),
    Doc({"GET", "/api/version", "Ollama: the version of its API"}),
};

}  // namespace

std::span<const Field> OptionFields() { return kOptions; }
std::span<const Field> SharedFields() { return kShared; }
std::span<const Field> GenerateFields() { return kGenerate; }
std::span<const Field> ChatFields() { return kChat; }
std::span<const Field> EmbedFields() { return kEmbed; }
std::span<const Field> EmbeddingsFields() { return kEmbeddings; }
std::span<const Field> ShowFields() { return kShow; }
std::span<const Field> PullFields() { return kPull; }
std::span<const RouteDoc> RouteDocs() { return kRoutes; }

}  // namespace staffel::api::ollama
