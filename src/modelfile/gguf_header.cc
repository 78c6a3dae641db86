#include "modelfile/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"

#include "absl/strings/str_join.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "modelfile/byte_reader.h"
#include "modelfile/foreign_format.h"

namespace staffel {
namespace {

// A key of one byte, its type, and a one-byte value.
constexpr uint64_t kKeyEntryBytesMin = 8 + 1 + 4 + 1;
// An empty name, one dimension, type and offset.
constexpr uint64_t kTensorEntryBytesMin = 8 + 4 + 8 + 4 + 8;

template <class... Parts>
Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(StrCat(parts...));
}

const char* RemovedOrUnsupportedTypeName(uint32_t number) {
  static constexpr const char* kNames[] = {
      nullptr, nullptr,      nullptr,      nullptr,      "Q4_2",     "Q4_3",     nullptr,
      nullptr, nullptr,      "Q8_1",       "Q2_K",       "Q3_K",     nullptr,    nullptr,
      nullptr, "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
      "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
      "F64",   "IQ1_M",      nullptr,      "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
      "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4"};
  return number < std::size(kNames) ? kNames[number] : nullptr;
}

class Parser {
 public:
  explicit Parser(absl::Span<const uint8_t> file) : file_(file), in_(file) {}

  Result<GgufHeader> Parse() {
    uint64_t tensor_count = 0, key_count = 0;
    STAFFEL_RETURN_IF_ERROR(ParsePreamble(&tensor_count, &key_count));
    header_.metadata.reserve(key_count);
    for (uint64_t i = 0; i < key_count; i++) STAFFEL_RETURN_IF_ERROR(ParseKey(i));
    STAFFEL_RETURN_IF_ERROR(ReadAlignment());
    if (tensor_count > in_.left() / kTensorEntryBytesMin)
      return CountError("tensors", tensor_count);
    header_.tensors.reserve(tensor_count);
    offsets_.reserve(tensor_count);
    for (uint64_t i = 0; i < tensor_count; i++) STAFFEL_RETURN_IF_ERROR(ParseTensor(i));
    STAFFEL_RETURN_IF_ERROR(PlaceTensors());
    return std::move(header_);
  }

 private:
  Status Truncated(std::string_view where) const {
    return Invalid("the file ends inside ", where, " (it has ", file_.size(),
                   " bytes), so it is incomplete or damaged; fetch it again");
  }

  Status CountError(std::string_view what, uint64_t count) const {
    return Invalid("the header announces ", count, " ", what, ", more than the remaining ",
                   in_.left(), " bytes can hold; the file is damaged, so fetch it again");
  }

  Status ParsePreamble(uint64_t* tensor_count, uint64_t* key_count) {
    std::string_view magic;
    if (!in_.ReadBytes(4, &magic) || magic != "GGUF") {
      return absl::InvalidArgumentError(DescribeForeignFile(file_));
    }
    if (!in_.Read(&header_.version)) return Truncated("the version number");
    STAFFEL_RETURN_IF_ERROR(CheckVersion(header_.version));
    if (!in_.Read(tensor_count)) return Truncated("the tensor count");
    if (!in_.Read(key_count)) return Truncated("the key count");
    if (*key_count > in_.left() / kKeyEntryBytesMin) return CountError("metadata keys", *key_count);
    if (*tensor_count > in_.left() / kTensorEntryBytesMin) {
      return CountError("tensors", *tensor_count);
    }
    if (*key_count > kGgufKeysMax) {
      return Invalid("the header announces ", *key_count, " metadata keys; at most ", kGgufKeysMax,
                     " are read, so the file is damaged or not a language model");
    }
    if (*tensor_count > kGgufTensorsMax) {
      return Invalid("the header announces ", *tensor_count, " tensors; at most ", kGgufTensorsMax,
                     " are read, so the file is damaged or not a language model");
    }
    return absl::OkStatus();
  }

