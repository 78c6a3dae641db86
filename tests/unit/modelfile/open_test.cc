// Files as the file system gives them: kinds, rights, split models, real models, hostile sizes.
#include "modelfile/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/support/gguf_builder.h"

namespace staffel {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::Raw;
using testing::WriteFile;

class OpenModelFileTest : public ::testing::Test {
 protected:
  OpenModelFileTest() {
    std::string pattern = (fs::temp_directory_path() / "staffel-open-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~OpenModelFileTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Refusal(const std::string& path) const {
    const auto model = OpenModelFile(path);
    return model.ok() ? "loaded" : std::string(model.status().message());
  }

  fs::path folder_;
};

TEST_F(OpenModelFileTest, WhatIsNotARegularFileIsRefusedAtOnce) {
  EXPECT_THAT(Refusal(Path("absent.gguf")),
              AllOf(HasSubstr("absent.gguf"), HasSubstr("no such file")));
  EXPECT_EQ(OpenModelFile(Path("absent.gguf")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal(Path("absent/x.gguf")), HasSubstr("no such file"));
  EXPECT_THAT(Refusal(""), HasSubstr("no such file"));
  EXPECT_THAT(Refusal(folder_.string()), HasSubstr("a folder"));
  ASSERT_EQ(mkfifo(Path("fifo.gguf").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(Path("fifo.gguf")), HasSubstr("a FIFO"));
  EXPECT_THAT(Refusal("/dev/zero"), HasSubstr("a device"));
  WriteFile(Path("empty.gguf"), "");
  EXPECT_THAT(Refusal(Path("empty.gguf")), HasSubstr("empty"));
  fs::create_symlink(Path("nowhere"), Path("link.gguf"));
  EXPECT_THAT(Refusal(Path("link.gguf")), HasSubstr("no such file"));
  if (getuid() != 0) {
    WriteFile(Path("secret.gguf"), GgufBuilder().Build());
    fs::permissions(Path("secret.gguf"), fs::perms::none);
    EXPECT_EQ(OpenModelFile(Path("secret.gguf")).status().code(),
              absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(OpenModelFileTest, AFolderNamesTheModelsInIt) {
  WriteFile(Path("b.gguf"), "x");
  EXPECT_THAT(Refusal(folder_.string()), HasSubstr("b.gguf"));
}

TEST_F(OpenModelFileTest, TensorsAreFoundAndStayReadableAfterRelease) {
  const std::string data(64 << 10, 'w');
  WriteFile(Path("m.gguf"), GgufBuilder()
                                .String("tokenizer.chat_template", "{{ x }}")
                                .Tensor("a", {16}, 0, std::string(64, 'a'))
                                .Tensor("w", {256, 64}, 0, data)
                                .Build());
  const auto model = OpenModelFile(Path("m.gguf"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->chat_template(), "{{ x }}");
  EXPECT_EQ((*model)->path(), Path("m.gguf"));
  EXPECT_EQ((*model)->file_bytes(), static_cast<int64_t>(fs::file_size(Path("m.gguf"))));
  EXPECT_EQ((*model)->weights().Find("b"), nullptr);
  const TensorView* w = (*model)->weights().Find("w");
  ASSERT_NE(w, nullptr);
  (*model)->weights().Release(*w);
  EXPECT_EQ(std::string(w->bytes.begin(), w->bytes.end()), data);
}

TEST_F(OpenModelFileTest, AChatTemplateMustBeText) {
  WriteFile(Path("m.gguf"), GgufBuilder().String("tokenizer.chat_template", "\xff").Build());
  EXPECT_THAT(Refusal(Path("m.gguf")), AllOf(HasSubstr("chat_template"), HasSubstr("UTF-8")));
  WriteFile(Path("m.gguf"), GgufBuilder().U32("tokenizer.chat_template", 1).Build());
  EXPECT_THAT(Refusal(Path("m.gguf")), HasSubstr("chat_template"));
}

// --- Split models

class SplitModelTest : public OpenModelFileTest {
 protected:
  static std::string PartName(int number, int count = 3) {
    char name[64];
    std::snprintf(name, sizeof name, "x-%05d-of-%05d.gguf", number, count);
    return name;
  }
  std::string Part(int number, int count = 3) const { return Path(PartName(number, count)); }

  static GgufBuilder Keys(int number, int count = 3, int tensors = 3) {
    return GgufBuilder()
        .String("general.architecture", "llama")
        .U16("split.no", number)
        .U16("split.count", count)
        .I32("split.tensors.count", tensors);
  }
  static std::string Bytes(GgufBuilder builder, const std::string& tensor) {
    return builder.Tensor(tensor, {8}, 0, std::string(32, tensor[0])).Build();
  }
  void WriteAll() const {
    for (int i = 0; i < 3; i++) WriteFile(Part(i + 1), Bytes(Keys(i), std::string(1, 'a' + i)));
  }
};

TEST_F(SplitModelTest, AllPartsAreLoaded) {
  WriteAll();
  const auto model = OpenModelFile(Part(1));
  ASSERT_TRUE(model.ok()) << model.status();
  for (const char* name : {"a", "b", "c"}) {
    const TensorView* tensor = (*model)->weights().Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->bytes[31], name[0]);
    (*model)->weights().Release(*tensor);
  }
  EXPECT_GT((*model)->file_bytes(), static_cast<int64_t>(3 * 32));
}

TEST_F(SplitModelTest, PartsAreFoundBesideALink) {
  fs::create_directory(Path("blobs"));
  for (int i = 0; i < 3; i++) {
    const std::string blob = Path("blobs/" + std::to_string(i));
    WriteFile(blob, Bytes(Keys(i), std::string(1, 'a' + i)));
    fs::create_symlink(blob, Part(i + 1));  // as in a Hugging Face cache
  }
  EXPECT_EQ(Refusal(Part(1)), "loaded");
  fs::create_symlink(Part(1), Path("model.gguf"));
  EXPECT_EQ(Refusal(Path("model.gguf")), "loaded");
}

TEST_F(SplitModelTest, ALinkOfAnotherNameLeadsToTheParts) {
  fs::create_directory(Path("real"));
  for (int i = 0; i < 3; i++) {
    WriteFile(Path("real/" + PartName(i + 1)), Bytes(Keys(i), std::string(1, 'a' + i)));
  }
  fs::create_symlink(Path("real/" + PartName(1)), Path("model.gguf"));
  EXPECT_EQ(Refusal(Path("model.gguf")), "loaded");
}

TEST_F(SplitModelTest, ABadPartIsNamed) {
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"empty", [&] { WriteFile(Part(2), ""); }},
      {"no such file", [&] { fs::remove(Part(2)); }},
      {"past the end", [&] { fs::resize_file(Part(2), fs::file_size(Part(2)) - 1); }},
      {"another model", [&] { WriteFile(Part(2), Bytes(GgufBuilder(), "b")); }},
      {"another model", [&] { WriteFile(Part(2), Bytes(Keys(1, 3, 9), "b")); }},
      {"another model", [&] { WriteFile(Part(2), Bytes(Keys(2), "b")); }},
      {"a folder", [&] { fs::remove(Part(2)), fs::create_directory(Part(2)); }},
  };
  for (const auto& [message, spoil] : cases) {
    fs::remove_all(Part(2));
    WriteAll();
    spoil();
    EXPECT_THAT(Refusal(Part(1)), AllOf(HasSubstr("x-00002-of-00003.gguf"), HasSubstr(message)));
  }
}

TEST_F(SplitModelTest, TensorsOfAllPartsAreCountedAndDiffer) {
  WriteAll();
  WriteFile(Part(2), Bytes(Keys(1), "a"));
  EXPECT_THAT(Refusal(Part(1)), AllOf(HasSubstr("'a'"), HasSubstr("two parts")));
  WriteFile(Part(2), Keys(1).Build());
  EXPECT_THAT(Refusal(Part(1)), AllOf(HasSubstr("split.tensors.count"), HasSubstr("2 tensors")));
}

TEST_F(SplitModelTest, NamesAndKeysMustAgree) {
  WriteAll();
  EXPECT_THAT(Refusal(Part(2)),
              AllOf(HasSubstr("part 2 of 3"), HasSubstr("x-00001-of-00003.gguf")));
  WriteFile(Part(1, 2), Bytes(Keys(0), "a"));
  EXPECT_THAT(Refusal(Part(1, 2)), AllOf(HasSubstr("split.count"), HasSubstr("-of-00002")));
  WriteFile(Part(1), Bytes(Keys(2), "a"));
  EXPECT_THAT(Refusal(Part(1)), HasSubstr("split.no"));
  WriteFile(Part(1), Bytes(Keys(7), "a"));
  EXPECT_THAT(Refusal(Part(1)), HasSubstr("split.no"));
  WriteFile(Part(1), Bytes(GgufBuilder(), "a"));
  EXPECT_THAT(Refusal(Part(1)), HasSubstr("split.count"));
  WriteFile(Path("renamed.gguf"), Bytes(Keys(0), "a"));
  EXPECT_THAT(Refusal(Path("renamed.gguf")), HasSubstr("-00001-of-00003.gguf"));
  WriteFile(Part(1, 1), Bytes(Keys(0, 1, 1), "a"));
  EXPECT_EQ(Refusal(Part(1, 1)), "loaded");
}

// --- Limits

TEST_F(OpenModelFileTest, HostileHeadersCostLittleMemoryAndTime) {
  const std::string huge = Path("huge.gguf");
  // Sparse files of 8 GB: what a header announces fits into the file.
  const std::pair<const char*, std::string> headers[] = {
      {"keys", "GGUF" + Raw(3u) + Raw<uint64_t>(0) + Raw<uint64_t>(500'000'000)},
      {"tensors", "GGUF" + Raw(3u) + Raw<uint64_t>(200'000'000) + Raw<uint64_t>(0)},
      {"'k'",
       GgufBuilder().RawKey("k", 9, Raw<uint32_t>(8) + Raw<uint64_t>(1'000'000'000)).Build()},
  };
  std::chrono::nanoseconds took{0};
  for (const auto& [what, header] : headers) {
    WriteFile(huge, header);
    fs::resize_file(huge, int64_t{8} << 30);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(Refusal(huge), HasSubstr(what));
    took = std::max(took, std::chrono::steady_clock::now() - begin);
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(took, std::chrono::seconds(1));
  EXPECT_LT(usage.ru_maxrss, 100 << 10) << "kB";
#endif
}

// --- Real models

std::string ModelPath(const std::string& name) {
  const char* folder = std::getenv("STAFFEL_MODELS");
  const char* home = std::getenv("HOME");
  const fs::path path =
      folder ? fs::path(folder) : fs::path(home ? home : "") / ".cache/staffel/models";
  return (path / name).string();
}

TEST(RealModels, HeadersAndVocabulariesAreRead) {
  const struct {
    const char *file, *architecture, *model;
    size_t tensors, tokens, merges;
  } cases[] = {
      {"SmolLM2-135M-Instruct.Q4_1.gguf", "llama", "gpt2", 272, 49152, 48900},
      {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2", "gpt2", 291, 151936, 151387},
      {"gemma-3-270m-q4_k_m.gguf", "gemma3", "llama", 236, 262144, 0},
  };
  int found = 0;
  for (const auto& c : cases) {
    const std::string path = ModelPath(c.file);
    if (!fs::exists(path)) continue;
    found++;
    const auto model = OpenModelFile(path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(*(*model)->metadata().String("general.architecture"), c.architecture);
    EXPECT_EQ((*model)->tensors().size(), c.tensors);
    const auto spec = (*model)->ReadTokenizer();
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->model, c.model);
    EXPECT_EQ(spec->tokens.size(), c.tokens);
    EXPECT_EQ(spec->merges.size(), c.merges);
  }
  EXPECT_GT(found, 0) << "no model in " << ModelPath("") << ": run scripts/fetch_model.py";
}

}  // namespace
}  // namespace staffel
