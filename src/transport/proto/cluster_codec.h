// The messages of include/staffel/cluster.h as bytes (proto/cluster.proto), and back. Pure. What is
// parsed has been checked: every number is within its type and what its meaning allows, every list
// and text within a limit, every rank within its plan.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel {

// What a worker asks for of a model.
struct ModelRequest {
  std::string digest;
  std::vector<ModelRange> ranges;
};

std::string SerializeHello(const Hello& hello);
std::string SerializeWorkerMessage(const WorkerMessage& message);
std::string SerializeMasterMessage(const MasterMessage& message);
std::string SerializePing();
std::string SerializeModelRequest(const ModelRequest& request);
// The start of a ModelBytes message whose `data_bytes` bytes follow as they are.
std::string ModelBytesHeader(size_t data_bytes);

// FailedPrecondition: a protocol that `own` does not speak, with both versions; checked before the
// rest, whose meaning depends on it. InvalidArgument, here and below: no such message, or a value
// that cannot be; one sentence says which.
Result<Hello> ParseHello(std::string_view bytes, ProtocolVersion own);
// nullopt: nothing to hand on, a ping or what only a newer version knows.
Result<std::optional<WorkerMessage>> ParseWorkerMessage(std::string_view bytes);
Result<std::optional<MasterMessage>> ParseMasterMessage(std::string_view bytes);
Result<ModelRequest> ParseModelRequest(std::string_view bytes);
Result<std::string> ParseModelBytes(std::string_view bytes);

}  // namespace staffel