  static Status CheckVersion(uint32_t version) {
    if (version == 2 || version == 3) return absl::OkStatus();
    if (const uint32_t swapped = __builtin_bswap32(version); swapped >= 1 && swapped <= 0xFFFF) {
      return Invalid("it is a big-endian GGUF file (version ", swapped,
                     "), made for another kind of machine; fetch the little-endian one, or convert "
                     "it with gguf-convert-endian");
    }
    if (version == 1) {
      return absl::UnimplementedError(
          "it has GGUF version 1, an old format that is no longer read; fetch or convert a newer "
          "version of the model");
    }
    if (version == 0) return Invalid("its GGUF version is 0, so the file is damaged");
    return absl::UnimplementedError(
        StrCat("it has GGUF version ", version,
               ", and versions 2 and 3 are read; the file is damaged or newer than this program"));
  }

  Status ParseKey(uint64_t index) {
    const std::string where = StrCat("metadata key ", index + 1);
    uint64_t key_bytes = 0;
    std::string_view key;
    if (!in_.Read(&key_bytes)) return Truncated(where);
    if (key_bytes > in_.left() || key_bytes > kGgufKeyBytesMax) {
      return Invalid(where, " has a length of ", key_bytes, " bytes (", in_.left(),
                     " are left, at most ", kGgufKeyBytesMax,
                     " are allowed); the file is damaged, so fetch it again");
    }
    if (!in_.ReadBytes(key_bytes, &key)) return Truncated(where);
    if (key.empty()) return Invalid(where, " is empty; the file is damaged");
    if (key.find('\0') != key.npos || !IsValidUtf8(key)) {
      return Invalid(where, " (\"", EscapeForMessage(key), "\") is not text; the file is damaged");
    }
    if (!keys_.insert(key).second) {
      return Invalid("the key '", EscapeForMessage(key),
                     "' stands twice in the metadata (duplicate); ",
                     "the file is damaged or was edited wrongly");
    }
    GgufValue value;
    STAFFEL_RETURN_IF_ERROR(ParseValue(key, &value));
    header_.metadata.emplace_back(key, value);
    return absl::OkStatus();
  }

  Status ParseValue(std::string_view key, GgufValue* value) {
    uint32_t number = 0;
    if (!in_.Read(&number)) return Truncated(KeyName(key));
    const GgufTypeInfo* info = FindGgufType(number);
    if (info == nullptr) {
      return Invalid(KeyName(key), " has the unknown value type ", number,
                     "; the file is damaged or newer than this program");
    }
    value->type = info->type;
    if (info->type == GgufType::kArray) return ParseArray(key, value);
    if (info->type == GgufType::kString) return ParseString(key, &value->bytes);
    if (!in_.ReadBytes(info->bytes, &value->bytes)) return Truncated(KeyName(key));
    return absl::OkStatus();
  }

  Status ParseString(std::string_view key, std::string_view* text) {
    uint64_t length = 0;
    if (!in_.Read(&length)) return Truncated(KeyName(key));
    if (!in_.ReadBytes(length, text)) {
      return Invalid(KeyName(key), " has a string of ", length, " bytes where ", in_.left(),
                     " are left in the file; it is incomplete or damaged, so fetch it again");
    }
    return absl::OkStatus();
  }

  Status ParseArray(std::string_view key, GgufValue* value) {
    uint32_t number = 0;
    if (!in_.Read(&number) || !in_.Read(&value->count)) return Truncated(KeyName(key));
    const GgufTypeInfo* info = FindGgufType(number);
    if (info == nullptr) {
      return Invalid(KeyName(key), " is an array of the unknown value type ", number,
                     "; the file is damaged or newer than this program");
    }
    if (info->type == GgufType::kArray) {
      return Invalid(KeyName(key),
                     " is an array of arrays, which no model uses; the file is damaged");
    }
    value->element = info->type;
    const uint64_t element_bytes_min = info->type == GgufType::kString ? 8 : info->bytes;
    if (value->count > in_.left() / element_bytes_min) {
      return Invalid(KeyName(key), " is an array of ", value->count, " ", info->name,
                     " values, more than the remaining ", in_.left(),
                     " bytes can hold; the file is incomplete or damaged, so fetch it again");
    }
    if (info->type == GgufType::kString) return SkipStrings(key, value);
    if (!in_.ReadBytes(value->count * element_bytes_min, &value->bytes)) {
      return Truncated(KeyName(key));
    }
    return absl::OkStatus();
  }

