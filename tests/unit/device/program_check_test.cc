// What is wrong with a program, a model file or a step is said by name.
#include "device/program_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/device/random_model.h"

namespace staffel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MATCHER_P2(Fails, code, message, "") {
  *result_listener << arg;
  return arg.code() == code && std::string(arg.message()).find(message) != std::string::npos;
}
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class ProgramCheck : public ::testing::Test {
 protected:
  ProgramCheck() : rng_(5), model_(testing::MakeTinyModel(rng_, shape_)) {}

  // The first op of a kind in the program.
  template <class T>
  T& First() {
    for (Op& op : model_.program.ops) {
      if (auto* found = std::get_if<T>(&op)) return *found;
    }
    std::abort();
  }
  Status Check() { return CheckProgram(model_.program, 1); }

  testing::Rng rng_;
  testing::ModelShapeSpec shape_;
  testing::TinyModel model_;
};

TEST_F(ProgramCheck, AcceptsAGoodProgram) { EXPECT_TRUE(Check().ok()) << Check(); }

TEST_F(ProgramCheck, NamesTheOpOfAForeignValue) {
  First<LinearOp>().in = ValueId(999);
  EXPECT_THAT(Check(), Fails(kInvalid, "op 2 (Linear) is malformed: in is not a value"));
}

TEST_F(ProgramCheck, NamesAColumnMismatch) {
  model_.program.values[static_cast<int>(First<LinearOp>().out)].cols += 1;
  EXPECT_THAT(Check(), Fails(kInvalid, "out has 129 columns and needs 128"));
}

TEST_F(ProgramCheck, RefusesAReadBeforeTheWrite) {
  std::swap(model_.program.ops[1], model_.program.ops[2]);
  EXPECT_THAT(Check(), Fails(kInvalid, "op 1 (Linear) is malformed: it reads a value that no op"));
}

TEST_F(ProgramCheck, RefusesHeadsThatCannotShareKv) {
  First<PagedAttentionOp>().heads.q_heads = 5;
  EXPECT_THAT(Check(),
              Fails(kInvalid, "5 query heads from place 0 of a group of 2 do not read 2 KV heads"));
}

TEST_F(ProgramCheck, RefusesAKvLayerThatIsNotThere) {
  First<RopeAndStoreKvOp>().layer = 7;
  EXPECT_THAT(Check(), Fails(kInvalid, "KV layer 7 does not exist"));
}

TEST_F(ProgramCheck, RefusesAVectorOfTheWrongSize) {
  model_.program.weights[static_cast<int>(First<AddRmsNormOp>().weight)].rows.end -= 1;
  EXPECT_THAT(Check(), Fails(kInvalid, "is not a vector of 64"));
}

TEST_F(ProgramCheck, RefusesAGatherOfAnotherGroup) {
  const int cols = shape_.hidden;
  model_.program.values.push_back({"gathered", RowDim::kTokens, 2 * cols});
  model_.program.ops.push_back(GatherOp{
      First<EmbedOp>().out, ValueId(model_.program.values.size() - 1), {cols, cols}, {0, 1}});
  EXPECT_THAT(Check(), Fails(kInvalid, "it gathers from 2 members of a group of 1"));
  EXPECT_TRUE(CheckProgram(model_.program, 2).ok());
}

TEST_F(ProgramCheck, SendingNeedsAGroup) {
  model_.program.ops.push_back(SendOp{First<EmbedOp>().out, 1});
  EXPECT_THAT(CheckPrepare(model_.program, nullptr, BackendOptions()),
              Fails(absl::StatusCode::kFailedPrecondition, "Send op but no group"));
}

TEST_F(ProgramCheck, NamesAMissingTensor) {
  model_.program.weights[0].tensor = "token_embd.weight";
  EXPECT_THAT(FindWeights(model_.program, model_.weights).status(),
              Fails(absl::StatusCode::kNotFound, "no tensor token_embd.weight"));
}

TEST_F(ProgramCheck, NamesATensorThatIsTooSmall) {
  model_.program.weights[0].rows.end += 1;
  EXPECT_THAT(FindWeights(model_.program, model_.weights).status(),
              Fails(kInvalid, "Tensor embd.0 (F32, 80 x 64) is smaller than the 81 x 64"));
}

