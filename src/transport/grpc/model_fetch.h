// A worker's reads of model bytes from the master, over a connection of their own, so that they do
// not delay steps.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "absl/types/span.h"
#include "staffel/cluster.h"
#include "staffel/status.h"
#include "transport/proto/cluster_codec.h"

namespace staffel {

class ModelFetch {
 public:
  using Sink = std::function<Status(absl::Span<const uint8_t>)>;

  // `make_channel` is asked at the first read.
  ModelFetch(std::function<std::shared_ptr<grpc::Channel>()> make_channel, std::string token)
      : make_channel_(std::move(make_channel)), token_(std::move(token)) {}

  // MasterLink::ReadModel. Any thread.
  Status Read(const std::string& digest, absl::Span<const ModelRange> ranges, const Sink& sink);
  // Ends all reads, those to come too.
  void Cancel();

 private:
  Status ReadOnce(const ModelRequest& request, const Sink& sink);

  const std::function<std::shared_ptr<grpc::Channel>()> make_channel_;
  const std::string token_;
  std::mutex mutex_;
  // Guarded by mutex_:
  std::shared_ptr<grpc::Channel> channel_;
  std::set<grpc::ClientContext*> reads_;
  bool cancelled_ = false;
};

}  // namespace staffel
