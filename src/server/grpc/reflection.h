// grpc.reflection.v1 (and v1alpha): the server's services and the files that describe them.
#pragma once

#include <memory>
#include <vector>

#include "server/grpc/call.h"
#include "server/grpc/context.h"

namespace staffel {

std::vector<GrpcMethod> ReflectionMethods(const std::shared_ptr<GrpcContext>& context);

}  // namespace staffel