TEST_F(ProgramCheck, RefusesACutInsideAQuantisationBlock) {
  model_.weights.AddRandom(rng_, "embd.0", DType::kQ8_0, 80, 128, 1.0f);
  model_.program.weights[0].cols = {16, 80};
  EXPECT_THAT(FindWeights(model_.program, model_.weights).status(),
              Fails(kInvalid, "cannot be cut at columns 16 and 80: its blocks have 32 elements"));
}

TEST_F(ProgramCheck, SlicesRowsAndColumns) {
  model_.weights.AddRandom(rng_, "embd.0", DType::kQ8_0, 80, 128, 1.0f);
  model_.program.weights[0].rows = {10, 20};
  model_.program.weights[0].cols = {64, 128};
  auto slices = FindWeights(model_.program, model_.weights);
  ASSERT_TRUE(slices.ok()) << slices.status();
  const TensorView* view = model_.weights.Find("embd.0");
  EXPECT_EQ((*slices)[0].RowBytes(3).data(), view->bytes.data() + 13 * 4 * 34 + 2 * 34);
  EXPECT_EQ((*slices)[0].RowBytes(3).size(), 2u * 34);
}

// A step that is right, and each way to make it wrong.
TEST(BatchCheck, NamesWhatIsWrong) {
  BackendOptions options;
  options.block_count = 4;
  options.max_rows = 8;
  options.max_sampled_rows = 2;
  options.max_positions = 40;
  std::vector<TokenId> tokens = {1, 2, 3};
  std::vector<int32_t> positions = {15, 16, 0}, sampled = {1, 2};
  std::vector<BlockId> a = {BlockId(3), BlockId(0)}, b = {BlockId(1)};
  std::vector<BatchTensors::Sequence> rows = {{0, 2, 15, a}, {2, 1, 0, b}};
  std::vector<BlockCopy> copies = {{BlockId(0), BlockId(2)}};
  auto check = [&] {
    rows[0].blocks = a;
    BatchTensors batch;
    batch.tokens = tokens;
    batch.positions = positions;
    batch.sequences = rows;
    batch.sampled_rows = sampled;
    batch.block_copies = copies;
    return CheckBatch(batch, options, 10);
  };
  EXPECT_TRUE(check().ok()) << check();
  tokens[1] = 10;
  EXPECT_THAT(check(), Fails(kInvalid, "token 10 is outside the vocabulary of 10"));
  tokens[1] = -1;
  EXPECT_THAT(check(), Fails(kInvalid, "token -1"));
  tokens[1] = 2;
  positions[1] = 17;
  EXPECT_THAT(check(), Fails(kInvalid, "a position differs"));
  positions[1] = 16;
  a = {BlockId(3)};
  EXPECT_THAT(check(), Fails(kInvalid, "a block table is too short"));
  a = {BlockId(3), BlockId(4)};
  EXPECT_THAT(check(), Fails(kInvalid, "block 4 does not exist"));
  a = {BlockId(3), BlockId(-1)};
  EXPECT_THAT(check(), Fails(kInvalid, "block -1 does not exist"));
  a = {BlockId(3), BlockId(0)};
  rows[1].row_begin = 1;
  EXPECT_THAT(check(), Fails(kInvalid, "do not cover the rows"));
  rows[1].row_begin = 2;
  rows[1].row_count = 2;
  EXPECT_THAT(check(), Fails(kInvalid, "a sequence ends at position 2 and row 4"));
  rows[1].row_count = 1;
  sampled = {2, 2};
  EXPECT_THAT(check(), Fails(kInvalid, "not ascending"));
  sampled = {0, 1, 2};
  EXPECT_THAT(check(), Fails(kInvalid, "3 sampled rows exceed the 2"));
  sampled = {3};
  EXPECT_THAT(check(), Fails(kInvalid, "not ascending rows"));
  sampled = {2};
  copies[0].target = BlockId(9);
  EXPECT_THAT(check(), Fails(kInvalid, "block 9 does not exist"));
  copies.clear();
  options.max_positions = 16;
  EXPECT_THAT(check(), Fails(kInvalid, "a sequence ends at position 17"));
  options.max_rows = 2;
  EXPECT_THAT(check(), Fails(kInvalid, "3 rows exceed the 2"));
}

}  // namespace
}  // namespace staffel
