// Reads and writes of whole spans, and what their failures mean. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "staffel/status.h"

namespace staffel {

// "'PATH' cannot be opened: ...", with what to do for a full disk or missing rights.
Status DiskError(std::string_view what, const std::string& path, int error);

// DataLoss: the file ends before.
Status ReadAll(int fd, const std::string& path, int64_t offset, absl::Span<uint8_t> out);
// ResourceExhausted: the disk or a quota is full.
Status WriteAll(int fd, const std::string& path, int64_t offset, absl::Span<const uint8_t> bytes);
Status WriteAll(int fd, const std::string& path, int64_t offset, std::string_view text);

}  // namespace staffel
