#include "server/llama/request.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "server/api/embedding_request.h"
#include "server/api/generation_request.h"
#include "server/llama/fields.h"
#include "text/fill_in_middle.h"

namespace staffel::api::llama {
namespace {

constexpr ClientName kNames[] = {
    {"model", "model"},
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"repetition_penalty", "repeat_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"stop", "stop"},
    {"ignore_eos", "ignore_eos"},
    {"grammar", "grammar"},
    {"json_schema", "json_schema"},
    {"stream", "stream"},
    {"n", "n"},
    {"n", "n_cmpl"},
    {"priority", "priority"},
    {"cache_salt", "cache_salt"},
    {"timings_per_token", "timings_per_token"},
};
// Names of errors that copied fields do not have.
constexpr ClientName kErrorNames[] = {
    {"repetition_penalty", "repeat_penalty"}, {"logprobs", "n_probs"}, {"n", "n_cmpl"}};

void AppendTokens(const Tokenizer& tokenizer, const Json& mixed, Json& out) {
  for (const Json& part : mixed) {
    if (!part.is_string()) {
      out.push_back(part);
      continue;
    }
    for (const TokenId id : tokenizer.Encode(part.get_ref<const std::string&>(),
                                             /*parse_special=*/true, /*add_bos=*/out.empty()))
      out.push_back(id);
  }
}

// Token ids and texts in one array are one prompt.
bool IsMixed(const Json& value) {
  if (!value.is_array()) return false;
  const auto is = [&](bool (Json::*kind)() const noexcept) {
    return std::any_of(value.begin(), value.end(),
                       [&](const Json& part) { return (part.*kind)(); });
  };
  return is(&Json::is_string) && is(&Json::is_number);
}

// One prompt in a form that the core reads: mixed arrays as token ids, objects as their text.
Json ReadPrompt(const Tokenizer& tokenizer, FieldReader& reader, const Json& prompt) {
  if (IsMixed(prompt)) {
    Json tokens = Json::array();
    AppendTokens(tokenizer, prompt, tokens);
    return tokens;
  }
  if (!prompt.is_object()) return prompt;
  const auto text = prompt.find("prompt_string");
  const auto media = prompt.find("multimodal_data");
  if (text == prompt.end() || !text->is_string()) {
    reader.Fail("prompt", "'prompt' holds an object without a text 'prompt_string'");
  } else if (media != prompt.end() && !media->empty()) {
    reader.Fail("prompt", "'prompt.multimodal_data' is not supported: this model reads text");
  } else {
    return *text;
  }
  return Json();
}

void ReadPrompts(const Tokenizer& tokenizer, FieldReader& reader, Json& fields) {
  const Json* given = reader.Get("prompt");
  if (given == nullptr) return;
  const bool several =
      given->is_array() && !IsMixed(*given) &&
      std::any_of(given->begin(), given->end(), [](const Json& part) { return !part.is_number(); });
  if (!several) {
    fields["prompt"] = ReadPrompt(tokenizer, reader, *given);
    return;
  }
  Json& prompts = fields["prompt"] = Json::array();
  for (const Json& each : *given) prompts.push_back(ReadPrompt(tokenizer, reader, each));
}

// [[id or text, bias or false], ...] or an object becomes an object by token id; what has false is
// never drawn.
void ReadLogitBias(const Tokenizer& tokenizer, FieldReader& reader, Json& fields,
                   std::vector<TokenId>& banned) {
  const Json* value = reader.Get("logit_bias");
  if (value == nullptr) return;
  Json& out = fields["logit_bias"] = Json::object();
  const auto add = [&](const std::string& id, const Json& bias) {
    if (bias != false) {
      out[id] = bias;
      return;
    }
    const int64_t token = std::atoll(id.c_str());
    if (token >= tokenizer.vocab_size()) {
      out[id] = 0;  // the core says what is wrong with it
    } else {
      banned.push_back(static_cast<TokenId>(token));
    }
  };
  const auto add_text = [&](const std::string& text, const Json& bias) {
    for (const TokenId id : tokenizer.Encode(text, /*parse_special=*/true, /*add_bos=*/false))
      add(StrCat(id), bias);
  };
  const auto is_id = [](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (value->is_object()) {
    for (const auto& [token, bias] : value->items())
      is_id(token) ? add(token, bias) : add_text(token, bias);
    return;
  }
  const char* const kWrong = "'logit_bias' must hold pairs of a token (id or text) and a bias";
  if (!value->is_array()) return reader.Fail("logit_bias", kWrong);
  for (const Json& pair : *value) {
    if (!pair.is_array() || pair.size() != 2 ||
        !(pair[0].is_string() || pair[0].is_number_unsigned()))
      return reader.Fail("logit_bias", kWrong);
    pair[0].is_string() ? add_text(pair[0].get<std::string>(), pair[1])
                        : add(pair[0].dump(), pair[1]);
  }
}

// A sampler that is not named is off. Theirs that we do not have need parameters to do anything,
// and those are refused.
void ReadSamplers(FieldReader& reader, Json& fields) {
  const Json* samplers = reader.Array("samplers");
  if (samplers == nullptr) return;
  static constexpr const char* kOthers[] = {"dry",         "typ_p",  "typical_p", "xtc",
                                            "top_n_sigma", "infill", "adaptive_p"};
  struct Ours {
    const char* name;
    std::vector<std::pair<const char*, double>> off;
  };
  static const std::vector<Ours> kOurs = {
      {"penalties", {{"repetition_penalty", 1}, {"presence_penalty", 0}, {"frequency_penalty", 0}}},
      {"temperature", {{"temperature", 1}}},
      {"top_k", {{"top_k", 0}}},
      {"top_p", {{"top_p", 1}}},
      {"min_p", {{"min_p", 0}}}};
  const auto names = [&](const char* name) {
    return std::find(samplers->begin(), samplers->end(), name) != samplers->end();
  };
  for (const Json& sampler : *samplers) {
    const auto is = [&](const char* name) { return sampler == name; };
    if (std::none_of(std::begin(kOthers), std::end(kOthers), is) &&
        std::none_of(kOurs.begin(), kOurs.end(), [&](const Ours& ours) { return is(ours.name); }))
      return reader.Fail("samplers", StrCat("'samplers' names ", sampler.dump().substr(0, 40),
                                            ", which is no sampler"));
  }
  for (const Ours& ours : kOurs) {
    if (names(ours.name)) continue;
    for (const auto& [field, value] : ours.off) {
      if (field == std::string_view("top_k")) {
        fields[field] = 0;
      } else {
        fields[field] = value;
      }
    }
  }
}

std::vector<std::string> ReadResponseFields(FieldReader& reader) {
  std::vector<std::string> paths;
  const Json* given = reader.Array("response_fields");
  if (given == nullptr) return paths;
  for (const Json& path : *given) {
    if (!path.is_string()) {
      reader.Fail("response_fields", "'response_fields' must hold strings");
      return paths;
    }
    paths.push_back(path.get<std::string>());
  }
  return paths;
}

// What all completions have, but prompts.
void ReadSampling(FieldReader& reader, Json& fields) {
  CopyFields(reader.object(), kNames, fields);
  // Below 0 is greedy as well.
  if (reader.Number("temperature", -1e30, 2).value_or(0) < 0) fields["temperature"] = 0.0;
  if (reader.Int("repeat_last_n", -1, INT32_MAX) == 0) {
    for (const char* penalty : {"presence_penalty", "frequency_penalty"}) fields[penalty] = 0.0;
    fields["repetition_penalty"] = 1.0;
  }
  ReadSamplers(reader, fields);
  const int64_t probabilities = reader.Int("n_probs", 0, kTopLogprobsMax).value_or(0);
  if (probabilities > 0) fields["logprobs"] = probabilities;
  const std::optional<int64_t> seed = reader.Int("seed", -1, UINT32_MAX);
  if (seed && *seed != -1 && *seed != UINT32_MAX) fields["seed"] = *seed;  // both: random
  if (!reader.Bool("cache_prompt").value_or(true)) {
    // A salt that no other request has shares nothing.
    static std::atomic<uint64_t> count{0};
    fields["cache_salt"] = StrCat("llama.cache_prompt=false.", ++count);
  }
}

// -1 and -2: as long as the context allows.
void SetLength(FieldReader& reader, GenerationSpec& spec) {
  const auto other = reader.Int("max_tokens", -2, INT64_MAX);
  const int64_t count = reader.Int("n_predict", -2, INT64_MAX).value_or(other.value_or(-1));
  spec.max_tokens_default = spec.model->limits.max_model_len;
  if (count >= 0) spec.options.max_tokens = count;
}

// `fields` have the prompts already.
Checked<CompletionRequest> Finish(std::shared_ptr<const ServedModel> model, FieldReader& reader,
                                  Json fields) {
  ReadSampling(reader, fields);
  std::vector<TokenId> banned;
  ReadLogitBias(*model->tokenizer, reader, fields, banned);
  CompletionRequest request;
  request.answer = {
      .return_tokens = reader.Bool("return_tokens").value_or(false),
      .probabilities = fields.contains("logprobs"),
      .return_progress = reader.Bool("return_progress").value_or(false),
      .response_fields = ReadResponseFields(reader),
  };
  if (!reader.ok()) return *reader.error();
  FieldReader mapped(fields);
  Checked<GenerationSpec> spec = ReadCompletion(std::move(model), mapped);
  if (auto* error = std::get_if<ApiError>(&spec))
    return WithClientNames(std::move(*error), kErrorNames);
  request.spec = std::get<GenerationSpec>(std::move(spec));
  SetLength(reader, request.spec);
  request.spec.token_pieces = request.spec.options.stream;
  for (const TokenId token : banned)
    request.spec.options.sampling.banned_sequences.push_back({token});
  return request;
}

std::vector<FimFile> ReadExtra(FieldReader& reader) {
  std::vector<FimFile> files;
  const Json* extra = reader.Array("input_extra");
  if (extra == nullptr) return files;
  for (const Json& each : *extra) {
    const auto text = [&](const char* name) {
      const auto found = each.is_object() ? each.find(name) : each.end();
      return found != each.end() && found->is_string() ? found->get<std::string>() : "";
    };
    if (!each.is_object() || !each.contains("text")) {
      reader.Fail("input_extra", "'input_extra' must hold objects with filename and text");
      break;
    }
    files.push_back({text("filename"), text("text")});
  }
  return files;
}

}  // namespace

Json Defaults() { return {{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}}; }

Checked<CompletionRequest> ReadCompletionRequest(std::shared_ptr<const ServedModel> model,
                                                 const Json& body) {
  FieldReader reader(body);
  CheckFields(reader, PromptField());
  CheckFields(reader, CompletionFields());
  Json fields = Defaults();
  ReadPrompts(*model->tokenizer, reader, fields);
  return Finish(std::move(model), reader, std::move(fields));
}

Checked<CompletionRequest> ReadInfillRequest(std::shared_ptr<const ServedModel> model,
                                             const Json& body) {
  FieldReader reader(body);
  CheckFields(reader, InfillFields());
  CheckFields(reader, CompletionFields());
  const auto before = reader.String("input_prefix"), behind = reader.String("input_suffix");
  if (!before || !behind) {
    const char* missing = before ? "input_suffix" : "input_prefix";
    reader.Fail(missing,
                StrCat("'", missing, "' is missing; send the text there, may it be empty"));
  }
  const std::vector<FimFile> extra = ReadExtra(reader);
  const std::string begun = reader.String("prompt").value_or("");
  if (!reader.ok()) return *reader.error();

  const Tokenizer& tokenizer = *model->tokenizer;
  auto tokens = FimPrompt(tokenizer, *before, *behind);
  if (!tokens.ok()) {
    return Invalid("input_prefix",
                   StrCat("/infill cannot be served: ", std::string(tokens.status().message())));
  }
  const std::vector<TokenId> context = FimContext(tokenizer, extra);
  const bool bos = tokens->front() == tokenizer.spec().bos && tokenizer.spec().add_bos;
  tokens->insert(tokens->begin() + (bos ? 1 : 0), context.begin(), context.end());
  for (const TokenId token : tokenizer.Encode(begun, /*parse_special=*/false, /*add_bos=*/false))
    tokens->push_back(token);

  Json fields = Defaults();
  fields["prompt"] = *tokens;
  Checked<CompletionRequest> read = Finish(std::move(model), reader, std::move(fields));
  if (auto* request = std::get_if<CompletionRequest>(&read)) {
    std::vector<TokenId>& stops = request->spec.options.stop_token_ids;
    for (const TokenId end : FimEndTokens(request->spec.model->tokenizer->spec()))
      if (!request->spec.options.ignore_eos) stops.push_back(end);
  }
  return read;
}

Checked<EmbeddingSpec> ReadEmbeddingRequest(std::shared_ptr<const ServedModel> model,
                                            const Json& body) {
  FieldReader reader(body);
  CheckFields(reader, EmbeddingFields());
  const Json* content = reader.Get("content");
  if (content == nullptr) content = reader.Get("input");
  const int64_t norm = reader.Int("embd_normalize", -1, 2).value_or(2);
  if (norm == 0 || norm == 1)
    reader.Fail("embd_normalize", "'embd_normalize' must be 2 (to length 1) or -1 (as it is)");
  if (!reader.ok()) return *reader.error();
  Json fields = {{"normalize", norm == 2}};
  if (content != nullptr) fields["input"] = *content;
  FieldReader mapped(fields);
  Checked<EmbeddingSpec> spec = ReadEmbedding(std::move(model), mapped);
  if (auto* error = std::get_if<ApiError>(&spec); error != nullptr && !body.contains("input")) {
    constexpr ClientName kContent[] = {{"input", "content"}};
    return WithClientNames(std::move(*error), kContent);
  }
  return spec;
}

}  // namespace staffel::api::llama
