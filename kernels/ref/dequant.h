// Stored weights to f32: the plain definition of every element type. Block layouts: ggml's
// quantisation blocks as named by the GGUF specification (ggml/docs/gguf.md).
#pragma once

#include <cstdint>

#include "staffel/tensor.h"

namespace staffel::ref {

// IEEE 754 binary16 and bfloat16, by their bits.
float HalfToFloat(uint16_t bits);
float Bfloat16ToFloat(uint16_t bits);

// out[count] = the elements stored at `bytes`; count is a multiple of the type's block_elements.
// `bytes` may have any alignment.
void Dequantize(DType type, const uint8_t* bytes, int64_t count, float* out);

}  // namespace staffel::ref