  Status SkipStrings(std::string_view key, GgufValue* value) {
    const size_t begin = in_.position();
    std::string_view text;
    for (uint64_t i = 0; i < value->count; i++) {
      uint64_t length = 0;
      if (!in_.Read(&length) || !in_.ReadBytes(length, &text)) {
        return Invalid("element ", i, " of ", KeyName(key), " reaches past the end of the file (",
                       file_.size(), " bytes), so it is incomplete or damaged; fetch it again");
      }
      if (string_array_bytes_ + (in_.position() - begin) > kGgufStringArrayBytesMax) {
        return Invalid(KeyName(key), " makes the file's string arrays larger than ",
                       kGgufStringArrayBytesMax, " bytes, the most that is read");
      }
    }
    string_array_bytes_ += in_.position() - begin;
    value->bytes = {reinterpret_cast<const char*>(file_.data() + begin), in_.position() - begin};
    return absl::OkStatus();
  }

  Status ReadAlignment() {
    constexpr std::string_view kKey = "general.alignment";
    const auto entry = std::find_if(header_.metadata.begin(), header_.metadata.end(),
                                    [&](const auto& item) { return item.first == kKey; });
    if (entry == header_.metadata.end()) return absl::OkStatus();
    if (entry->second.type != GgufType::kU32) return Invalid("key '", kKey, "' must be a u32");
    uint32_t alignment = 0;
    std::memcpy(&alignment, entry->second.bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kGgufAlignmentMax) {
      return Invalid("key '", kKey, "' is ", alignment, "; it must be a power of two from 8 to ",
                     kGgufAlignmentMax);
    }
    alignment_ = alignment;
    return absl::OkStatus();
  }

