#include "server/api/output_grammar.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/strings.h"

namespace staffel::api {
namespace {

using grammar::GrammarSpec;

class WishReader {
 public:
  explicit WishReader(FieldReader& reader) : reader_(reader) {}

  std::optional<OutputWish> Read() {
    ReadResponseFormat();
    if (const Json* outputs = reader_.Object("structured_outputs")) {
      ReadField(*outputs, "structured_outputs.", "json", GrammarSpec::Kind::kJsonSchema);
      ReadField(*outputs, "structured_outputs.", "regex", GrammarSpec::Kind::kRegex);
      ReadField(*outputs, "structured_outputs.", "choice", GrammarSpec::Kind::kChoice);
      ReadField(*outputs, "structured_outputs.", "grammar", GrammarSpec::Kind::kGrammar);
      ReadField(*outputs, "structured_outputs.", "json_object", GrammarSpec::Kind::kJsonObject);
      const auto structural = outputs->find("structural_tag");
      if (structural != outputs->end() && !structural->is_null()) {
        reader_.Fail("structured_outputs",
                     "'structured_outputs.structural_tag' is not supported by this version");
      }
    }
    const Json& body = reader_.object();
    ReadField(body, "", "guided_json", GrammarSpec::Kind::kJsonSchema);
    ReadField(body, "", "guided_regex", GrammarSpec::Kind::kRegex);
    ReadField(body, "", "guided_choice", GrammarSpec::Kind::kChoice);
    ReadField(body, "", "guided_grammar", GrammarSpec::Kind::kGrammar);
    ReadField(body, "", "grammar", GrammarSpec::Kind::kGrammar);
    ReadField(body, "", "json_schema", GrammarSpec::Kind::kJsonSchema);
    return std::move(wish_);
  }

 private:
  void Set(GrammarSpec spec, std::string field) {
    if (wish_) {
      return reader_.Fail(field, StrCat("'", wish_->field, "' and '", field,
                                        "' both say what the answer must be; send one of them"));
    }
    wish_ = OutputWish{std::move(spec), std::move(field)};
  }

  void ReadResponseFormat() {
    const Json* format = reader_.Object("response_format");
    if (format == nullptr) return;
    const auto type_field = format->find("type");
    const std::string type = type_field != format->end() && type_field->is_string()
                                 ? type_field->get<std::string>()
                                 : "";
    if (type == "text") return;
    // text-generation-inference's spelling, which its clients send in the place of OpenAI's.
    if (type == "json" || type == "regex" || (type == "json_object" && format->contains("value"))) {
      if (!format->contains("value"))
        return reader_.Fail("response_format", "'response_format.value' is missing");
      return ReadField(
          *format, "response_format.", "value",
          type == "regex" ? GrammarSpec::Kind::kRegex : GrammarSpec::Kind::kJsonSchema);
    }
    GrammarSpec spec;
    if (type == "json_object") {
      // llama-server's spelling carries a schema here, too.
      const auto schema = format->find("schema");
      if (schema != format->end() && !schema->is_null()) {
        spec.kind = GrammarSpec::Kind::kJsonSchema;
        spec.source = schema->dump();
      }
      return Set(std::move(spec), "response_format");
    }
    if (type != "json_schema") {
      return reader_.Fail("response_format",
                          "'response_format.type' must be 'text', 'json_object' or 'json_schema'");
    }
    const auto named = format->find("json_schema");
    const Json* schema = nullptr;
    if (named != format->end() && named->is_object()) {
      const auto found = named->find("schema");
      if (found != named->end() && !found->is_null()) schema = &*found;
    }
    if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) {
      return reader_.Fail("response_format",
                          "'response_format.json_schema.schema' must be a JSON Schema");
    }
    spec.kind = GrammarSpec::Kind::kJsonSchema;
    spec.source = schema->dump();
    Set(std::move(spec), "response_format");
  }

  void ReadField(const Json& object, std::string_view path, const char* name,
                 GrammarSpec::Kind kind) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return;
    const Json& value = *found;
    const std::string field = StrCat(path, name);
    GrammarSpec spec;
    spec.kind = kind;
    switch (kind) {
      case GrammarSpec::Kind::kJsonObject:
        if (!value.is_boolean()) return Fail(field, "a boolean", value);
        if (!value.get<bool>()) return;
        break;
      case GrammarSpec::Kind::kJsonSchema:
        // vLLM takes the schema's text as well.
        if (!value.is_object() && !value.is_boolean() && !value.is_string()) {
          return Fail(field, "a JSON Schema", value);
        }
        spec.source = value.is_string() ? value.get<std::string>() : value.dump();
        break;
      case GrammarSpec::Kind::kChoice:
        if (!value.is_array() || value.empty()) return Fail(field, "an array of strings", value);
        for (const Json& item : value) {
          if (!item.is_string()) return Fail(field, "an array of strings", value);
          spec.choices.push_back(item.get<std::string>());
        }
        break;
      default:
        if (!value.is_string()) return Fail(field, "a string", value);
        spec.source = value.get<std::string>();
        // An empty grammar says nothing (llama-server's default).
        if (spec.source.empty() && kind == GrammarSpec::Kind::kGrammar) return;
    }
    Set(std::move(spec), field);
  }

  void Fail(const std::string& field, std::string_view wanted, const Json& value) {
    reader_.Fail(field, StrCat("'", field, "' must be ", wanted, ", it is ", TypeName(value)));
  }

  FieldReader& reader_;
  std::optional<OutputWish> wish_;
};

}  // namespace

std::optional<ApiError> SetGrammar(GrammarSpec spec, grammar::Grammars* grammars,
                                   const std::string& field, GenerationOptions& options) {
  const Status status = grammars == nullptr
                            ? absl::UnimplementedError("this server has no structured output")
                            : grammars->Check(spec);
  if (!status.ok()) {
    const std::string_view message(status.message().data(), status.message().size());
    return Invalid(field, StrCat("'", field, "': ", message));
  }
  if (spec.kind != GrammarSpec::Kind::kText) options.ignore_eos = false;
  options.sampling.grammar = std::make_shared<const GrammarSpec>(std::move(spec));
  return std::nullopt;
}

std::optional<OutputWish> ReadOutputWish(FieldReader& reader) { return WishReader(reader).Read(); }

}  // namespace staffel::api
