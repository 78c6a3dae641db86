// A template of the Jinja language: parsed once, immutable, rendered from any thread at once.
//
// The language is Jinja2 3.1 as transformers sets it up for chat templates (immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception,
// strftime_now). Values behave as Python's. Known differences: integers are 64 bits; `safe` and
// `escape` give plain strings; filters that make no sense in a prompt do not exist (random, urlize,
// xmlattr, wordwrap, pprint, filesizeformat, striptags, urlencode); no lipsum; no blocks, includes
// and imports.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "nlohmann/json.hpp"
#include "staffel/status.h"
#include "staffel/tokenizer.h"
#include "text/jinja/json_values.h"
#include "text/jinja/runtime.h"

namespace staffel::jinja {

struct Program;

// A variable given to a render: either a caller's JSON or trusted text.
struct Variable {
  std::string_view name;
  const nlohmann::ordered_json* json = nullptr;
  IsTrustedField is_trusted = nullptr;
  std::string_view trusted_text = {};  // if json is null
};

class Template {
 public:
  // InvalidArgument with line and reason: bad syntax, or a filter, test or function that does not
  // exist.
  static Result<std::unique_ptr<Template>> Parse(std::string_view source);
  ~Template();

  // now: local time, for strftime_now. InvalidArgument: the template's raise_exception, with its
  // message as it is, or unusable data. Internal: the template failed or hit a limit, with line.
  Result<PromptText> Render(absl::Span<const Variable> variables, const std::tm& now,
                            const Limits& limits = {}) const;

  // Whether the name occurs as a variable anywhere in the template.
  bool Mentions(std::string_view name) const;

 private:
  explicit Template(std::unique_ptr<Program> program);
  const std::unique_ptr<const Program> program_;
};

}  // namespace staffel::jinja
