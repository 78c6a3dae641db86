// Template source to syntax tree. Follows Jinja2 3.1 with the loop controls extension; `generation`
// blocks (which training code uses to mask tokens) are transparent. Refused: template inheritance,
// includes and imports, autoescape, translations.
#pragma once

#include <memory>
#include <string_view>

#include "text/jinja/ast.h"

namespace staffel::jinja {

// Fails with a TemplateError; *line is then the line of the mistake.
std::unique_ptr<Program> ParseTemplate(std::string_view source, int* line);

// Fails if the tree uses a filter, test or function that cannot exist in any render. Not so behind
// a condition that asks for it ("x is defined", "'x' is filter"): there it fails when it runs.
void CheckNames(const Program& program, int* line);

}  // namespace staffel::jinja
