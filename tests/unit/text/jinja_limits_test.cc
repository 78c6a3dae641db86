// Hostile templates and inputs end with an error, in time and within memory.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "base/strings.h"
#include "nlohmann/json.hpp"
#include "text/jinja/template.h"

namespace staffel {
namespace {

using Json = nlohmann::ordered_json;

std::string Repeat(std::string_view piece, int count) {
  std::string out;
  for (int i = 0; i < count; i++) out += piece;
  return out;
}

Result<PromptText> Render(std::string_view source, const Json& x = nullptr,
                          const jinja::Limits& limits = {}) {
  STAFFEL_ASSIGN_OR_RETURN(const auto parsed, jinja::Template::Parse(source));
  const jinja::Variable variables[] = {{"x", &x}};
  return parsed->Render(variables, {}, limits);
}

void ExpectFails(const std::string& source, const Json& x = nullptr) {
  const std::clock_t begin = std::clock();
  const auto result = Render(source, x);
  const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_FALSE(result.ok()) << source.substr(0, 200);
  // Far above what it takes: sanitizers slow a step down by an order of magnitude.
  EXPECT_LT(cpu_s, 30) << source.substr(0, 200);
}

TEST(JinjaLimits, SourceThatNestsTooDeeply) {
  constexpr int kDeep = 100'000;
  ExpectFails("{{ " + Repeat("(", kDeep) + "1" + Repeat(")", kDeep) + " }}");
  ExpectFails("{{ " + Repeat("[", kDeep) + Repeat("]", kDeep) + " }}");
  ExpectFails("{{ " + Repeat("{'a':", kDeep) + "1" + Repeat("}", kDeep) + " }}");
  ExpectFails("{{ " + Repeat("not ", kDeep) + "1 }}");
  ExpectFails("{{ " + Repeat("-", kDeep) + "1 }}");
  ExpectFails("{{ " + Repeat("- ", kDeep) + "1 }}");
  ExpectFails("{{ 1" + Repeat(" + 1", kDeep) + " }}");
  ExpectFails("{{ 1" + Repeat(" if 1 else 1", kDeep) + " }}");
  ExpectFails("{{ 1" + Repeat(" and 1", kDeep) + " }}");
  ExpectFails("{{ 1" + Repeat(" ** 1", kDeep) + " }}");
  ExpectFails("{{ x" + Repeat(".a", kDeep) + " }}");
  ExpectFails("{{ x" + Repeat("[0]", kDeep) + " }}");
  ExpectFails("{{ x" + Repeat("()", kDeep) + " }}");
  ExpectFails("{{ x" + Repeat("|trim", kDeep) + " }}");
  ExpectFails("{{ x" + Repeat("|d(x", kDeep) + Repeat(")", kDeep) + " }}");
  ExpectFails(Repeat("{% if 1 %}", kDeep) + Repeat("{% endif %}", kDeep));
  ExpectFails(Repeat("{% for i in x %}", kDeep));
  ExpectFails(Repeat("{% macro a() %}", kDeep));
  ExpectFails(Repeat("{% set a %}", kDeep));
  ExpectFails("{% set " + Repeat("(", kDeep) + " %}");
  ExpectFails("{% set x" + Repeat("|trim", kDeep) + " %}{% endset %}");
}

TEST(JinjaLimits, LongButFlatSourceWorks) {
  const auto elifs =
      Render("{% if 0 %}" + Repeat("{% elif 0 %}", 20'000) + "{% else %}y{% endif %}");
  ASSERT_TRUE(elifs.ok()) << elifs.status();
  EXPECT_EQ(elifs->text, "y");
  EXPECT_TRUE(Render(Repeat("{{ 1 }}{# c #}{% set a = 1 %}", 20'000)).ok());
  EXPECT_TRUE(Render("{{ [" + Repeat("1,", 50'000) + "]|length }}").ok());
  EXPECT_TRUE(Render("{{ ''" + Repeat(" ~ 'a'", 50'000) + " }}").ok());
  EXPECT_TRUE(Render("{{ 1" + Repeat(" == 1", 50'000) + " }}").ok());
}

TEST(JinjaLimits, EndlessRecursion) {
  ExpectFails("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}");
  ExpectFails(
      "{% macro a(n) %}{{ b(n) }}{% endmacro %}{% macro b(n) %}{{ a(n ~ 'x') }}{% endmacro %}{{ "
      "a('') }}");
  ExpectFails("{% macro a() %}{% call a() %}{{ caller() }}{% endcall %}{% endmacro %}{{ a() }}");
  ExpectFails(
      "{% macro a() %}{% for i in [1] %}{% if i %}{% set s %}{{ a() ~ '' }}{% endset %}{% endif "
      "%}{% endfor %}{% endmacro %}{{ a() }}");
  ExpectFails("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  ExpectFails("{% macro a() %}{{ [1]|map('string')|first ~ a() }}{% endmacro %}{{ a() }}");
  ExpectFails("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}");
  ExpectFails("{% set ns = namespace() %}{% set ns.a = [ns, ns] %}{{ ns }}");
  ExpectFails("{% macro a(n=a()) %}{% endmacro %}{{ a() }}");
  ExpectFails("{% macro a() %}{% filter upper %}{{ a() }}{% endfilter %}{% endmacro %}{{ a() }}");
}

TEST(JinjaLimits, EndlessWork) {
  ExpectFails(Repeat("{% for i in range(99999) %}", 3) + Repeat("{% endfor %}", 3));
  ExpectFails(
      "{% for i in range(99999) %}{% for j in range(99999) %}{{ i }}{% endfor %}{% endfor %}");
  ExpectFails(
      "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(40) }}");
  ExpectFails("{{ range(100001) }}");
  ExpectFails("{{ range(-9223372036854775807, 9223372036854775807) }}");
  // Sorting, comparing and searching count, too.
  ExpectFails(
      "{% set l = range(99999)|list %}{% for i in range(99999) %}{{ l == l[:] }}{% endfor %}");
  ExpectFails("{% set l = range(99999)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}");
  ExpectFails("{% set l = range(99999)|list %}{% for i in l %}{{ l|sort|first }}{% endfor %}");
  ExpectFails("{% for i in range(99999) %}{{ x|length }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
  ExpectFails("{% for i in range(99999) %}{{ x[-1] }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
  ExpectFails("{% for c in range(99999) %}{{ x.find('b') }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
  ExpectFails("{% for c in range(99999) %}{{ x|upper|length }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
  ExpectFails("{% for c in range(99999) %}{{ 'b' in x }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
  ExpectFails("{% for c in range(99999) %}{{ x == x|string ~ '' }}{% endfor %}",
              Json(std::string(1 << 20, 'a')));
}

TEST(JinjaLimits, MemoryBombs) {
  ExpectFails("{{ 'aaaaaaaaaa' * 1000000000 }}");
  ExpectFails("{{ ('' * 9223372036854775807) ~ ('a' * 9223372036854775807) }}");
  ExpectFails("{{ [0] * 1000000000 }}");
  ExpectFails("{{ [0, 1, 2] * 9223372036854775807 }}");
  ExpectFails("{{ 'a'.center(10000000000) }}");
  ExpectFails("{{ 'a'.ljust(9223372036854775807) }}");
  ExpectFails("{{ 'a'.zfill(9223372036854775807) }}");
  ExpectFails("{{ 'a'|center(9223372036854775807) }}");
  ExpectFails("{{ 'a\nb'|indent(9223372036854775807, true) }}");
  ExpectFails("{{ '\t'.expandtabs(9223372036854775807) }}");
  ExpectFails("{{ '%99999999999d' % 1 }}");
  ExpectFails("{{ '%*d' % (99999999999, 1) }}");
  ExpectFails("{{ '%.99999999999f' % 1 }}");
  ExpectFails("{{ '{:99999999999}'.format(1) }}");
  ExpectFails("{{ '{:.99999999999f}'.format(1.0) }}");
  ExpectFails("{{ [1]|batch(9223372036854775807, 0)|list }}");
  ExpectFails("{{ [1]|slice(9223372036854775807)|list }}");
  ExpectFails("{{ {'a': 1}|tojson(indent=9223372036854775807) }}");
  ExpectFails("{{ strftime_now('%99999999999d') }}");
  ExpectFails(
      "{% set s = namespace(v='aaaaaaaaaa') %}{% for i in range(99) %}{% set s.v = s.v + s.v %}{% "
      "endfor %}");
  ExpectFails(
      "{% set s = namespace(v=[1]) %}{% for i in range(99) %}{% set s.v = s.v + s.v %}{% endfor "
      "%}");
  ExpectFails(
      "{% set s = namespace(v=[1]) %}{% for i in range(150) %}{% set s.v = [s.v, s.v] %}{% endfor "
      "%}{{ s.v }}");
  ExpectFails(
      "{% set s = namespace(v=[1]) %}{% for i in range(150) %}{% set s.v = [s.v, s.v] %}{% endfor "
      "%}{{ s.v|tojson }}");
  ExpectFails(
      "{% set s = namespace(v=[1], w=[1]) %}{% for i in range(150) %}{% set s.v = [s.v, s.v] %}{% "
      "set s.w = [s.w, s.w] %}{% endfor %}{{ s.v == s.w }}");
  ExpectFails(
      "{% set s = namespace(v=[1]) %}{% for i in range(300) %}{% set s.v = [s.v] %}{% endfor %}");
  ExpectFails(
      "{% set s = namespace(v=1) %}{% for i in range(300) %}{% set s.v = {'a': s.v} %}{% endfor "
      "%}");
  ExpectFails(
      "{% for i in range(99999) %}{% for j in range(99999) %}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{% "
      "endfor %}{% endfor %}");
  const std::string long_text(1 << 20, 'a');
  ExpectFails("{{ x|replace('a', x) }}", long_text);
  ExpectFails("{{ x.replace('', x) }}", long_text);
  ExpectFails("{{ x|list|join(x) }}", long_text);
  ExpectFails("{{ x.join(x) }}", long_text);
  ExpectFails("{{ ('a\n' * 100000)|indent(x) }}", long_text);
  ExpectFails(
      "{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.a = [x ~ i, ns.a] if i % 100 "
      "else [x ~ i] %}{% endfor %}",
      long_text);
}

// Names that a template refers to in a circle are freed: LeakSanitizer looks at this.
TEST(JinjaLimits, CirclesAreFreed) {
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% set ns.a = [ns] %}{% set ns.b = ns %}"
                     "{% macro m() %}{% endmacro %}{% set ns.m = m %}{% set ns.c = cycler(ns) %}"
                     "{% for i in [1] %}{% set ns.l = loop %}{% set ns.k = loop.cycle %}{{ "
                     "loop.changed(ns) }}{% macro n() %}{{ i }}{% endmacro %}{% set ns.n = n %}{% "
                     "endfor %}{{ ns.l.index }}{{ ns.n() }}")
                  .ok());
  // A long chain of namespaces is freed without recursion.
  EXPECT_TRUE(Render("{% set s = namespace(v=1) %}{% for i in range(99999) %}{% set s.v = "
                     "namespace(p=s.v) %}{% endfor %}")
                  .ok());
}

TEST(JinjaLimits, LimitsAreObeyed) {
  jinja::Limits limits;
  limits.output_bytes = 10;
  EXPECT_TRUE(Render("{{ 'a' * 10 }}", nullptr, limits).ok());
  EXPECT_FALSE(Render("{{ 'a' * 11 }}", nullptr, limits).ok());
  limits = {};
  limits.steps = 1000;
  EXPECT_TRUE(Render("{% for i in range(50) %}{{ i }}{% endfor %}", nullptr, limits).ok());
  EXPECT_FALSE(Render("{% for i in range(1000) %}{{ i }}{% endfor %}", nullptr, limits).ok());
  limits = {};
  limits.memory_bytes = 1000;
  EXPECT_FALSE(Render("{{ ('a' * 2000)|length }}", nullptr, limits).ok());
  limits = {};
  limits.range_items = 5;
  EXPECT_TRUE(Render("{{ range(5) }}", nullptr, limits).ok());
  EXPECT_FALSE(Render("{{ range(6) }}", nullptr, limits).ok());
}

TEST(JinjaLimits, IntegersOutside64BitsAreErrors) {
  for (const char* expression :
       {"18446744073709551615 + 1", "18446744073709551616", "-18446744073709551615", "2 ** 64",
        "9223372036854775807 * 9223372036854775807", "2 ** 100000000000", "-2 ** 65",
        "'99999999999999999999'|int", "1e300|int", "10 ** 20"}) {
    ExpectFails(StrCat("{{ ", expression, " }}"));
  }
  const auto result =
      Render("{{ 1 ** 100000000000 }}{{ 0 ** 100000000000 }}{{ (-1) ** 99999999999 }}");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->text, "10-1");
}

}  // namespace
}  // namespace staffel