  Status ParseTensor(uint64_t index) {
    TensorView tensor;
    STAFFEL_RETURN_IF_ERROR(ParseTensorName(index, &tensor.name));
    const std::string where = StrCat("tensor '", EscapeForMessage(tensor.name), "'");
    if (!names_.insert(tensor.name).second) {
      return Invalid(where, " stands twice in the file (duplicate); it is damaged");
    }
    STAFFEL_RETURN_IF_ERROR(ParseShape(where, &tensor));
    uint32_t type_number = 0;
    if (!in_.Read(&type_number)) return Truncated(where);
    STAFFEL_RETURN_IF_ERROR(SetType(where, type_number, &tensor));
    uint64_t offset = 0;
    if (!in_.Read(&offset)) return Truncated(where);
    if (offset % alignment_ != 0) {
      return Invalid(where, " has the offset ", offset,
                     ", which is not a multiple of the alignment ", alignment_,
                     "; the file is damaged");
    }
    offsets_.push_back(offset);
    header_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  Status ParseTensorName(uint64_t index, std::string* out) {
    const std::string where = StrCat("the name of tensor ", index + 1);
    uint64_t length = 0;
    std::string_view name;
    if (!in_.Read(&length)) return Truncated(where);
    if (length == 0 || length > kGgufTensorNameBytesMax) {
      return Invalid(where, " has ", length, " bytes, and 1 to ", kGgufTensorNameBytesMax,
                     " are allowed; the file is damaged");
    }
    if (!in_.ReadBytes(length, &name)) return Truncated(where);
    if (name.find('\0') != name.npos || !IsValidUtf8(name)) {
      return Invalid(where, " (\"", EscapeForMessage(name), "\") is not text; the file is damaged");
    }
    *out = std::string(name);
    return absl::OkStatus();
  }

  // Dimensions stand innermost first.
  Status ParseShape(const std::string& where, TensorView* tensor) {
    uint32_t dim_count = 0;
    if (!in_.Read(&dim_count)) return Truncated(where);
    if (dim_count < 1 || dim_count > kGgufDimsMax) {
      return Invalid(where, " has ", dim_count, " dimensions, and 1 to ", kGgufDimsMax,
                     " are allowed; the file is damaged");
    }
    int64_t dims[kGgufDimsMax] = {1, 1, 1, 1};
    int64_t elements = 1;
    for (uint32_t i = 0; i < dim_count; i++) {
      uint64_t dim = 0;
      if (!in_.Read(&dim)) return Truncated(where);
      if (dim == 0) return Invalid("dimension ", i, " of ", where, " is 0; the file is damaged");
      if (dim > INT64_MAX)
        return Invalid("dimension ", i, " of ", where, " is ", dim, ", too large");
      dims[i] = static_cast<int64_t>(dim);
      if (__builtin_mul_overflow(elements, dims[i], &elements)) {
        return Invalid("the dimensions of ", where, " (", absl::StrJoin(dims, dims + i + 1, " x "),
                       ") multiply to more than 2^63; the file is damaged");
      }
    }
    tensor->cols = dims[0];
    tensor->rows = elements / dims[0];
    return absl::OkStatus();
  }

  static Status SetType(const std::string& where, uint32_t number, TensorView* tensor) {
    const DTypeInfo* info = FindDType(number);
    if (info == nullptr) {
      const char* name = RemovedOrUnsupportedTypeName(number);
      return absl::UnimplementedError(StrCat(
          where, " has the element type ", number, name ? StrCat(" (", name, ")") : "",
          ", which this version does not read; the file may be newer than this program: take a "
          "newer staffel, or the model quantised as Q4_K_M, Q5_K_M, Q6_K or Q8_0"));
    }
    tensor->type = info->type;
    if (tensor->cols % info->block_elements != 0) {
      return Invalid(where, " has rows of ", tensor->cols, " elements, which are not whole ",
                     info->name, " blocks of ", info->block_elements, "; the file is damaged");
    }
    return absl::OkStatus();
  }

  // Gives every tensor its bytes: all inside the file, none shared.
  Status PlaceTensors() {
    header_.bytes = static_cast<int64_t>(in_.position());
    if (header_.tensors.empty()) return absl::OkStatus();
    const uint64_t data_begin = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    if (data_begin > file_.size()) return Truncated("the padding after the header");
    header_.bytes = static_cast<int64_t>(data_begin);
    const absl::Span<const uint8_t> data = file_.subspan(data_begin);
    for (size_t i = 0; i < header_.tensors.size(); i++) {
      TensorView& tensor = header_.tensors[i];
      const DTypeInfo& info = InfoOf(tensor.type);
      int64_t size = 0;
      if (__builtin_mul_overflow(tensor.cols / info.block_elements, int64_t{info.block_bytes},
                                 &size) ||
          __builtin_mul_overflow(size, tensor.rows, &size) || offsets_[i] > data.size() ||
          static_cast<uint64_t>(size) > data.size() - offsets_[i]) {
        return Invalid("tensor '", EscapeForMessage(tensor.name), "' (", info.name, ", ",
                       tensor.rows, " x ", tensor.cols, " at offset ", offsets_[i],
                       ") reaches past the end of the file (", file_.size(),
                       " bytes), which is incomplete or damaged; fetch it again");
      }
      tensor.bytes = data.subspan(offsets_[i], size);
    }
    return CheckOverlap();
  }

  Status CheckOverlap() const {
    std::vector<const TensorView*> order;
    order.reserve(header_.tensors.size());
    for (const TensorView& tensor : header_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
      return a->bytes.data() < b->bytes.data();
    });
    for (size_t i = 1; i < order.size(); i++) {
      if (order[i - 1]->bytes.end() > order[i]->bytes.begin()) {
        return Invalid("the tensors '", EscapeForMessage(order[i - 1]->name), "' and '",
                       EscapeForMessage(order[i]->name), "' overlap in the file; it is damaged");
      }
    }
    return absl::OkStatus();
  }

  static std::string KeyName(std::string_view key) {
    return StrCat("key '", EscapeForMessage(key), "'");
  }

  const absl::Span<const uint8_t> file_;
  ByteReader in_;
  GgufHeader header_;
  uint64_t alignment_ = kGgufDefaultAlignment;
  size_t string_array_bytes_ = 0;
  std::vector<uint64_t> offsets_;  // by tensor, from the begin of the data
  absl::flat_hash_set<std::string_view> keys_;
  absl::flat_hash_set<std::string> names_;
};

}  // namespace

Result<GgufHeader> ParseGgufHeader(absl::Span<const uint8_t> file) { return Parser(file).Parse(); }

std::string EscapeForMessage(std::string_view text) {
  constexpr size_t kShown = 80;
  if (text.size() <= kShown)
    return IsValidUtf8(text) ? absl::Utf8SafeCEscape(std::string(text))
                             : absl::CEscape(std::string(text));
  return StrCat(absl::CEscape(std::string(text.substr(0, kShown))), "...");
}

}  // namespace staffel
