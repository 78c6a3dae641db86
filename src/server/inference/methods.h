// The service staffel.v1.Inference (proto/inference.proto): a front like those of HTTP, whose
// requests and answers are messages.
#pragma once

#include <vector>

#include "server/api/service.h"
#include "server/grpc/call.h"

namespace staffel::api::inference {

inline constexpr char kServiceName[] = "staffel.v1.Inference";

// For GrpcServer::Handle. The service outlives the server.
std::vector<GrpcMethod> Methods(const Service& service);

}  // namespace staffel::api::inference
