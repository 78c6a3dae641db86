// grpc.health.v1 and grpc.reflection.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "health.pb.h"
#include "inference.pb.h"
#include "reflection.pb.h"
#include "tests/unit/server/grpc/client.h"

namespace staffel {
namespace {

using ::testing::Contains;
using ::testing::UnorderedElementsAre;
using Health = grpc::health::v1::HealthCheckResponse;
using Reflected = grpc::reflection::v1::ServerReflectionResponse;
using Asked = grpc::reflection::v1::ServerReflectionRequest;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";

std::string Of(const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  return request.SerializeAsString();
}

Health::ServingStatus StatusIn(const std::string& bytes) {
  Health response;
  STAFFEL_CHECK(response.ParseFromString(bytes));
  return response.status();
}

TEST(GrpcHealth, CheckFollowsTheServer) {
  GrpcWorld world({.api_keys = {"secret"}});  // health needs none
  world.server->AddService("t.T");
  world.Start();
  std::atomic<bool> well = true;
  const auto health = [&] { return well ? absl::OkStatus() : absl::UnavailableError("stuck"); };
  const auto check = [&](const std::string& service) {
    const Reply reply = Ask(world.address, kCheck, Of(service));
    return reply.status.ok() ? StatusIn(reply.messages.at(0)) : Health::UNKNOWN;
  };
  world.server->SetUnavailable("starting");
  EXPECT_EQ(check(""), Health::NOT_SERVING);
  world.server->SetAvailable(health);
  EXPECT_EQ(check(""), Health::SERVING);
  EXPECT_EQ(check("t.T"), Health::SERVING);
  EXPECT_EQ(check("grpc.health.v1.Health"), Health::SERVING);
  well = false;
  EXPECT_EQ(check("t.T"), Health::NOT_SERVING);
  EXPECT_EQ(Ask(world.address, kCheck, Of("t.Other")).status.error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(Ask(world.address, kCheck, "\xFF").status.error_code(), grpc::INVALID_ARGUMENT);
}

TEST(GrpcHealth, WatchTellsOfChanges) {
  GrpcWorld world;
  world.Start();
  std::atomic<bool> well = true;
  world.server->SetUnavailable("starting");
  ClientCall watch(world.address, kWatch), unknown(world.address, kWatch);
  watch.Send(Of(""));
  unknown.Send(Of("t.Other"));
  std::string message;
  ASSERT_TRUE(watch.Read(&message));
  EXPECT_EQ(StatusIn(message), Health::NOT_SERVING);
  ASSERT_TRUE(unknown.Read(&message));
  EXPECT_EQ(StatusIn(message), Health::SERVICE_UNKNOWN);
  world.server->SetAvailable(
      [&] { return well ? absl::OkStatus() : absl::UnavailableError("stuck"); });
  ASSERT_TRUE(watch.Read(&message));
  EXPECT_EQ(StatusIn(message), Health::SERVING);
  well = false;  // nobody says so: it is asked
  ASSERT_TRUE(watch.Read(&message));
  EXPECT_EQ(StatusIn(message), Health::NOT_SERVING);
  unknown.Cancel();
  EXPECT_EQ(unknown.End().error_code(), grpc::CANCELLED);
  world.server->Shutdown(std::chrono::seconds(5));
  EXPECT_FALSE(watch.Read(&message));
  EXPECT_EQ(watch.End().error_code(), grpc::UNAVAILABLE);
}

Reflected Reflect(ClientCall& call, const Asked& request) {
  EXPECT_TRUE(call.Send(request.SerializeAsString()));
  std::string bytes;
  Reflected response;
  EXPECT_TRUE(call.Read(&bytes));
  EXPECT_TRUE(response.ParseFromString(bytes));
  return response;
}

TEST(GrpcReflection, ListsAndDescribesOverOneCall) {
  GrpcWorld world;
  world.server->AddService("staffel.v1.Inference");
  world.Start();
  for (const char* version : {"v1", "v1alpha"}) {
    ClientCall call(world.address, std::string("/grpc.reflection.") + version +
                                       ".ServerReflection/ServerReflectionInfo");
    Asked list;
    list.set_list_services("");
    std::vector<std::string> names;
    const Reflected listed = Reflect(call, list);
    for (const auto& service : listed.list_services_response().service())
      names.push_back(service.name());
    EXPECT_THAT(names, UnorderedElementsAre("staffel.v1.Inference", "grpc.health.v1.Health",
                                            "grpc.reflection.v1.ServerReflection"));

    Asked symbol;
    symbol.set_file_containing_symbol("staffel.v1.Inference.Chat");
    const Reflected file = Reflect(call, symbol);
    EXPECT_EQ(file.original_request().file_containing_symbol(), "staffel.v1.Inference.Chat");
    ASSERT_EQ(file.file_descriptor_response().file_descriptor_proto_size(), 1);
    google::protobuf::FileDescriptorProto proto;
    ASSERT_TRUE(proto.ParseFromString(file.file_descriptor_response().file_descriptor_proto(0)));
    google::protobuf::DescriptorPool pool;
    const auto* built = pool.BuildFile(proto);
    ASSERT_NE(built, nullptr);
    EXPECT_NE(built->FindServiceByName("Inference"), nullptr);

    Asked by_name;
    by_name.set_file_by_filename(proto.name());
    EXPECT_EQ(Reflect(call, by_name).file_descriptor_response().file_descriptor_proto_size(), 1);

    Asked unknown;
    unknown.set_file_containing_symbol("t.Nothing");
    EXPECT_EQ(Reflect(call, unknown).error_response().error_code(), grpc::NOT_FOUND);
    EXPECT_EQ(Reflect(call, Asked()).error_response().error_code(), grpc::INVALID_ARGUMENT);
    call.SendEnd();
    EXPECT_TRUE(call.End().ok());
  }
}

}  // namespace
}  // namespace staffel
