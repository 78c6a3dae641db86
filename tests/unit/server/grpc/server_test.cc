#include "server/grpc/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "inference.pb.h"
#include "tests/unit/server/grpc/client.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::DetokenizeResponse Message(std::string text) {
  v1::DetokenizeResponse message;
  message.set_prompt(std::move(text));
  return message;
}
std::string Bytes(std::string text) { return Message(std::move(text)).SerializeAsString(); }

void Echo(const std::string& bytes, const std::shared_ptr<GrpcCall>& call) {
  v1::DetokenizeResponse message;
  STAFFEL_CHECK(message.ParseFromString(bytes));
  call->Write(message);
  call->Finish();
}

ClientCall::Options With(const std::string& key, const std::string& value) {
  return [=](grpc::ClientContext& context) { context.AddMetadata(key, value); };
}

TEST(GrpcServer, AnswersAndSendsTheRequestIdBack) {
  GrpcWorld world;
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  const Reply reply = Ask(world.address, "/t.T/Echo", Bytes("hi"), With("x-request-id", "abc"));
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  EXPECT_THAT(reply.messages, ElementsAre(Bytes("hi")));
  EXPECT_EQ(reply.request_id, "abc");
  EXPECT_THAT(Ask(world.address, "/t.T/Echo", Bytes("hi")).request_id, Not(IsEmpty()));
}

TEST(GrpcServer, StreamsMessagesAndThenTheStatus) {
  GrpcWorld world;
  world.Handle("/t.T/Three", [](const std::string&, const std::shared_ptr<GrpcCall>& call) {
    for (const char* text : {"a", "b", "c"}) EXPECT_TRUE(call->Write(Message(text)));
    call->Fail({.status = 404, .message = "no more", .param = "p"});
    EXPECT_FALSE(call->Write(Message("d")));
    call->Finish();  // ignored
  });
  world.Start();
  const Reply reply = Ask(world.address, "/t.T/Three", "");
  EXPECT_THAT(reply.messages, ElementsAre(Bytes("a"), Bytes("b"), Bytes("c")));
  EXPECT_EQ(reply.status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(reply.status.error_message(), "no more");
  EXPECT_THAT(reply.status.error_details(), HasSubstr("google.rpc.BadRequest"));
}

TEST(GrpcServer, BeginReachesTheClientBeforeTheFirstMessage) {
  GrpcWorld world;
  std::promise<std::shared_ptr<GrpcCall>> promise;
  world.Handle("/t.T/Begin", [&](const std::string&, std::shared_ptr<GrpcCall> call) {
    call->Begin();
    promise.set_value(std::move(call));
  });
  world.Start();
  ClientCall client(world.address, "/t.T/Begin");
  client.Send("");
  client.SendEnd();
  client.WaitForBegin();  // returns though nothing was written
  EXPECT_THAT(client.InitialMetadata("x-request-id"), Not(IsEmpty()));
  promise.get_future().get()->Finish();
  EXPECT_TRUE(client.End().ok());
}

TEST(GrpcServer, NeedsAKeyForAllButOpenMethods) {
  GrpcWorld world({.api_keys = {"secret"}});
  world.Handle("/t.T/Echo", Echo);
  world.server->Handle({.path = "/t.T/Open", .open = true, .handle = Echo});
  world.Start();
  for (const char* method : {"/t.T/Echo", "/t.T/Unknown"}) {
    const Reply none = Ask(world.address, method, Bytes("hi"));
    EXPECT_EQ(none.status.error_code(), grpc::UNAUTHENTICATED);
    EXPECT_THAT(none.messages, IsEmpty());
    const Reply wrong =
        Ask(world.address, method, Bytes("hi"), With("authorization", "Bearer public"));
    EXPECT_EQ(wrong.status.error_code(), grpc::UNAUTHENTICATED);
    EXPECT_THAT(wrong.status.error_message(), HasSubstr("authorization: Bearer KEY"));
  }
  EXPECT_TRUE(Ask(world.address, "/t.T/Echo", Bytes("hi"), With("authorization", "Bearer secret"))
                  .status.ok());
  EXPECT_TRUE(
      Ask(world.address, "/t.T/Echo", Bytes("hi"), With("x-api-key", "secret")).status.ok());
  EXPECT_TRUE(Ask(world.address, "/t.T/Open", Bytes("hi")).status.ok());
}

TEST(GrpcServer, UnknownMethodsAreUnimplemented) {
  GrpcWorld world;
  world.Start();
  const Reply reply = Ask(world.address, "/t.T/Nothing", "");
  EXPECT_EQ(reply.status.error_code(), grpc::UNIMPLEMENTED);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("/t.T/Nothing"));
}

