// `staffel inspect MODEL`: what is in a model file, without loading it.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "absl/strings/str_format.h"
#include "app/commands.h"
#include "app/option_sources.h"
#include "base/option_values.h"
#include "base/strings.h"
#include "model/config.h"
#include "modelfile/open.h"

namespace staffel {
namespace {

void Row(std::string_view name, std::string_view value) {
  std::printf("%-15s %s\n", std::string(name).c_str(), std::string(value).c_str());
}

// Text of the file for the terminal: one line, no control characters.
std::string OneLine(std::string_view text) {
  std::string out(text.substr(0, 200));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return out;
}

std::string Count(int64_t number) {
  if (number >= 1'000'000'000) return absl::StrFormat("%.2f G", static_cast<double>(number) / 1e9);
  if (number >= 1'000'000) return absl::StrFormat("%.1f M", static_cast<double>(number) / 1e6);
  return StrCat(number);
}

void PrintFile(const ModelFile& file) {
  const Metadata& metadata = file.metadata();
  Row("file", StrCat(OneLine(file.path()), ", ", HumanBytes(file.file_bytes()), ", ",
                     file.tensors().size(), " tensors, ", metadata.Keys().size(), " keys"));
  for (const char* key : {"general.name", "general.architecture", "general.license"}) {
    if (const auto text = metadata.String(key); text.ok()) {
      Row(std::string_view(key).substr(std::string_view("general.").size()), OneLine(*text));
    }
  }
}

void PrintWeights(const ModelFile& file) {
  struct Sum {
    int tensors = 0;
    int64_t bytes = 0, elements = 0;
  };
  std::map<DType, Sum> by_type;
  Sum all;
  for (const TensorView& tensor : file.tensors()) {
    for (Sum* sum : {&by_type[tensor.type], &all}) {
      sum->tensors++;
      sum->bytes += static_cast<int64_t>(tensor.bytes.size());
      sum->elements += tensor.rows * tensor.cols;
    }
  }
  Row("parameters", Count(all.elements));
  std::vector<std::pair<DType, Sum>> order(by_type.begin(), by_type.end());
  std::sort(order.begin(), order.end(),
            [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string mix;
  for (const auto& [type, sum] : order) {
    StrAppend(mix, mix.empty() ? "" : ", ", InfoOf(type).name, " ", HumanBytes(sum.bytes), " in ",
              sum.tensors);
  }
  Row("weights", StrCat(HumanBytes(all.bytes), ": ", mix));
}

void PrintShape(const ModelConfig& config) {
  const ModelShape& shape = config.shape;
  Row("layers", StrCat(shape.layers, ", hidden ", shape.hidden, ", FFN ", shape.ffn));
  const int windows = static_cast<int>(std::count_if(config.windows.begin(), config.windows.end(),
                                                     [](int window) { return window > 0; }));
  Row("attention",
      StrCat(shape.q_heads, " heads, ", shape.kv_heads, " KV heads, head size ", shape.head_dim,
             windows == 0 ? ""
                          : StrCat(", window of ",
                                   *std::max_element(config.windows.begin(), config.windows.end()),
                                   " in ", windows, " layers")));
  Row("context", StrCat(shape.context_length, " tokens"));
  Row("embeddings", config.tied_embeddings ? "tied to the vocabulary projection" : "not tied");
}

// KV is stored as 16-bit floats: keys and values of every layer and KV head.
void PrintMemory(const ModelFile& file, const ModelShape& shape) {
  const int64_t kv_bytes_per_token =
      int64_t{2} * 2 * shape.layers * shape.kv_heads * shape.head_dim;
  int64_t weight_bytes = 0;
  for (const TensorView& tensor : file.tensors()) {
    weight_bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  const int64_t context_bytes = kv_bytes_per_token * shape.context_length;
  Row("memory", StrCat("about ", HumanBytes(weight_bytes), " for weights and ",
                       HumanBytes(kv_bytes_per_token), " KV a token: ",
                       HumanBytes(weight_bytes + context_bytes), " with one full context"));
}

std::string TokenName(const TokenizerSpec& spec, TokenId id) {
  return StrCat(OneLine(spec.tokens[static_cast<size_t>(id)]), " (", id, ")");
}

void PrintTokenizer(const ModelFile& file) {
  const Result<TokenizerSpec> spec = file.ReadTokenizer();
  if (!spec.ok()) {
    Row("tokenizer", std::string(spec.status().message()));
    return;
  }
  Row("tokenizer", StrCat(OneLine(spec->model), spec->pre.empty() ? "" : " / ", OneLine(spec->pre),
                          ", ", spec->tokens.size(), " tokens, ", spec->merges.size(), " merges"));
  std::string special;
  const std::pair<const char*, TokenId> named[] = {
      {"bos", spec->bos}, {"eos", spec->eos}, {"eot", spec->eot}, {"eom", spec->eom}};
  for (const auto& [name, id] : named) {
    if (id >= 0) StrAppend(special, special.empty() ? "" : ", ", name, " ", TokenName(*spec, id));
  }
  Row("special tokens", special.empty() ? "none" : special);
  const std::optional<std::string> chat_template = file.chat_template();
  Row("chat template", chat_template ? StrCat(chat_template->size(),
                                              " bytes: ", OneLine(*chat_template).substr(0, 60))
                                     : "none");
}

void PrintTensors(const ModelFile& file) {
  std::printf("\n%-40s %-6s %12s %12s\n", "tensor", "type", "rows x cols", "bytes");
  for (const TensorView& tensor : file.tensors()) {
    std::printf("%-40s %-6s %12s %12zu\n", OneLine(tensor.name).c_str(), InfoOf(tensor.type).name,
                StrCat(tensor.rows, " x ", tensor.cols).c_str(), tensor.bytes.size());
  }
}

}  // namespace

int RunInspect(std::vector<std::string> args) {
  OptionList list;
  std::string model;
  bool tensors = false;
  list.BeginGroup("Options");
  list.Text("model", "FILE", &model, "GGUF file, or the first part of a split one");
  list.Switch("tensors", &tensors, "also list the tensors");
  const char* const no_environment[] = {nullptr};
  const Result<bool> help = LoadOptions(list, "model", std::move(args), no_environment);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf("usage: staffel inspect MODEL [--tensors]\n%s", list.Help().c_str());
    return kExitOk;
  }
  if (model.empty()) {
    return Fail(absl::InvalidArgumentError("no model is given: staffel inspect model.gguf"),
                kExitUsage);
  }
  const Result<std::unique_ptr<ModelFile>> file = OpenModelFile(model);
  if (!file.ok()) return Fail(file.status(), kExitFailure);
  const Result<ModelConfig> config = ReadConfig(**file);
  PrintFile(**file);
  PrintWeights(**file);
  if (config.ok()) {
    PrintShape(*config);
    PrintMemory(**file, config->shape);
  }
  PrintTokenizer(**file);
  Row("can be served",
      config.ok() ? "yes" : StrCat("no: ", std::string(config.status().message())));
  if (tensors) PrintTensors(**file);
  return kExitOk;
}

}  // namespace staffel
