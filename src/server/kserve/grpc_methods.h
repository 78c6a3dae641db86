// The service inference.GRPCInferenceService (proto/kserve.proto): KServe's protocol over gRPC, for
// clients of Triton.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/api/service.h"
#include "server/grpc/call.h"

namespace staffel::api::kserve {

inline constexpr char kServiceName[] = "inference.GRPCInferenceService";

// For GrpcServer::Handle. `ready`: what /health says. The service outlives the server.
std::vector<GrpcMethod> Methods(const Service& service, std::string version,
                                std::function<bool()> ready);

}  // namespace staffel::api::kserve
