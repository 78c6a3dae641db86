#include "modelfile/foreign_format.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"

#include "absl/strings/str_format.h"
#include "base/strings.h"

namespace staffel {
namespace {

struct Signature {
  std::string_view prefix;
  const char* kind;
  const char* advice;
};

constexpr const char* kConvert = "convert the model to GGUF (llama.cpp: convert_hf_to_gguf.py)";
constexpr const char* kOldGgml =
    "old ggml formats are no longer read, so fetch or convert a GGUF version of the model";
constexpr const char* kUnpack = "unpack it and give the GGUF file inside";
constexpr const char* kDownload =
    "the download gave something else than the model, so fetch the file itself again";

// Old ggml magics were written as little-endian words, so the letters stand reversed in the file.
constexpr Signature kSignatures[] = {
    {"lmgg", "an old ggml file", kOldGgml},
    {"GGML", "an old ggml file", kOldGgml},
    {"fmgg", "an old ggml file (GGMF)", kOldGgml},
    {"GGMF", "an old ggml file (GGMF)", kOldGgml},
    {"tjgg", "an old ggml file (GGJT)", kOldGgml},
    {"GGJT", "an old ggml file (GGJT)", kOldGgml},
    {"algg", "an old ggml adapter (GGLA)", kOldGgml},
    {"GGLA", "an old ggml adapter (GGLA)", kOldGgml},
    {"FUGG", "a file with a byte-swapped GGUF magic", "convert it for little-endian machines"},
    {"version https://git-lfs", "a git-LFS pointer", "fetch the model itself with `git lfs pull`"},
    {"PK\x03\x04", "a zip archive or a PyTorch checkpoint", kConvert},
    {"\x80\x02", "a pickled PyTorch checkpoint", kConvert},
    {"\x80\x03", "a pickled PyTorch checkpoint", kConvert},
    {"\x80\x04", "a pickled PyTorch checkpoint", kConvert},
    {"\x80\x05", "a pickled PyTorch checkpoint", kConvert},
    {"\x89HDF", "an HDF5 file", kConvert},
    {"\x93NUMPY", "a NumPy file", kConvert},
    {"\x1f\x8b", "a gzip archive", kUnpack},
    {"\x28\xb5\x2f\xfd", "a zstd archive", kUnpack},
    {"\xfd"
     "7zXZ",
     "an xz archive", kUnpack},
    {"BZh", "a bzip2 archive", kUnpack},
    {"7z\xbc\xaf", "a 7z archive", kUnpack},
    {"Rar!", "a RAR archive", kUnpack},
    {"\x7f"
     "ELF",
     "a program", "give the path of a GGUF file"},
    {"%PDF", "a PDF document", kDownload},
    {"#!", "a script", "give the path of a GGUF file"},
};

bool IsSafetensors(absl::Span<const uint8_t> bytes) {
  uint64_t header_bytes;
  if (bytes.size() < 10) return false;
  std::memcpy(&header_bytes, bytes.data(), 8);
  return bytes[8] == '{' && header_bytes >= 2 && header_bytes <= bytes.size() - 8;
}

std::string Sentence(std::string_view kind, std::string_view advice) {
  return StrCat("it is ", kind, ", not a GGUF file; ", advice);
}

// Web pages, JSON, plain text: whatever a failed download or a wrong path gives.
std::string DescribeText(std::string_view text) {
  const std::string start =
      absl::AsciiStrToLower(absl::StripLeadingAsciiWhitespace(std::string(text.substr(0, 512))));
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) {
    return Sentence("a web page (HTML)", kDownload);
  }
  if (start.starts_with("<?xml") || start.starts_with("<error")) {
    return Sentence("an XML document", kDownload);
  }
  if (start.starts_with("{") || start.starts_with("[")) {
    return Sentence("a JSON file", "give the path of the GGUF file itself");
  }
  return Sentence("a text file", "give the path of a GGUF file");
}

}  // namespace

std::string DescribeFolder(const std::string& path) {
  // Few enough to look at, whatever the folder holds.
  constexpr int kEntriesMax = 1000;
  std::string model;
  bool has_safetensors = false;
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator at(path, error), end; at != end && count < kEntriesMax;
       at.increment(error), count++) {
    if (error) break;
    const std::string name = at->path().filename().string();
    has_safetensors |= name.ends_with(".safetensors");
    if (name.ends_with(".gguf") && (model.empty() || name < model)) model = name;
  }
  if (!model.empty()) return StrCat("it is a folder; give a file in it, such as '", model, "'");
  if (has_safetensors) return Sentence("a folder with safetensors files", kConvert);
  return "it is a folder without a GGUF file; give the path of a GGUF file";
}

std::string DescribeForeignFile(absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) {
    return "the file is empty (0 bytes), so the download or copy failed; fetch it again";
  }
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Signature& signature : kSignatures) {
    if (all.starts_with(signature.prefix)) return Sentence(signature.kind, signature.advice);
  }
  if (all.substr(0, 8).find("TFL3") != all.npos)
    return Sentence("a TensorFlow Lite file", kConvert);
  if (all.size() > 262 && all.substr(257, 5) == "ustar") return Sentence("a tar archive", kUnpack);
  if (IsSafetensors(bytes)) return Sentence("a safetensors file", kConvert);
  const std::string_view start = all.substr(0, 512);
  if (std::all_of(start.begin(), start.end(), [](char c) { return c == '\0'; })) {
    return "it begins with zeros, so the download or copy is incomplete; fetch it again";
  }
  if (std::all_of(start.begin(), start.end(), [](unsigned char c) {
        return absl::ascii_isprint(c) || absl::ascii_isspace(c) || c >= 0x80;
      })) {
    return DescribeText(all);
  }
  std::string magic;
  for (const unsigned char c : all.substr(0, 4)) absl::StrAppendFormat(&magic, " %02x", c);
  return StrCat("it is not a GGUF file: its magic bytes are", magic,
                " where 47 47 55 46 (GGUF) must stand; check that it is the right file");
}

}  // namespace staffel
