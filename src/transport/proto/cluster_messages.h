// The messages of include/staffel/cluster.h as protobuf messages. Rules as in cluster_codec.h.
#pragma once

#include <optional>

#include "cluster.pb.h"
#include "staffel/cluster.h"
#include "staffel/status.h"

namespace staffel {

void WriteHello(const Hello& hello, proto::Hello& out);
void WriteWorkerMessage(const WorkerMessage& message, proto::WorkerMessage& out);
void WriteMasterMessage(const MasterMessage& message, proto::MasterMessage& out);

Result<Hello> ReadHello(const proto::Hello& in);
Result<std::optional<WorkerMessage>> ReadWorkerMessage(const proto::WorkerMessage& in);
Result<std::optional<MasterMessage>> ReadMasterMessage(const proto::MasterMessage& in);

}  // namespace staffel
