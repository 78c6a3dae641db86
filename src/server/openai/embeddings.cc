#include "server/openai/embeddings.h"

#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "base/strings.h"
#include "server/api/embedding_request.h"
#include "server/api/json_text.h"
#include "server/api/prompts.h"
#include "server/openai/fields.h"

namespace staffel::api::openai {
namespace {

// True: vectors as the base64 text (RFC 4648, section 4) of little-endian 32-bit floats.
bool ReadEncoding(FieldReader& reader) {
  const std::string format = reader.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    reader.Fail("encoding_format", "'encoding_format' must be \"float\" or \"base64\"");
  return format == "base64";
}

void AppendBase64(std::string& out, absl::Span<const float> values) {
  static_assert(std::endian::native == std::endian::little);
  out += '"';
  out += absl::Base64Escape({reinterpret_cast<const char*>(values.data()), values.size() * 4});
  out += '"';
}

std::string Answer(const api::Embeddings& embeddings, const std::string& model, bool base64) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < embeddings.vectors.size(); i++) {
    StrAppend(out, i > 0 ? "," : "", R"({"object":"embedding","index":)", i, R"(,"embedding":)");
    base64 ? AppendBase64(out, embeddings.vectors[i]) : AppendVector(out, embeddings.vectors[i]);
    out += '}';
  }
  out += R"(],"model":)";
  AppendJsonString(out, model);
  const int64_t tokens = embeddings.usage.prompt_tokens;
  StrAppend(out, R"(,"usage":{"prompt_tokens":)", tokens, R"(,"total_tokens":)", tokens, "}}");
  return out;
}

}  // namespace

void Embeddings(Call call) {
  Checked<ModelRequest> asked = ReadModelRequest(call.models, call.request.body);
  if (auto* error = std::get_if<ApiError>(&asked)) return SendError(*call.writer, *error);
  auto& [body, model] = std::get<ModelRequest>(asked);
  FieldReader reader(body);
  CheckFields(reader, EmbeddingFields());
  const bool base64 = ReadEncoding(reader);
  std::string name = model->names[0];
  Checked<EmbeddingSpec> read = ReadEmbedding(std::move(model), reader);
  if (auto* error = std::get_if<ApiError>(&read)) return SendError(*call.writer, *error);
  AnswerEmbedding(
      std::move(call), std::get<EmbeddingSpec>(std::move(read)),
      [name = std::move(name), base64](const api::Embeddings& embeddings) {
        return Answer(embeddings, name, base64);
      },
      ErrorBody);
}

}  // namespace staffel::api::openai
