#include "server/api/generation_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "base/strings.h"

namespace staffel::api {
namespace {

uint64_t RandomSeed() {
  thread_local std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// Any f32 that is finite; the wire's doubles beyond it would become infinite.
constexpr double kFloatMax = 3.4e38;

void ReadSampling(FieldReader& reader, SamplingParams& sampling) {
  sampling.temperature = static_cast<float>(reader.Number("temperature", 0.0, 2.0).value_or(1.0));
  double top_p = reader.Number("top_p", 0.0, 1.0).value_or(1.0);
  // The nucleus always holds the best token, so 0 means just that one.
  sampling.top_p = top_p > 0 ? static_cast<float>(top_p) : 1e-9f;
  int64_t top_k = reader.Int("top_k", -1, INT32_MAX).value_or(0);
  sampling.top_k = top_k < 0 ? 0 : static_cast<int>(top_k);
  sampling.min_p = static_cast<float>(reader.Number("min_p", 0.0, 1.0).value_or(0.0));
  sampling.presence_penalty =
      static_cast<float>(reader.Number("presence_penalty", -2.0, 2.0).value_or(0.0));
  sampling.frequency_penalty =
      static_cast<float>(reader.Number("frequency_penalty", -2.0, 2.0).value_or(0.0));
  double repetition = reader.Number("repetition_penalty", 0.0, kFloatMax).value_or(1.0);
  if (repetition < 0.01 || repetition > 100.0) {
    reader.Fail("repetition_penalty", "'repetition_penalty' must be between 0.01 and 100");
  }
  sampling.repetition_penalty = static_cast<float>(repetition);
  std::optional<int64_t> seed = reader.Int("seed", INT64_MIN, INT64_MAX);
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : RandomSeed();
}

void ReadLogitBias(FieldReader& reader, int vocab_size, std::vector<LogitBias>& out) {
  const Json* object = reader.Object("logit_bias");
  if (object == nullptr) return;
  out.reserve(object->size());
  for (const auto& [key, value] : object->items()) {
    TokenId token = 0;
    const char* end = key.data() + key.size();
    auto parsed = std::from_chars(key.data(), end, token);
    if (key.empty() || key[0] == '-' || parsed.ec != std::errc() || parsed.ptr != end ||
        token >= vocab_size) {
      return reader.Fail(
          "logit_bias",
          StrCat("'logit_bias' must have token ids as keys, integers from 0 to ", vocab_size - 1,
                 " in decimal; '", key.substr(0, 40), "' is not one"));
    }
    if (!value.is_number()) {
      return reader.Fail("logit_bias", StrCat("'logit_bias' must have numbers as values; that of ",
                                              key, " is ", TypeName(value)));
    }
    double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) {
      return reader.Fail("logit_bias",
                         StrCat("'logit_bias' values must be between -100 and 100; that of ", key,
                                " is ", value.dump()));
    }
    out.push_back({token, static_cast<float>(bias)});
  }
}

void AddStop(FieldReader& reader, const Json& value, std::vector<std::string>& out) {
  if (!value.is_string()) {
    return reader.Fail("stop", StrCat("'stop' must be a string or an array of strings, it holds ",
                                      TypeName(value)));
  }
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty())
    return reader.Fail("stop",
                       "'stop' holds an empty string, which would match everywhere; leave it out");
  if (text.size() > kStopBytesMax)
    return reader.Fail("stop", StrCat("a stop string may have at most ", kStopBytesMax, " bytes"));
  out.push_back(text);
}

void ReadStops(FieldReader& reader, std::vector<std::string>& out) {
  const Json* value = reader.Get("stop");
  if (value == nullptr) return;
  if (!value->is_array()) return AddStop(reader, *value, out);
  if (value->size() > kStopsMax)
    return reader.Fail("stop", StrCat("'stop' may hold at most ", kStopsMax, " strings"));
  for (const Json& item : *value) AddStop(reader, item, out);
}

void ReadStream(FieldReader& reader, GenerationOptions& options) {
  options.stream = reader.Bool("stream").value_or(false);
  const Json* stream_options = reader.Object("stream_options");
  if (stream_options == nullptr) return;
  if (!options.stream)
    return reader.Fail("stream_options", "'stream_options' is only allowed when 'stream' is true");
  FieldReader fields(*stream_options, "stream_options.");
  options.include_usage = fields.Bool("include_usage").value_or(false);
  if (!fields.ok()) reader.Fail("stream_options.include_usage", fields.error()->message);
}

// Words as tokens, with and without a space in front, since a word within a text mostly has one.
void ReadBadWords(FieldReader& reader, const Tokenizer& tokenizer, SamplingParams& sampling) {
  const Json* words = reader.Array("bad_words");
  if (words == nullptr) return;
  if (words->size() > kBadWordsMax)
    return reader.Fail("bad_words",
                       StrCat("'bad_words' may hold at most ", kBadWordsMax, " words"));
  for (const Json& word : *words) {
    if (!word.is_string() || word.get_ref<const std::string&>().empty() ||
        word.get_ref<const std::string&>().size() > kStopBytesMax) {
      return reader.Fail("bad_words",
                         StrCat("'bad_words' must hold strings of 1 to ", kStopBytesMax, " bytes"));
    }
    const std::string& text = word.get_ref<const std::string&>();
    for (const std::string& form : {text, StrCat(" ", text)}) {
      if (form[0] == ' ' && text[0] == ' ' && form.size() > text.size()) continue;
      std::vector<TokenId> tokens = tokenizer.Encode(form, /*parse_special=*/true,
                                                     /*add_bos=*/false);
      auto& banned = sampling.banned_sequences;
      if (!tokens.empty() && std::find(banned.begin(), banned.end(), tokens) == banned.end())
        banned.push_back(std::move(tokens));
    }
  }
}

void ReadAllowedTokens(FieldReader& reader, int vocab_size, SamplingParams& sampling) {
  const auto ids = reader.IntArray("allowed_token_ids", 0, vocab_size - 1);
  if (!ids) return;
  if (ids->empty())
    return reader.Fail("allowed_token_ids", "'allowed_token_ids' must hold one token at least");
  std::vector<TokenId>& allowed = sampling.allowed_tokens;
  allowed.assign(ids->begin(), ids->end());
  std::sort(allowed.begin(), allowed.end());
  allowed.erase(std::unique(allowed.begin(), allowed.end()), allowed.end());
}

void ReadPromptFields(FieldReader& reader, GenerationOptions& options) {
  if (auto top = reader.Int("prompt_logprobs", 0, kTopLogprobsMax)) {
    options.prompt_logprobs = static_cast<int>(*top);
    if (options.stream)
      reader.Fail("prompt_logprobs", "'prompt_logprobs' is not available when 'stream' is true");
  }
  options.prompt_tokens_max = ReadPromptTokensMax(reader);
  options.add_special_tokens = reader.Bool("add_special_tokens").value_or(true);
}

void RefuseUnsupported(FieldReader& reader) {
  const Json* beams = reader.Get("use_beam_search");
  if (beams == nullptr || (beams->is_boolean() && !beams->get<bool>())) return;
  reader.Fail("use_beam_search",
              "'use_beam_search' is not supported; use 'n' or 'best_of' with a temperature");
}

}  // namespace

