#include "server/ollama/models.h"

#include <chrono>
#include <cstdio>

#include "base/strings.h"
#include "server/ollama/answer.h"

namespace staffel::api::ollama {
namespace {

// "134.52M", "7.6B".
std::string CountText(int64_t count) {
  char text[32];
  const auto number = static_cast<double>(count);
  if (count >= 1'000'000'000) {
    std::snprintf(text, sizeof text, "%.1fB", number / 1e9);
  } else if (count >= 1'000'000) {
    std::snprintf(text, sizeof text, "%.2fM", number / 1e6);
  } else if (count >= 1'000) {
    std::snprintf(text, sizeof text, "%.0fK", number / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.0f", number);
  }
  return text;
}

Json DetailsOf(const ModelFacts& facts) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", facts.architecture},
          {"families", Json::array({facts.architecture})},
          {"parameter_size", CountText(facts.parameter_count)},
          {"quantization_level", facts.weight_type}};
}

Json EntryOf(const ServedModel& model, const std::string& name) {
  return {{"name", Tagged(name)},
          {"model", Tagged(name)},
          {"size", model.facts.file_bytes},
          {"digest", model.facts.digest},
          {"details", DetailsOf(model.facts)}};
}

// Models stay loaded: a time that is far from any now.
std::string Never() {
  using std::chrono::hours;
  const auto then = std::chrono::system_clock::now() + hours(24 * 365 * 100);
  return TimeText(std::chrono::system_clock::to_time_t(then));
}

Json CapabilitiesOf(const ServedModel& model) {
  Json capabilities = Json::array({"completion"});
  const std::string& source = model.facts.chat_template;
  if (model.chat_template != nullptr && source.find("tools") != source.npos)
    capabilities.push_back("tools");
  const TokenizerSpec& spec = model.tokenizer->spec();
  if (spec.fim_prefix >= 0 && spec.fim_suffix >= 0 && spec.fim_middle >= 0)
    capabilities.push_back("insert");
  if (model.formats.reasoning != answer::ReasoningFormat::kNone) capabilities.push_back("thinking");
  return capabilities;
}

}  // namespace

std::string Tagged(const std::string& name) {
  const size_t slash = name.rfind('/');
  const bool tagged = name.find(':', slash == name.npos ? 0 : slash) != name.npos;
  return tagged ? name : name + ":latest";
}

Json TagsOf(const ModelSet& models) {
  Json all = Json::array();
  for (const auto& model : models.served) {
    for (const std::string& name : model->names) {
      Json entry = EntryOf(*model, name);
      entry["modified_at"] = TimeText(model->created_unix_s);
      all.push_back(std::move(entry));
    }
  }
  return {{"models", std::move(all)}};
}

Json RunningOf(const ModelSet& models) {
  Json all = Json::array();
  for (const auto& model : models.served) {
    Json entry = EntryOf(*model, model->names[0]);
    entry["expires_at"] = Never();
    entry["size_vram"] = 0;
    entry["context_length"] = model->limits.max_model_len;
    all.push_back(std::move(entry));
  }
  return {{"models", std::move(all)}};
}

Json ShowOf(const ServedModel& model) {
  Json info = Json::object();
  for (const auto& [key, value] : model.facts.metadata) info[key] = Json::parse(value);
  info["general.architecture"] = model.facts.architecture;
  info["general.parameter_count"] = model.facts.parameter_count;
  return {{"modelfile", StrCat("FROM ", Tagged(model.names[0]), "\n")},
          {"parameters", ""},
          {"template", model.facts.chat_template},
          {"details", DetailsOf(model.facts)},
          {"model_info", std::move(info)},
          {"capabilities", CapabilitiesOf(model)},
          {"modified_at", TimeText(model.created_unix_s)}};
}

}  // namespace staffel::api::ollama