TEST(GrpcServer, SaysWhyItIsUnavailableAndWhenToComeBack) {
  GrpcWorld world;
  world.Handle("/t.T/Echo", Echo);
  world.server->Handle({.path = "/t.T/Quick", .quick = true, .handle = Echo});
  world.Start();
  world.server->SetUnavailable("The model is being loaded (40 %).");
  const Reply reply = Ask(world.address, "/t.T/Echo", Bytes("hi"));
  EXPECT_EQ(reply.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_EQ(reply.status.error_message(), "The model is being loaded (40 %).");
  EXPECT_EQ(reply.pushback, "2000");
  EXPECT_THAT(reply.status.error_details(), HasSubstr("google.rpc.RetryInfo"));
  EXPECT_TRUE(Ask(world.address, "/t.T/Quick", Bytes("hi")).status.ok());
  world.server->SetAvailable(nullptr);
  EXPECT_TRUE(Ask(world.address, "/t.T/Echo", Bytes("hi")).status.ok());
}

TEST(GrpcServer, ACallThatIsDroppedFailsAsOurFault) {
  GrpcWorld world;
  world.Handle("/t.T/Drop", [](const std::string&, const std::shared_ptr<GrpcCall>&) {});
  world.Start();
  EXPECT_EQ(Ask(world.address, "/t.T/Drop", "").status.error_code(), grpc::INTERNAL);
}

TEST(GrpcServer, ACallWithoutAMessageIsInvalid) {
  GrpcWorld world;
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  ClientCall client(world.address, "/t.T/Echo");
  client.SendEnd();
  EXPECT_EQ(client.End().error_code(), grpc::INVALID_ARGUMENT);
}

// A method that waits until its client has gone.
struct Waiting {
  explicit Waiting(GrpcWorld& world) {
    world.Handle("/t.T/Wait", [this](const std::string&, std::shared_ptr<GrpcCall> call) {
      call->OnDisconnect([this] { gone.set_value(); });
      call->Begin();
      taken.set_value(std::move(call));
    });
  }
  std::promise<std::shared_ptr<GrpcCall>> taken;
  std::promise<void> gone;
};

TEST(GrpcServer, TellsOfACancel) {
  GrpcWorld world;
  Waiting waiting(world);
  world.Start();
  ClientCall client(world.address, "/t.T/Wait");
  client.Send("");
  client.WaitForBegin();
  const auto call = waiting.taken.get_future().get();
  client.Cancel();
  EXPECT_EQ(client.End().error_code(), grpc::CANCELLED);
  waiting.gone.get_future().get();
  EXPECT_FALSE(call->Write(Message("too late")));
  bool told = false;
  call->OnDisconnect([&] { told = true; });  // within the call, since it is so already
  EXPECT_TRUE(told);
}

TEST(GrpcServer, TellsOfADeadline) {
  GrpcWorld world;
  Waiting waiting(world);
  world.Start();
  const auto begin = std::chrono::steady_clock::now();
  const Reply reply = Ask(world.address, "/t.T/Wait", "", [](grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  });
  EXPECT_EQ(reply.status.error_code(), grpc::DEADLINE_EXCEEDED);
  waiting.gone.get_future().get();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// Writes until the client's buffer is full: how many went in.
int Flood(const std::shared_ptr<GrpcCall>& call, const std::string& text) {
  int written = 0;
  while (written < 100'000 && call->Write(Message(text))) written++;
  return written;
}

TEST(GrpcServer, ASlowReaderIsCutOffAndHoldsNobody) {
  GrpcWorld world({.buffer_bytes_max = 1 << 20});
  std::promise<int> written;
  world.Handle("/t.T/Flood", [&](const std::string&, const std::shared_ptr<GrpcCall>& call) {
    written.set_value(Flood(call, std::string(64 << 10, 'x')));
  });
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  ClientCall slow(world.address, "/t.T/Flood");
  slow.Send("");
  slow.SendEnd();
  EXPECT_LT(written.get_future().get(), 1000);
  EXPECT_TRUE(Ask(world.address, "/t.T/Echo", Bytes("hi")).status.ok());
  for (std::string message; slow.Read(&message);) {
  }
  const grpc::Status status = slow.End();
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("too slowly"));
}

TEST(GrpcServer, AReaderThatTakesNothingIsCancelledAfterTheTimeout) {
  GrpcWorld world({.buffer_bytes_max = 64 << 20, .write_timeout = std::chrono::milliseconds(300)});
  world.Handle("/t.T/Much", [](const std::string&, const std::shared_ptr<GrpcCall>& call) {
    for (int i = 0; i < 200; i++) call->Write(Message(std::string(64 << 10, 'x')));
    call->Finish();
  });
  world.Start();
  ClientCall slow(world.address, "/t.T/Much");
  slow.Send("");
  slow.SendEnd();
  for (int i = 0; i < 1000 && world.server->open_calls() > 0; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(world.server->open_calls(), 0);
}

TEST(GrpcServer, OneMessageMayBeLargerThanTheBuffer) {
  GrpcWorld world({.buffer_bytes_max = 1000});
  world.Handle("/t.T/Large", [](const std::string&, const std::shared_ptr<GrpcCall>& call) {
    EXPECT_TRUE(call->Write(Message(std::string(1 << 20, 'x'))));
    call->Finish();
  });
  world.Start();
  const Reply reply = Ask(world.address, "/t.T/Large", "");
  EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
  ASSERT_THAT(reply.messages, SizeIs(1));
  EXPECT_GT(reply.messages[0].size(), size_t{1} << 20);
}

TEST(GrpcServer, TooLargeMessagesAreRefused) {
  GrpcWorld world({.message_bytes_max = 1 << 16});
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  EXPECT_TRUE(Ask(world.address, "/t.T/Echo", Bytes(std::string(60'000, 'x'))).status.ok());
  const Reply reply = Ask(world.address, "/t.T/Echo", Bytes(std::string(70'000, 'x')));
  EXPECT_EQ(reply.status.error_code(), grpc::RESOURCE_EXHAUSTED);
}

TEST(GrpcServer, MessagesInProgressHaveALimitTogether) {
  GrpcWorld world({.messages_bytes_max = 100'000});
  Waiting waiting(world);
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  ClientCall first(world.address, "/t.T/Wait");
  first.Send(std::string(80'000, 'x'));
  auto call = waiting.taken.get_future().get();
  const Reply refused = Ask(world.address, "/t.T/Echo", Bytes(std::string(80'000, 'x')));
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  call->Finish();
  EXPECT_TRUE(first.End().ok());
  // The bytes are given back when nobody holds the call any more.
  call.reset();
  for (int i = 0; i < 500 && world.server->open_calls() > 0; i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(Ask(world.address, "/t.T/Echo", Bytes(std::string(80'000, 'x'))).status.ok());
}

// A small message may become any size, which is known only afterwards.
TEST(GrpcServer, CompressedRequestsAreRefused) {
  GrpcWorld world;
  world.Handle("/t.T/Echo", Echo);
  world.Start();
  const Reply reply = Ask(
      world.address, "/t.T/Echo", Bytes(std::string(50'000, 'x')),
      [](grpc::ClientContext& context) { context.set_compression_algorithm(GRPC_COMPRESS_GZIP); });
  EXPECT_EQ(reply.status.error_code(), grpc::UNIMPLEMENTED) << reply.status.error_message();
}

TEST(GrpcServer, ShutdownWaitsForCallsAndThenCancelsThem) {
  GrpcWorld world;
  Waiting waiting(world);
  world.Handle("/t.T/Later", [](const std::string&, std::shared_ptr<GrpcCall> call) {
    call->Begin();
    std::thread([call = std::move(call)] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      call->Write(Message("done"));
      call->Finish();
    }).detach();
  });
  world.Start();
  ClientCall later(world.address, "/t.T/Later"), never(world.address, "/t.T/Wait");
  for (ClientCall* call : {&later, &never}) {
    call->Send("");
    call->WaitForBegin();
  }
  const auto call = waiting.taken.get_future().get();
  std::thread stop([&] { world.server->Shutdown(std::chrono::seconds(2)); });
  std::string message;
  EXPECT_TRUE(later.Read(&message));
  EXPECT_EQ(message, Bytes("done"));
  EXPECT_TRUE(later.End().ok());
  EXPECT_FALSE(never.End().ok());
  waiting.gone.get_future().get();
  stop.join();
}

TEST(GrpcServer, AnAddressThatIsTakenIsAnErrorThatSaysSo) {
  GrpcWorld first;
  first.Start();
  const std::string port = first.address.substr(first.address.rfind(':') + 1);
  GrpcWorld second({.port = std::stoi(port)});
  const Status status = second.server->Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--grpc-port"));
}

TEST(GrpcServer, KeysThatNoClientCouldSendAreRefused) {
  GrpcWorld world({.api_keys = {"two\nlines"}});
  EXPECT_TRUE(absl::IsInvalidArgument(world.server->Start()));
}

}  // namespace
}  // namespace staffel
