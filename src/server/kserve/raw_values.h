// Elements of tensors in KServe's binary form (little-endian; texts behind a length of 4 bytes),
// and what all forms must hold. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/json_parse.h"
#include "server/kserve/request.h"

namespace staffel::api::kserve {

inline constexpr int64_t kElementsMax = 4096;  // of one tensor: texts and parameters, no data

// Appends `count` elements; false where `raw` does not hold exactly those. nullopt: the protocol
// has no such type.
std::optional<bool> LoadRaw(std::string_view type, std::string_view raw, int64_t count,
                            Json& values);

// Appends an element.
void AppendRaw(std::string& out, float value);
void AppendRaw(std::string& out, uint32_t value);
void AppendRaw(std::string& out, std::string_view text);

// An error of an input, with its name as param.
ApiError WrongInput(const std::string& name, std::string_view what);

// Texts must be UTF-8 and numbers finite.
std::optional<ApiError> CheckValues(const Tensor& tensor);

}  // namespace staffel::api::kserve
