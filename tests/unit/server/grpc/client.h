// A client of any gRPC method, which gives and takes bytes; and a server around it.
#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/grpc/server.h"
#include "server/task_pool.h"

namespace staffel {

// One call. Each function waits for what it asks for.
class ClientCall {
 public:
  using Options = std::function<void(grpc::ClientContext&)>;

  ClientCall(const std::string& address, const std::string& method, const Options& options = {}) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    grpc::GenericStub stub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (options) options(context_);
    stream_ = stub.PrepareCall(&context_, method, &queue_);
    stream_->StartCall(this);
    Wait();
  }
  ~ClientCall() {
    if (!ended_) {
      Cancel();
      End();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  ClientCall(const ClientCall&) = delete;
  ClientCall& operator=(const ClientCall&) = delete;

  bool Send(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    stream_->Write(grpc::ByteBuffer(&slice, 1), this);
    return Wait();
  }
  void SendEnd() {
    stream_->WritesDone(this);
    Wait();
  }
  bool Read(std::string* bytes) {
    grpc::ByteBuffer buffer;
    stream_->Read(&buffer, this);
    if (!Wait()) return false;
    std::vector<grpc::Slice> slices;
    STAFFEL_CHECK(buffer.Dump(&slices).ok());
    bytes->clear();
    for (const grpc::Slice& slice : slices)
      bytes->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return true;
  }
  void WaitForBegin() {
    stream_->ReadInitialMetadata(this);
    Wait();
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() {
    grpc::Status status;
    stream_->Finish(&status, this);
    Wait();
    ended_ = true;
    return status;
  }
  std::string InitialMetadata(const std::string& key) const {
    return Find(context_.GetServerInitialMetadata(), key);
  }
  std::string TrailingMetadata(const std::string& key) const {
    return Find(context_.GetServerTrailingMetadata(), key);
  }

 private:
  static std::string Find(const std::multimap<grpc::string_ref, grpc::string_ref>& all,
                          const std::string& key) {
    const auto found = all.find(key);
    return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
  }
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    STAFFEL_CHECK(queue_.Next(&tag, &ok));
    return ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool ended_ = false;
};

struct Reply {
  grpc::Status status;
  std::vector<std::string> messages;
  std::string request_id;
  std::string pushback;
};

// A whole call with one message.
inline Reply Ask(const std::string& address, const std::string& method, const std::string& bytes,
                 const ClientCall::Options& options = {}) {
  ClientCall call(address, method, options);
  Reply reply;
  call.Send(bytes);
  call.SendEnd();
  for (std::string message; call.Read(&message);) reply.messages.push_back(message);
  reply.status = call.End();
  reply.request_id = call.InitialMetadata("x-request-id");
  reply.pushback = call.TrailingMetadata("grpc-retry-pushback-ms");
  return reply;
}

struct GrpcWorld {
  explicit GrpcWorld(GrpcServerOptions options = {}) {
    options.hosts = {"127.0.0.1"};
    server = std::make_unique<GrpcServer>(std::move(options), &pool, nullptr);
  }
  void Start() {
    STAFFEL_CHECK(server->Start().ok());
    address = server->addresses()[0];
    server->SetAvailable(nullptr);
  }
  // A method that takes one message.
  void Handle(const std::string& path,
              std::function<void(std::string, std::shared_ptr<GrpcCall>)> handle) {
    server->Handle({.path = path, .handle = std::move(handle)});
  }

  TaskPool pool{2};
  std::unique_ptr<GrpcServer> server;
  std::string address;
};

}  // namespace staffel
