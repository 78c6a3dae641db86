#include "server/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <utility>

#include "base/strings.h"
#include "reflection.pb.h"
#include "server/grpc/message.h"

namespace staffel {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& seen,
             ServerReflectionResponse& response) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); i++) AddFile(*file.dependency(i), seen, response);
}

void AnswerNotFound(const std::string& what, ServerReflectionResponse& response) {
  response.mutable_error_response()->set_error_code(grpc::NOT_FOUND);
  response.mutable_error_response()->set_error_message(
      StrCat("'", what.substr(0, 200), "' is not known here"));
}

void AnswerFile(const FileDescriptor* file, const std::string& asked,
                ServerReflectionResponse& response) {
  if (file == nullptr) return AnswerNotFound(asked, response);
  std::set<const FileDescriptor*> seen;
  AddFile(*file, seen, response);
}

void Answer(const GrpcContext& context, const ServerReflectionRequest& request,
            ServerReflectionResponse& response) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      return AnswerFile(pool.FindFileByName(request.file_by_filename()), request.file_by_filename(),
                        response);
    case ServerReflectionRequest::kFileContainingSymbol:
      return AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                        request.file_containing_symbol(), response);
    case ServerReflectionRequest::kFileContainingExtension:  // our messages have none
      return AnswerNotFound(request.file_containing_extension().containing_type(), response);
    case ServerReflectionRequest::kAllExtensionNumbersOfType: {
      const std::string& type = request.all_extension_numbers_of_type();
      if (pool.FindMessageTypeByName(type) == nullptr) return AnswerNotFound(type, response);
      response.mutable_all_extension_numbers_response()->set_base_type_name(type);
      return;
    }
    case ServerReflectionRequest::kListServices:
      response.mutable_list_services_response();
      for (const std::string& name : context.services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
      return;
  }
}

class Reflection final : public GrpcStreamHandler {
 public:
  Reflection(const GrpcContext* context, std::shared_ptr<GrpcCall> call)
      : context_(context), call_(std::move(call)) {}

  void OnMessage(std::string bytes) override {
    ServerReflectionRequest request;
    if (const auto error = ReadMessage(bytes, request)) return call_->Fail(*error);
    ServerReflectionResponse response;
    response.set_valid_host(request.host());
    *response.mutable_original_request() = request;
    Answer(*context_, request, response);
    call_->Write(response);
  }
  void OnEnd() override { call_->Finish(); }

 private:
  const GrpcContext* const context_;  // the call holds it
  const std::shared_ptr<GrpcCall> call_;
};

}  // namespace

std::vector<GrpcMethod> ReflectionMethods(const std::shared_ptr<GrpcContext>& context) {
  std::vector<GrpcMethod> methods;
  for (const char* version : {"v1", "v1alpha"}) {
    GrpcMethod method;
    method.path = StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo");
    method.quick = true;
    // The context owns the methods.
    method.stream = [context = context.get()](std::shared_ptr<GrpcCall> call) {
      return std::make_shared<Reflection>(context, std::move(call));
    };
    methods.push_back(std::move(method));
  }
  return methods;
}

}  // namespace staffel
