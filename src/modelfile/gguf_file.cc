#include "modelfile/gguf_file.h"

#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "modelfile/gguf_header.h"
#include "modelfile/gguf_metadata.h"
#include "modelfile/gguf_tokenizer.h"
#include "modelfile/mapped_file.h"
#include "modelfile/open.h"

namespace staffel {
namespace {

constexpr const char* kSplitNumber = "split.no";
constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitTensorCount = "split.tensors.count";
constexpr const char* kChatTemplate = "tokenizer.chat_template";

Status AddPath(const Status& status, const std::string& path) {
  return Status(status.code(), StrCat("cannot load '", EscapeForMessage(path),
                                      "': ", std::string(status.message())));
}

class GgufFile final : public ModelFile, public WeightSource {
 public:
  GgufFile(std::string path, GgufHeader header)
      : path_(std::move(path)), metadata_(header.metadata), tensors_(std::move(header.tensors)) {}

  void AddPart(const std::string& path, int64_t header_bytes, std::unique_ptr<MappedFile> file) {
    file_bytes_ += static_cast<int64_t>(file->bytes().size());
    parts_.push_back({path, file->bytes(), header_bytes});
    files_.push_back(std::move(file));
  }

  void AddTensors(std::vector<TensorView> tensors) {
    std::move(tensors.begin(), tensors.end(), std::back_inserter(tensors_));
  }

  // Last step of loading: `tensors_` no longer moves.
  Status Finish() {
    index_.reserve(tensors_.size());
    for (const TensorView& tensor : tensors_) {
      if (!index_.emplace(tensor.name, &tensor).second) {
        return absl::InvalidArgumentError(StrCat("tensor '", EscapeForMessage(tensor.name),
                                                 "' stands in two parts (duplicate); the parts do ",
                                                 "not belong together"));
      }
    }
    if (metadata_.Has(kChatTemplate)) {
      STAFFEL_ASSIGN_OR_RETURN(chat_template_, metadata_.String(kChatTemplate));
    }
    return absl::OkStatus();
  }

  const std::string& path() const override { return path_; }
  int64_t file_bytes() const override { return file_bytes_; }
  std::vector<ModelPart> parts() const override { return parts_; }
  const GgufMetadata& metadata() const override { return metadata_; }
  const WeightSource& weights() const override { return *this; }
  const std::vector<TensorView>& tensors() const override { return tensors_; }
  Result<TokenizerSpec> ReadTokenizer() const override { return ReadGgufTokenizer(metadata_); }
  std::optional<std::string> chat_template() const override { return chat_template_; }

  const TensorView* Find(const std::string& name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : found->second;
  }

  void Release(const TensorView& tensor) const override {
    for (const auto& file : files_) {
      if (tensor.bytes.begin() >= file->bytes().begin() &&
          tensor.bytes.end() <= file->bytes().end()) {
        file->DropPages(tensor.bytes);
      }
    }
  }

 private:
  const std::string path_;
  const GgufMetadata metadata_;
  int64_t file_bytes_ = 0;
  std::vector<ModelPart> parts_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::vector<TensorView> tensors_;
  absl::flat_hash_map<std::string, const TensorView*> index_;
  std::optional<std::string> chat_template_;
};

// "dir/x-00002-of-00003.gguf": prefix "dir/x", number 2 of 3. count 0: not such a name.
struct PartName {
  std::string prefix;
  int number = 0, count = 0;
};

bool ParseDigits(std::string_view digits, int* number) {
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), *number);
  return error == std::errc() && end == digits.end();
}

PartName ParsePartName(const std::string& path) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (path.size() <= kPattern.size()) return {};
  const std::string_view tail = std::string_view(path).substr(path.size() - kPattern.size());
  PartName name;
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" ||
      !ParseDigits(tail.substr(1, 5), &name.number) ||
      !ParseDigits(tail.substr(10, 5), &name.count) || name.number < 1 || name.count < 1) {
    return {};
  }
  name.prefix = path.substr(0, path.size() - kPattern.size());
  return name;
}

std::string PartPath(const PartName& name, int number) {
  return absl::StrFormat("%s-%05d-of-%05d.gguf", name.prefix, number, name.count);
}

// Parts are looked for beside the path as it was given; if its name is not that of a part but it is
// a link, beside what it links to (and so on: a cache links to files with other names).
PartName FindPartName(const std::string& path) {
  constexpr int kLinksMax = 40;  // as many as the kernel follows
  std::filesystem::path at = path;
  std::error_code error;
  for (int i = 0; i < kLinksMax; i++) {
    const PartName name = ParsePartName(at.string());
    if (name.count > 0) return name;
    const std::filesystem::path target = std::filesystem::read_symlink(at, error);
    if (error) break;
    at = at.parent_path() / target;
  }
  return {};
}

// What a part says of the split; count 1 without the keys.
struct SplitKeys {
  int64_t number = 0, count = 1, tensor_count = -1;
};

