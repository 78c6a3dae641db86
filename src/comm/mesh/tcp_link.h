// A link between machines: one TCP connection.
#pragma once

#include <memory>

#include "base/fd.h"
#include "comm/mesh/link.h"

namespace staffel {

// `socket`: connected, not blocking.
std::unique_ptr<Link> MakeTcpLink(Fd socket);

}  // namespace staffel
