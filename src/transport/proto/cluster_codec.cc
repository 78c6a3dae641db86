#include "transport/proto/cluster_codec.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "transport/proto/cluster_messages.h"
#include "transport/proto/numbers.h"

namespace staffel {
namespace {

// A plan in one step is bounded by the token budget, an outcome by its log-probabilities.
constexpr size_t kMessageBytesMax = 256 << 20;

template <class Message>
Status Parse(std::string_view bytes, const char* what, Message& message) {
  if (bytes.size() > kMessageBytesMax ||
      !message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(StrCat(bytes.size(), " bytes are not a ", what));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SerializeHello(const Hello& hello) {
  proto::WorkerMessage message;
  WriteHello(hello, *message.mutable_hello());
  return message.SerializeAsString();
}

std::string SerializeWorkerMessage(const WorkerMessage& message) {
  proto::WorkerMessage out;
  WriteWorkerMessage(message, out);
  return out.SerializeAsString();
}

std::string SerializeMasterMessage(const MasterMessage& message) {
  proto::MasterMessage out;
  WriteMasterMessage(message, out);
  return out.SerializeAsString();
}

std::string SerializePing() {
  proto::MasterMessage message;
  message.mutable_ping();
  return message.SerializeAsString();
}

std::string SerializeModelRequest(const ModelRequest& request) {
  proto::ReadModelRequest out;
  out.set_digest(request.digest);
  for (const ModelRange& range : request.ranges) {
    out.add_offsets(range.offset);
    out.add_sizes(range.size);
  }
  return out.SerializeAsString();
}

std::string ModelBytesHeader(size_t data_bytes) {
  constexpr uint8_t kDataTag = proto::ModelBytes::kDataFieldNumber << 3 | 2;  // length-delimited
  uint8_t buffer[16] = {kDataTag};
  const uint8_t* end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(data_bytes, buffer + 1);
  return std::string(reinterpret_cast<const char*>(buffer), end - buffer);
}

Result<Hello> ParseHello(std::string_view bytes, ProtocolVersion own) {
  proto::WorkerMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "Hello", in));
  if (!in.has_hello()) {
    return absl::InvalidArgumentError("the first message of a worker must be its Hello");
  }
  const uint32_t major = in.hello().protocol_major(), minor = in.hello().protocol_minor();
  const uint32_t distance = std::max(minor, own.minor) - std::min(minor, own.minor);
  if (major != own.major || distance > 1) {
    return absl::FailedPreconditionError(
        StrCat("the worker speaks protocol ", major, ".", minor, " and the master ", own.major, ".",
               own.minor,
               "; the major version must be equal and the minor one at most 1 apart: "
               "use neighbouring versions of staffel on both"));
  }
  return ReadHello(in.hello());
}

Result<std::optional<WorkerMessage>> ParseWorkerMessage(std::string_view bytes) {
  proto::WorkerMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "WorkerMessage", in));
  return ReadWorkerMessage(in);
}

Result<std::optional<MasterMessage>> ParseMasterMessage(std::string_view bytes) {
  proto::MasterMessage in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "MasterMessage", in));
  return ReadMasterMessage(in);
}

Result<ModelRequest> ParseModelRequest(std::string_view bytes) {
  proto::ReadModelRequest in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "ReadModelRequest", in));
  Numbers numbers;
  ModelRequest request;
  request.digest = numbers.Text(in.digest(), "digest", kNameBytesMax);
  if (in.offsets_size() != in.sizes_size()) numbers.Refuse("offsets and sizes differ in number");
  numbers.TooMany(in.offsets_size(), MasterLink::kReadRangesMax, "ranges");
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  for (int i = 0; i < in.offsets_size(); ++i) {
    const ModelRange range{numbers.Count(in.offsets(i), "offset"),
                           numbers.Count(in.sizes(i), "size")};
    if (range.size > std::numeric_limits<int64_t>::max() - range.offset) {
      numbers.Refuse(
          StrCat("offset ", range.offset, " and size ", range.size, " are out of range"));
    }
    request.ranges.push_back(range);
  }
  STAFFEL_RETURN_IF_ERROR(numbers.status());
  return request;
}

Result<std::string> ParseModelBytes(std::string_view bytes) {
  proto::ModelBytes in;
  STAFFEL_RETURN_IF_ERROR(Parse(bytes, "ModelBytes", in));
  return std::move(*in.mutable_data());
}

}  // namespace staffel
