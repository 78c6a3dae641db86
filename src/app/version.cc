#include "app/version.h"

#include <absl/base/config.h>
#include <openssl/opensslv.h>
#include <spdlog/version.h>

#include <CLI/Version.hpp>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "base/strings.h"

namespace staffel {
namespace {

#define STAFFEL_TEXT_(x) #x
#define STAFFEL_TEXT(x) STAFFEL_TEXT_(x)

std::string Processor() {
  std::string features;
#if defined(__x86_64__)
  const std::pair<const char*, bool> known[] = {
      {"AVX2", __builtin_cpu_supports("avx2")},
      {"FMA", __builtin_cpu_supports("fma")},
      {"AVX-512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")},
      {"VNNI", __builtin_cpu_supports("avx512vnni")},
      {"BF16", __builtin_cpu_supports("avx512bf16")},
  };
  for (const auto& [name, present] : known) {
    if (present) StrAppend(features, " ", name);
  }
  return StrCat("x86-64", features);
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

}  // namespace

const char* Version() { return STAFFEL_VERSION; }

std::string VersionTable() {
  std::string out = StrCat("staffel ", Version(), "\n");
  const auto row = [&](std::string_view name, std::string_view value) {
    StrAppend(out, "  ", name, std::string(14 - name.size(), ' '), value, "\n");
  };
  row("compiler", STAFFEL_COMPILER);
  row("build", STAFFEL_BUILD_TYPE);
  row("processor", Processor());
  row("devices", "cpu");
  row("model files", "GGUF 2, 3 (llama, qwen2, gemma3)");
  row("Boost", StrCat(BOOST_VERSION / 100000, ".", BOOST_VERSION / 100 % 1000));
  row("OpenSSL", OPENSSL_VERSION_TEXT);
#ifdef ABSL_LTS_RELEASE_VERSION
  row("Abseil", STAFFEL_TEXT(ABSL_LTS_RELEASE_VERSION));
#endif
  row("spdlog", StrCat(SPDLOG_VER_MAJOR, ".", SPDLOG_VER_MINOR, ".", SPDLOG_VER_PATCH));
  row("CLI11", CLI11_VERSION);
  row("nlohmann-json", StrCat(NLOHMANN_JSON_VERSION_MAJOR, ".", NLOHMANN_JSON_VERSION_MINOR, ".",
                              NLOHMANN_JSON_VERSION_PATCH));
#ifdef STAFFEL_HAVE_SYSTEMD
  row("systemd", "yes");
#else
  row("systemd", "no (not found when this was built)");
#endif
  return out;
}

}  // namespace staffel
