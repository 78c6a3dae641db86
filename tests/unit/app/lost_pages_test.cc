#include "app/lost_pages.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "modelfile/open.h"
#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

TEST(LostPagesDeathTest, AFileCutWhileItIsReadEndsTheProcessWithASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = std::filesystem::temp_directory_path() / "staffel-lost-pages.gguf";
  EXPECT_EXIT(
      {
        ExplainLostPages();
        testing::WriteFile(
            path, testing::GgufBuilder().Tensor("w", {16384}, 0, std::string(65536, 'w')).Build());
        const auto model = OpenModelFile(path);
        std::filesystem::resize_file(path, 4096);
        volatile uint8_t sum = 0;
        for (const uint8_t byte : (*model)->tensors().front().bytes) sum = sum + byte;
      },
      ::testing::ExitedWithCode(1), "became shorter");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace staffel
