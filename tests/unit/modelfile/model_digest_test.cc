#include "modelfile/model_digest.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "modelfile/gguf_file.h"
#include "modelfile/open.h"
#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

using testing::GgufBuilder;
using testing::WriteFile;

constexpr int64_t kTensorBytes = 40000;

std::string File(const std::string& name = "a model") {
  std::string data(kTensorBytes, '\0');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7 + i / 251);
  GgufBuilder builder;
  builder.String("general.name", name);
  builder.Tensor("first", {kTensorBytes / 4}, 0, data);
  builder.Tensor("second", {8}, 0, std::string(32, 'x'));
  return builder.Build();
}

class ModelDigestTest : public ::testing::Test {
 protected:
  ~ModelDigestTest() override { std::remove(path_.c_str()); }
  ModelRef Ref(const std::string& bytes) {
    WriteFile(path_, bytes);
    const Result<std::unique_ptr<ModelFile>> file = OpenModelFile(path_);
    EXPECT_TRUE(file.ok()) << file.status();
    Result<ModelRef> ref = MakeModelRef(**file, "served");
    EXPECT_TRUE(ref.ok()) << ref.status();
    return *std::move(ref);
  }
  const std::string path_ = ::testing::TempDir() + "/staffel-digest.gguf";
};

TEST_F(ModelDigestTest, SaysWhatAWorkerMustKnow) {
  const std::string bytes = File();
  const ModelRef ref = Ref(bytes);
  EXPECT_EQ(ref.name, "served");
  EXPECT_EQ(ref.path, path_);
  EXPECT_EQ(ref.digest.size(), 64u);
  ASSERT_EQ(ref.parts.size(), 1u);
  EXPECT_EQ(ref.parts[0].bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(ref.parts[0].header_bytes, static_cast<int64_t>(bytes.size()) - kTensorBytes - 32);
}

TEST_F(ModelDigestTest, TellsAllThatItCoversApart) {
  const std::string bytes = File();
  const ModelRef ref = Ref(bytes);
  const int64_t header = ref.parts[0].header_bytes;
  std::set<std::string> digests = {ref.digest};
  EXPECT_EQ(Ref(bytes).digest, ref.digest);
  EXPECT_TRUE(digests.insert(Ref(File("A model")).digest).second) << "metadata";
  EXPECT_TRUE(digests.insert(Ref(bytes + "x").digest).second) << "size";
  // First and last 4 KiB of each tensor, to the byte.
  for (const int64_t at : {int64_t{0}, int64_t{4095}, kTensorBytes - 4096, kTensorBytes - 1,
                           kTensorBytes, kTensorBytes + 31}) {
    std::string changed = bytes;
    changed[header + at] ^= 1;
    EXPECT_TRUE(digests.insert(Ref(changed).digest).second) << "byte " << at;
  }
  // What it says not to cover.
  for (const int64_t at : {int64_t{4096}, kTensorBytes - 4097}) {
    std::string changed = bytes;
    changed[header + at] ^= 1;
    EXPECT_EQ(Ref(changed).digest, ref.digest) << "byte " << at;
  }
}

TEST_F(ModelDigestTest, AModelInMemoryHasNone) {
  const std::string bytes = File();
  const Result<std::unique_ptr<ModelFile>> file = ReadGguf(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()), "x");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(ModelDigest(**file).status()));
}

}  // namespace
}  // namespace staffel
