// Templates against what real Jinja2 makes of them (tests/data/jinja, written by
// make_jinja_cases.py), byte for byte.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/jinja/template.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;

// 2024-07-06 14:05:09, a Saturday: as in make_jinja_cases.py.
std::tm CaseTime() {
  std::tm now = {};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 6;
  now.tm_hour = 14;
  now.tm_min = 5;
  now.tm_sec = 9;
  now.tm_wday = 6;
  now.tm_yday = 187;
  return now;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string TemplateOf(const Json& test) {
  if (test.contains("template")) return test["template"];
  return ReadFile(STAFFEL_TEST_DATA "/" + test["file"].get<std::string>());
}

Result<PromptText> RenderCase(const std::string& source, const Json& given) {
  STAFFEL_ASSIGN_OR_RETURN(const auto parsed, jinja::Template::Parse(source));
  std::vector<jinja::Variable> variables;
  for (auto it = given.begin(); it != given.end(); ++it) {
    variables.push_back({it.key(), &it.value()});
  }
  return parsed->Render(variables, CaseTime());
}

class JinjaCases : public testing::TestWithParam<const char*> {};

TEST_P(JinjaCases, EqualJinja) {
  const Json all =
      Json::parse(ReadFile(std::string(STAFFEL_TEST_DATA "/jinja/") + GetParam() + ".json"));
  ASSERT_GE(all["cases"].size(), 20u);
  for (const Json& test : all["cases"]) {
    const Json& variables = all["variables"][test["variables"].get<size_t>()];
    SCOPED_TRACE(test.contains("file") ? test["file"].get<std::string>() + variables.dump()
                                       : test["template"].get<std::string>());
    const Result<PromptText> result = RenderCase(TemplateOf(test), variables);
    if (test.contains("expected")) {
      EXPECT_TRUE(result.ok()) << result.status() << "\nwant " << test["expected"];
      if (!result.ok()) continue;
      EXPECT_EQ(result->text, test["expected"].get<std::string>());
      size_t end = 0;
      for (const ByteRange& range : result->content) {
        EXPECT_TRUE(range.begin < range.end && (end < range.begin || end == 0));
        end = range.end;
      }
      EXPECT_LE(end, result->text.size());
      continue;
    }
    EXPECT_FALSE(result.ok()) << "gives " << result->text << "\nwant " << test["error"];
    const std::string error = test["error"];
    if (const std::string raised = "raised: "; error.starts_with(raised) && !result.ok()) {
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(std::string(result.status().message()), error.substr(raised.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, JinjaCases,
                         testing::Values("language", "builtins", "whitespace", "families"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace staffel
