// The commands of the program. Each takes its arguments without the program's and its own name and
// returns the exit code: 0, 1 (a failure of the world: a file, an address, memory) or 2 (a wrong
// argument, variable or configuration file). Errors are one sentence on stderr.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "staffel/cluster.h"
#include "staffel/status.h"
#include "transport/grpc/master_link.h"

namespace staffel {

inline constexpr int kExitOk = 0, kExitFailure = 1, kExitUsage = 2;

int RunServe(std::vector<std::string> args);
int RunMaster(std::vector<std::string> args);
int RunWorker(std::vector<std::string> args);
// The same over another link than MakeMasterLink's.
using DialMaster = std::function<Result<std::unique_ptr<MasterLink>>(MasterLinkOptions)>;
int RunWorkerOver(const DialMaster& dial, std::vector<std::string> args);
int RunInspect(std::vector<std::string> args);
int RunOptions(std::vector<std::string> args);

// Prints "staffel: <message>" and returns `exit_code`.
int Fail(const Status& status, int exit_code);

}  // namespace staffel
