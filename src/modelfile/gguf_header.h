// The header of one GGUF file: metadata entries and tensors, parsed from untrusted bytes. Values
// stay where they are in the file; what is returned points into it.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "modelfile/gguf_format.h"
#include "staffel/status.h"
#include "staffel/tensor.h"

namespace staffel {

// A metadata value. Arrays of arrays do not exist here: the parser refuses them.
struct GgufValue {
  GgufType type = GgufType::kU8;  // kArray: `element` is the type of its elements
  GgufType element = GgufType::kU8;
  uint64_t count = 1;  // elements of an array
  // A scalar's or string's own bytes; an array's elements as stored (strings with their lengths).
  std::string_view bytes;
};

struct GgufHeader {
  uint32_t version = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // in file order, keys differ
  std::vector<TensorView> tensors;                               // in file order, names differ
  int64_t bytes = 0;  // from the file's begin to the tensors' data
};

// InvalidArgument and Unimplemented name the key or tensor that is wrong. Bytes that do not begin
// with "GGUF" are named for what they are.
Result<GgufHeader> ParseGgufHeader(absl::Span<const uint8_t> file);

// A string for messages: control characters and invalid UTF-8 escaped, long ones shortened.
std::string EscapeForMessage(std::string_view text);

}  // namespace staffel
