// Asks a question over gRPC and prints the answer as it comes: grpc_chat HOST:PORT QUESTION
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "inference.grpc.pb.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: grpc_chat HOST:PORT QUESTION\n";
    return 2;
  }
  const auto channel = grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials());
  const auto stub = staffel::v1::Inference::NewStub(channel);

  staffel::v1::ChatRequest request;
  staffel::v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content(argv[2]);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_sampling()->set_max_tokens(200);

  grpc::ClientContext context;
  // The server ends its work, too, when nobody waits for the answer any more.
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
  if (const char* key = std::getenv("STAFFEL_API_KEY")) {
    context.AddMetadata("authorization", std::string("Bearer ") + key);
  }
  const auto stream = stub->Chat(&context, request);
  staffel::v1::ChatResponse response;
  while (stream->Read(&response)) {
    for (const auto& choice : response.choices()) {
      std::cout << choice.delta().content() << std::flush;
    }
  }
  std::cout << "\n";
  const grpc::Status status = stream->Finish();
  if (status.ok()) return 0;
  std::cerr << "error " << status.error_code() << ": " << status.error_message() << "\n";
  return 1;
}
