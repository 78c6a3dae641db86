// Files in the format of the JSON Schema Test Suite: schemas, each with instances that are valid by
// it or not. Whatever a grammar lets through must be valid; how many of the valid ones it lets
// through is counted. tests/data/grammar/suite has files of ours; STAFFEL_SCHEMA_SUITE names a
// directory with others, such as tests/draft2020-12 of the public suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "support.h"

namespace staffel::grammar {
namespace {

using Json = nlohmann::ordered_json;

struct Tally {
  int schemas = 0, refused = 0;              // schemas, and those that are an error
  int valid = 0, accepted = 0, invalid = 0;  // instances of the others
};

void TryGroup(const Json& group, const std::string& where, Tally& tally) {
  ++tally.schemas;
  auto automaton = MakeAutomaton(SchemaSpec(group["schema"].dump()));
  if (!automaton.ok()) {
    ++tally.refused;
    EXPECT_EQ(automaton.status().code(), absl::StatusCode::kInvalidArgument)
        << where << automaton.status();
    EXPECT_FALSE(automaton.status().message().empty()) << where;
    if (group.contains("refused")) {
      EXPECT_NE(std::string(automaton.status().message()).find(group["refused"].get<std::string>()),
                std::string::npos)
          << where << automaton.status();
    }
    return;
  }
  EXPECT_FALSE(group.contains("refused")) << where << "was meant to be an error";
  for (const Json& test : group["tests"]) {
    const std::string text = test["data"].dump();
    const bool accepted = Accepts(*automaton, text);
    if (test["valid"].get<bool>()) {
      ++tally.valid;
      tally.accepted += accepted;
      EXPECT_TRUE(accepted || !group.value("complete", false))
          << where << test["description"] << ": must take " << text;
    } else {
      ++tally.invalid;
      EXPECT_FALSE(accepted) << where << test["description"] << ": must refuse " << text;
    }
  }
}

TEST(JsonSchemaSuite, NothingInvalidPasses) {
  const char* other = std::getenv("STAFFEL_SCHEMA_SUITE");
  const std::string directory =
      other != nullptr ? other : std::string(STAFFEL_TEST_DATA) + "/grammar/suite";
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  ASSERT_FALSE(files.empty()) << directory;
  std::sort(files.begin(), files.end());
  Tally all;
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path);
    Tally tally;
    for (const Json& group : Json::parse(file)) {
      TryGroup(group, path.filename().string() + ": " + group["description"].dump() + ": ", tally);
    }
    std::cout << path.filename().string() << ": " << tally.schemas - tally.refused << " of "
              << tally.schemas << " schemas compile, " << tally.accepted << " of " << tally.valid
              << " valid instances pass, " << tally.invalid << " invalid ones\n";
    all.schemas += tally.schemas;
    all.refused += tally.refused;
    all.valid += tally.valid;
    all.accepted += tally.accepted;
    all.invalid += tally.invalid;
  }
  std::cout << "all: " << all.schemas - all.refused << " of " << all.schemas << " compile, "
            << all.accepted << " of " << all.valid << " valid instances pass, " << all.invalid
            << " invalid ones\n";
  EXPECT_GT(all.accepted, 0);
  EXPECT_GT(all.invalid, 0);
}

}  // namespace
}  // namespace staffel::grammar
