#include "server/tgi/request.h"

#include <string>
#include <utility>

#include "base/strings.h"
#include "server/api/fields.h"
#include "server/api/generation_request.h"
#include "server/tgi/fields.h"

namespace staffel::api::tgi {
namespace {

constexpr int kMaxTokensDefault = 100;

// Members of "parameters" that only have another name.
constexpr ClientName kCopied[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"repetition_penalty", "repetition_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"max_tokens", "max_new_tokens"},
    {"truncate_prompt_tokens", "truncate"},
};

// What a client calls the fields that the core may find wrong.
constexpr ClientName kNames[] = {
    {"stop", "parameters.stop"},
    {"prompt", "inputs"},
    {"structured_outputs.json", "parameters.grammar"},
    {"structured_outputs.regex", "parameters.grammar"},
    {"structured_outputs", "parameters.grammar"},
};

// Without a field that shapes sampling the best token is taken.
bool Samples(FieldReader& parameters) {
  return parameters.Bool("do_sample").value_or(false) || parameters.Get("temperature") != nullptr ||
         parameters.Get("top_k") != nullptr || parameters.Get("top_p") != nullptr ||
         parameters.Get("typical_p") != nullptr;
}

void ReadGrammar(FieldReader& parameters, Json& fields) {
  const Json* grammar = parameters.Object("grammar");
  if (grammar == nullptr) return;
  FieldReader members(*grammar);
  const std::string type = members.String("type").value_or("");
  const Json* value = members.Get("value");
  // json_schema has a name beside its schema.
  if (type == "json_schema" && value != nullptr) {
    const auto schema = value->is_object() ? value->find("schema") : value->end();
    if (schema == value->end()) {
      return parameters.Fail("grammar",
                             "'parameters.grammar.value' must be an object with a 'schema'");
    }
    value = &*schema;
  }
  if (type != "json" && type != "regex" && type != "json_schema")
    return parameters.Fail("grammar",
                           "'parameters.grammar.type' must be 'json', 'regex' or 'json_schema'");
  if (value == nullptr) return parameters.Fail("grammar", "'parameters.grammar.value' is missing");
  fields["structured_outputs"][type == "regex" ? "regex" : "json"] = *value;
}

void ReadBestOf(FieldReader& parameters, bool samples, bool stream, Asked& asked) {
  const int best_of = static_cast<int>(parameters.Int("best_of", 1, kChoicesMax).value_or(1));
  if (best_of == 1) return;
  if (stream) {
    return parameters.Fail(
        "best_of",
        "'parameters.best_of' above 1 cannot be streamed: which answer is best is known "
        "at their end");
  }
  if (!samples) {
    return parameters.Fail(
        "best_of",
        "'parameters.best_of' above 1 needs sampling, or all answers are the same; send "
        "'parameters.do_sample'");
  }
  // All are kept: details show the others, too.
  asked.spec.options.n = asked.spec.best_of = best_of;
}

}  // namespace

Checked<Asked> ReadGenerate(std::shared_ptr<const ServedModel> model, const Json& body,
                            bool stream) {
  FieldReader reader(body);
  CheckFields(reader, GenerateFields());
  const auto inputs = reader.String("inputs");
  if (!inputs) reader.Fail("inputs", "'inputs' is missing; send the prompt as a string");
  const Json none = Json::object();
  const Json* object = reader.Object("parameters");
  if (!reader.ok()) return *reader.error();

  FieldReader parameters(object != nullptr ? *object : none, "parameters.");
  Json fields = {{"prompt", *inputs},
                 {"max_tokens", kMaxTokensDefault},
                 {"stream", stream},
                 {"include_stop_str_in_output", true}};
  CopyFields(parameters.object(), kCopied, fields);
  const bool samples = Samples(parameters);
  if (!samples) fields["temperature"] = 0;
  ReadGrammar(parameters, fields);

  AnswerOptions answer;
  answer.stream = stream;
  answer.details = parameters.Bool("details").value_or(false);
  answer.top_tokens =
      static_cast<int>(parameters.Int("top_n_tokens", 0, kTopLogprobsMax).value_or(0));
  if (stream || answer.details) fields["logprobs"] = answer.top_tokens;
  const bool prefill = parameters.Bool("decoder_input_details").value_or(false);
  if (prefill && stream) {
    parameters.Fail("decoder_input_details",
                    "'parameters.decoder_input_details' cannot be streamed");
  }
  if (parameters.Bool("return_full_text").value_or(false)) answer.full_text_prefix = *inputs;
  if (!parameters.ok()) return *parameters.error();

  FieldReader mapped(fields);
  Checked<GenerationSpec> spec = ReadCompletion(std::move(model), mapped);
  if (auto* error = std::get_if<ApiError>(&spec)) return WithClientNames(std::move(*error), kNames);
  Asked asked{std::get<GenerationSpec>(std::move(spec)), std::move(answer)};
  ReadBestOf(parameters, samples, stream, asked);
  if (!parameters.ok()) return *parameters.error();
  if (prefill && asked.answer.details) asked.spec.prompt_logprobs = 0;
  if (asked.spec.options.sampling.temperature > 0)
    asked.answer.seed = asked.spec.options.sampling.seed;
  asked.answer.tokenizer = asked.spec.model->tokenizer;
  return asked;
}

}  // namespace staffel::api::tgi
