#include "answer/call_form.h"

#include <algorithm>

#include "answer/markers.h"
#include "base/strings.h"

namespace staffel::answer {
namespace {

using Spell = std::function<std::string(std::string_view)>;

constexpr std::string_view kArguments = ", \"arguments\": ";
constexpr std::string_view kParameters = ", \"parameters\": ";

// {"name": …, "arguments": …}
CallForm JsonForm(std::string_view middle) {
  CallForm form;
  form.begin = "{\"name\": ";
  form.middle = middle;
  form.end = "}";
  form.json_name = true;
  return form;
}

CallForm BareForm(std::string_view middle, std::string_view separator) {
  CallForm form = JsonForm(middle);
  form.list_separator = separator;
  form.triggers = {"{", "["};
  form.leads = true;
  return form;
}

CallForm ArrayForm(std::string marker) {
  CallForm form = JsonForm(kArguments);
  form.list_begin = StrCat(marker, "[");
  form.list_separator = ", ";
  form.list_end = "]";
  form.triggers = {std::move(marker)};
  return form;
}

CallForm HermesForm(const Spell& spell) {
  const std::string marker = spell(kHermesBegin);
  CallForm form = JsonForm(kArguments);
  form.begin = StrCat(marker, "\n", form.begin);
  StrAppend(form.end, "\n", spell(kHermesEnd));
  form.list_separator = "\n";
  form.triggers = {marker};
  return form;
}

CallForm QwenXmlForm(const Spell& spell) {
  const std::string marker = spell(kHermesBegin);
  CallForm form;
  form.begin = StrCat(marker, "\n<function=");
  form.middle = ">\n";
  form.end = StrCat("</function>\n", spell(kHermesEnd));
  form.xml = true;
  form.list_separator = "\n";
  form.triggers = {marker, "<function="};
  return form;
}

CallForm DeepSeekForm(const Spell& spell, bool fenced) {
  const std::string calls = spell(kDeepSeekCallsBegin), call = spell(kDeepSeekCallBegin);
  const std::string separator = spell(kDeepSeekSep);
  CallForm form;
  form.begin = fenced ? StrCat(call, "function", separator) : call;
  form.middle = fenced ? "\n```json\n" : separator;
  form.end = StrCat(fenced ? "\n```" : "", spell(kDeepSeekCallEnd));
  form.list_begin = calls;
  form.list_separator = fenced ? "\n" : "";
  form.list_end = spell(kDeepSeekCallsEnd);
  form.triggers = {calls, call};
  return form;
}

// The token that ends the answer stands for what would close the call.
CallForm HarmonyForm(const Spell& spell) {
  CallForm form;
  form.begin = StrCat(spell(kHarmonyChannel), "commentary to=functions.");
  form.middle = StrCat(" ", spell(kHarmonyConstrain), "json", spell(kHarmonyMessage));
  form.text_begin = StrCat(spell(kHarmonyChannel), "final", spell(kHarmonyMessage));
  for (std::string_view marker : kHarmonyMarkers) form.triggers.push_back(spell(marker));
  form.single = true;
  return form;
}

CallForm PlainFormOf(CallFormat format, const Spell& spell) {
  switch (format) {
    case CallFormat::kNone:
    case CallFormat::kJson:
      break;
    case CallFormat::kHermes:
      return HermesForm(spell);
    case CallFormat::kQwenXml:
      return QwenXmlForm(spell);
    case CallFormat::kLlama:
      return BareForm(kParameters, "; ");
    case CallFormat::kGemma:
      return BareForm(kParameters, "\n");
    case CallFormat::kMistral:
      return ArrayForm(spell(kMistralCalls));
    case CallFormat::kMistralArgs: {
      CallForm form;
      form.begin = spell(kMistralCalls);
      form.middle = spell(kMistralArgsMarker);
      form.triggers = {form.begin};
      return form;
    }
    case CallFormat::kDeepSeek:
      return DeepSeekForm(spell, /*fenced=*/true);
    case CallFormat::kDeepSeek31:
      return DeepSeekForm(spell, /*fenced=*/false);
    case CallFormat::kGranite: {
      CallForm form = ArrayForm(spell(kGraniteCalls));
      form.triggers.push_back(spell(kHermesBegin));
      return form;
    }
    case CallFormat::kHarmony:
      return HarmonyForm(spell);
  }
  return BareForm(kArguments, "\n");
}

}  // namespace

CallForm FormOf(CallFormat format, const Spell& spell) {
  CallForm form = PlainFormOf(format, spell);
  // Text that spells a marker which is a control token is read like it.
  for (std::string_view marker : Markers({format, ReasoningFormat::kNone})) {
    const std::string spelt = spell(marker);
    const bool begins =
        std::find(form.triggers.begin(), form.triggers.end(), spelt) != form.triggers.end();
    if (begins && spelt != marker) form.triggers.emplace_back(marker);
  }
  return form;
}

ReasoningForm FormOf(ReasoningFormat format, const Spell& spell) {
  if (format == ReasoningFormat::kHarmony) {
    return {StrCat(spell(kHarmonyChannel), "analysis", spell(kHarmonyMessage)),
            StrCat(spell(kHarmonyEnd), spell(kHarmonyStart), "assistant")};
  }
  const ReasoningMarkers markers = MarkersOf(format);
  if (markers.open.empty()) return {};
  return {spell(markers.open), spell(markers.close)};
}

}  // namespace staffel::answer