Result<SplitKeys> ReadSplitKeys(const GgufMetadata& metadata) {
  SplitKeys keys;
  if (!metadata.Has(kSplitCount)) return keys;
  STAFFEL_ASSIGN_OR_RETURN(keys.count, metadata.Int(kSplitCount, 0, 65535));
  if (keys.count <= 1) return SplitKeys{};
  STAFFEL_ASSIGN_OR_RETURN(keys.number, metadata.Int(kSplitNumber, 0, keys.count - 1));
  if (metadata.Has(kSplitTensorCount)) {
    STAFFEL_ASSIGN_OR_RETURN(keys.tensor_count, metadata.Int(kSplitTensorCount, 0, INT32_MAX));
  }
  return keys;
}

Status CheckFirstPart(const PartName& name, const SplitKeys& keys) {
  const auto invalid = [](auto&&... parts) { return absl::InvalidArgumentError(StrCat(parts...)); };
  if (name.count > 1 && name.number != 1) {
    return invalid("it is part ", name.number, " of ", name.count,
                   " of a split model; give the first part, '", PartPath(name, 1), "'");
  }
  if (keys.count == 1) {
    if (name.count <= 1) return absl::OkStatus();
    return invalid("its name says part 1 of ", name.count, ", but it has no key '", kSplitCount,
                   "'; fetch all parts again, or rename the file if it is not split");
  }
  if (name.count == 0) {
    return invalid("it is part ", keys.number + 1, " of ", keys.count,
                   " of a split model ('split.count'), so its name must end in ",
                   absl::StrFormat("-%05d-of-%05d.gguf", keys.number + 1, keys.count),
                   " for the other parts to be found");
  }
  if (keys.count != name.count) {
    return invalid("its key 'split.count' is ", keys.count, " where its name says -of-",
                   absl::StrFormat("%05d", name.count), "; give the files their original names");
  }
  if (keys.number != 0) {
    return invalid("its key 'split.no' is ", keys.number, ", and the first part has 0; give the ",
                   "files their original names");
  }
  return absl::OkStatus();
}

// Opens part `number` (from 2) and gives its tensors to `model`.
Status AddPart(int number, const SplitKeys& first, const std::string& path, GgufFile* model) {
  STAFFEL_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  STAFFEL_ASSIGN_OR_RETURN(GgufHeader header, ParseGgufHeader(file->bytes()));
  const GgufMetadata metadata(header.metadata);
  STAFFEL_ASSIGN_OR_RETURN(const SplitKeys keys, ReadSplitKeys(metadata));
  if (keys.count != first.count || keys.number != number - 1 ||
      keys.tensor_count != first.tensor_count) {
    return absl::InvalidArgumentError(StrCat(
        "its split keys say part ", keys.number + 1, " of ", keys.count, " with ",
        keys.tensor_count, " tensors in all, and the first part says ", first.count, " parts with ",
        first.tensor_count, ", so it belongs to another model; fetch all parts again"));
  }
  model->AddTensors(std::move(header.tensors));
  model->AddPart(path, header.bytes, std::move(file));
  return absl::OkStatus();
}

}  // namespace

Result<std::unique_ptr<ModelFile>> ReadGguf(absl::Span<const uint8_t> bytes,
                                            const std::string& name) {
  Result<GgufHeader> header = ParseGgufHeader(bytes);
  if (!header.ok()) return AddPath(header.status(), name);
  auto model = std::make_unique<GgufFile>(name, *std::move(header));
  if (const Status status = model->Finish(); !status.ok()) return AddPath(status, name);
  return model;
}

Result<std::unique_ptr<ModelFile>> OpenModelFile(const std::string& path) {
  Result<std::unique_ptr<MappedFile>> file = MappedFile::Open(path);
  if (!file.ok()) return AddPath(file.status(), path);
  Result<GgufHeader> header = ParseGgufHeader((*file)->bytes());
  if (!header.ok()) return AddPath(header.status(), path);
  const int64_t header_bytes = header->bytes;
  auto model = std::make_unique<GgufFile>(path, *std::move(header));
  model->AddPart(path, header_bytes, *std::move(file));

  const Result<SplitKeys> keys = ReadSplitKeys(model->metadata());
  if (!keys.ok()) return AddPath(keys.status(), path);
  const PartName name = FindPartName(path);
  if (const Status status = CheckFirstPart(name, *keys); !status.ok()) return AddPath(status, path);
  for (int number = 2; number <= keys->count; number++) {
    const std::string part = PartPath(name, number);
    if (const Status status = AddPart(number, *keys, part, model.get()); !status.ok()) {
      return AddPath(status, part);
    }
  }
  if (keys->tensor_count >= 0 &&
      keys->tensor_count != static_cast<int64_t>(model->tensors().size())) {
    return AddPath(
        absl::InvalidArgumentError(StrCat(
            "its key '", kSplitTensorCount, "' is ", keys->tensor_count, ", but the parts have ",
            model->tensors().size(), " tensors; fetch all parts again")),
        path);
  }
  if (const Status status = model->Finish(); !status.ok()) return AddPath(status, path);
  return model;
}

}  // namespace staffel
