// The reference backend against the recordings: the programs are right. It is slow, so that only
// the first of each is taken; golden_cpu_test takes all.
#include <gtest/gtest.h>

#include <memory>

#include "device/ref/ref_backend.h"
#include "tests/model/golden_checks.h"

namespace staffel {
namespace {

// Recordings are rounded to five decimals; f32 sums in another order do the rest.
constexpr double kLogprobBound = 5e-4;
constexpr double kLossBound = 1e-4;

void CheckReference(const char* name, int passage_tokens, int generations) {
  std::unique_ptr<Backend> backend = MakeRefBackend(2);
  std::unique_ptr<GoldenModel> model = LoadGolden(name, *backend, ActivationType::kF32);
  ASSERT_NE(model, nullptr);
  CheckPassage(*model, passage_tokens, kLossBound);
  CheckGenerations(*model, generations, {kLogprobBound, kLogprobBound});
  CheckChunking(*model, 1, 2, 1e-3);
}

TEST(GoldenRef, SmolLm2) { CheckReference("smollm2", 100, 2); }
TEST(GoldenRef, Qwen25) { CheckReference("qwen2.5", 24, 1); }
TEST(GoldenRef, Gemma3) { CheckReference("gemma3", 64, 2); }

}  // namespace
}  // namespace staffel
