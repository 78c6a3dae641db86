// Bytes that a stranger sends to the control plane: read or refused with a sentence; what is read
// comes out of another round trip as the same bytes, and ranks lie within their plan.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {
namespace {

void CheckRefusal(const Status& status) { STAFFEL_CHECK(!status.message().empty()); }

void CheckConfigure(const Configure& configure) {
  const int ranks = static_cast<int>(configure.plan.ranks.size());
  STAFFEL_CHECK(configure.rank >= 0 && configure.rank < ranks);
  for (const RankShard& shard : configure.plan.ranks) {
    STAFFEL_CHECK(shard.layers.size() >= 0 && shard.next_rank < ranks &&
                  shard.previous_rank < ranks);
    for (const int member : shard.group) STAFFEL_CHECK(member >= 0 && member < ranks);
  }
}

void CheckMaster(std::string_view bytes) {
  const auto message = ParseMasterMessage(bytes);
  if (!message.ok()) return CheckRefusal(message.status());
  if (!message->has_value()) return;
  if (const auto* configure = std::get_if<Configure>(&**message)) CheckConfigure(*configure);
  const std::string once = SerializeMasterMessage(**message);
  const auto again = ParseMasterMessage(once);
  STAFFEL_CHECK(again.ok() && again->has_value());
  STAFFEL_CHECK(SerializeMasterMessage(**again) == once);
}

void CheckWorker(std::string_view bytes) {
  const auto message = ParseWorkerMessage(bytes);
  if (!message.ok()) return CheckRefusal(message.status());
  if (!message->has_value()) return;
  const std::string once = SerializeWorkerMessage(**message);
  const auto again = ParseWorkerMessage(once);
  STAFFEL_CHECK(again.ok() && again->has_value());
  STAFFEL_CHECK(SerializeWorkerMessage(**again) == once);
}

}  // namespace
}  // namespace staffel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace staffel;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckMaster(bytes);
  CheckWorker(bytes);
  if (const auto hello = ParseHello(bytes, kClusterProtocol); hello.ok()) {
    STAFFEL_CHECK(!hello->name.empty() && !hello->devices.empty());
    STAFFEL_CHECK(ParseHello(SerializeHello(*hello), kClusterProtocol).ok());
  }
  if (const auto request = ParseModelRequest(bytes); request.ok()) {
    for (const ModelRange& range : request->ranges) {
      STAFFEL_CHECK(range.offset >= 0 && range.size >= 0 && range.offset + range.size >= 0);
    }
  }
  (void)ParseModelBytes(bytes);
  return 0;
}