std::optional<int> ReadPromptTokensMax(FieldReader& reader) {
  const auto count = reader.Int("truncate_prompt_tokens", -1, INT32_MAX);
  if (!count) return std::nullopt;
  if (*count == 0)
    reader.Fail("truncate_prompt_tokens", "'truncate_prompt_tokens' must be -1, or 1 at least");
  return static_cast<int>(*count);
}

std::string ReadCacheSalt(FieldReader& reader) {
  std::string salt = reader.String("cache_salt").value_or("");
  if (salt.size() > 256) reader.Fail("cache_salt", "'cache_salt' may have at most 256 bytes");
  return salt;
}

GenerationOptions ReadGenerationOptions(FieldReader& reader, const Tokenizer& tokenizer) {
  GenerationOptions options;
  ReadSampling(reader, options.sampling);
  ReadLogitBias(reader, tokenizer.vocab_size(), options.sampling.logit_bias);
  ReadStops(reader, options.stop);
  ReadStream(reader, options);
  ReadBadWords(reader, tokenizer, options.sampling);
  ReadAllowedTokens(reader, tokenizer.vocab_size(), options.sampling);
  ReadPromptFields(reader, options);
  RefuseUnsupported(reader);
  options.n = static_cast<int>(reader.Int("n", 1, kChoicesMax).value_or(1));
  options.min_tokens = static_cast<int>(reader.Int("min_tokens", 0, INT32_MAX).value_or(0));
  if (auto ids = reader.IntArray("stop_token_ids", 0, tokenizer.vocab_size() - 1)) {
    options.stop_token_ids.assign(ids->begin(), ids->end());
  }
  // A control token prints as nothing, so a stop string that names one can only be found as a
  // token.
  for (const std::string& stop : options.stop) {
    std::vector<TokenId> tokens = tokenizer.Encode(stop, /*parse_special=*/true, /*add_bos=*/false);
    if (tokens.size() == 1 && tokenizer.IsControl(tokens[0]))
      options.stop_token_ids.push_back(tokens[0]);
  }
  options.ignore_eos = reader.Bool("ignore_eos").value_or(false);
  options.include_stop_text = reader.Bool("include_stop_str_in_output").value_or(false);
  options.skip_special_tokens = reader.Bool("skip_special_tokens").value_or(true);
  options.return_token_ids = reader.Bool("return_token_ids").value_or(false);
  options.return_tokens_as_token_ids = reader.Bool("return_tokens_as_token_ids").value_or(false);
  options.timings_per_token = reader.Bool("timings_per_token").value_or(false);
  if (const Json* priority = reader.Get("priority"); priority != nullptr) {
    options.priority = static_cast<int>(reader.Int("priority", INT32_MIN, INT32_MAX).value_or(0));
  }
  options.cache_salt = ReadCacheSalt(reader);
  reader.String("user");
  return options;
}

}  // namespace staffel::api
