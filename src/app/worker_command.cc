// `staffel worker --master HOST:PORT`: the life of the worker process.
#include <malloc.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

#include "app/commands.h"
#include "app/data_address.h"
#include "app/option_sources.h"
#include "app/service_notify.h"
#include "app/stop_signals.h"
#include "app/version.h"
#include "app/worker_name.h"
#include "app/worker_node.h"
#include "app/worker_options.h"
#include "app/worker_session.h"
#include "app/worker_speed.h"
#include "base/strings.h"
#include "comm/mesh/mesh_endpoint.h"
#include "device/cpu/cpu_backend.h"
#include "transport/grpc/master_link.h"

namespace staffel {
namespace {

std::string HostName() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

Hello MakeHello(const WorkerOptions& options, Backend& backend, const Clock& clock) {
  Hello hello;
  hello.build = Version();
  hello.name = options.name;
  hello.host = HostName();
  hello.machine = MachineName();
  hello.labels = ParsedLabels(options);
  DeviceShape device;
  device.device.kind = "cpu";
  device.host = hello.host;
  device.speed =
      options.speed.empty() ? MeasureSpeed(backend, clock) : std::strtod(options.speed.c_str(), {});
  hello.devices.push_back(device);
  return hello;
}

WorkerNode::MakeEndpoint EndpointMaker(const WorkerOptions& options) {
  return [options](const std::string& local_address) {
    MeshOptions mesh;
    mesh.host = ChooseDataAddress(options.interface, local_address, OwnAddresses());
    mesh.port = mesh.port_last = static_cast<uint16_t>(options.data_port);
    Result<std::unique_ptr<CommEndpoint>> endpoint = MakeMeshEndpoint(mesh);
    if (endpoint.ok()) {
      const std::string& address = (*endpoint)->address();
      spdlog::info("other workers reach this one at {}", address.substr(0, address.find('?')));
    }
    return endpoint;
  };
}

WorkerSession::MakeLink LinkMaker(const WorkerOptions& options, const DialMaster& dial) {
  return [options, dial](const Hello& hello) {
    MasterLinkOptions link;
    link.master = options.master;
    link.token = options.token;
    link.tls = {options.tls_cert, options.tls_key, options.tls_ca};
    link.hello = hello;
    return dial(std::move(link));
  };
}

// Errors after logging has begun: a sentence, or a JSON line where the log is JSON.
int Refuse(const WorkerOptions& options, const Status& status, int exit_code) {
  if (options.log_format == LogFormat::kText) return Fail(status, exit_code);
  spdlog::critical("{}", std::string(status.message()));
  return exit_code;
}

// Waits for a signal or the session's end; meanwhile tells the service manager that all is well.
std::string WaitForEnd(StopSignals& signals) {
  const std::optional<Duration> watchdog = WatchdogTimeout();
  while (true) {
    const std::string reason = signals.Wait(watchdog ? *watchdog / 2 : std::chrono::hours(24));
    if (!reason.empty()) return reason;
    if (watchdog) NotifyService("WATCHDOG=1");
  }
}

// Stacks and arenas of many threads reserve address space that they never touch. Where it is
// limited (ulimit -v), little of it is left for weights: threads get smaller ones there.
void SpareAddressSpace() {
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 << 10);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  mallopt(M_ARENA_MAX, 1);
}

int Work(WorkerOptions options, const DialMaster& dial) {
  SpareAddressSpace();
  std::optional<WorkerName> name;
  if (options.name.empty()) options.name = name.emplace(options.cache_dir).text();
  StopSignals signals;
  signals.EndAtFirst(false);
  const SystemClock clock;
  Result<std::unique_ptr<Backend>> backend = MakeCpuBackend({.threads = options.threads});
  if (!backend.ok()) return Refuse(options, backend.status(), kExitUsage);
  const Hello hello = MakeHello(options, **backend, clock);
  spdlog::info("staffel {}, worker '{}', {}, speed {:.2f}, master {}", Version(), options.name,
               (*backend)->Describe(), hello.devices.front().speed, options.master);

  WorkerNodeOptions node_options;
  node_options.name = options.name;
  node_options.memory_limit_bytes = options.memory;
  node_options.models = {.model_dir = options.model_dir,
                         .cache_dir = options.cache_dir,
                         .cache_limit_bytes = options.cache_limit};
  WorkerNode node(node_options, *std::move(backend), EndpointMaker(options), clock);
  WorkerSession session(&node, hello, LinkMaker(options, dial), [&options] {
    spdlog::info("joined the master at {}", options.master);
    NotifyService("READY=1\nSTATUS=joined");
  });
  Status refused;
  std::thread thread([&] {
    refused = session.Run();
    signals.Request("the master has refused this worker");
  });
  const std::string reason = WaitForEnd(signals);
  NotifyService("STOPPING=1\nSTATUS=leaving");
  if (reason.starts_with("SIG")) {
    spdlog::info("{}: leaving, at most {} s; a second signal ends at once", reason,
                 std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count());
    session.Leave(reason, options.drain_timeout);
  }
  session.Stop();
  thread.join();
  if (!refused.ok()) return Refuse(options, refused, kExitFailure);
  spdlog::info("stopped");
  return kExitOk;
}

}  // namespace

int RunWorker(std::vector<std::string> args) {
  return RunWorkerOver(MakeMasterLink, std::move(args));
}

int RunWorkerOver(const DialMaster& dial, std::vector<std::string> args) {
  WorkerOptions options;
  const OptionList list = WorkerOptionList(&options);
  const Result<bool> help = LoadOptions(list, "", std::move(args), environ);
  if (!help.ok()) return Fail(help.status(), kExitUsage);
  if (*help) {
    std::printf(
        "usage: staffel worker --master HOST:PORT [options]\n%s\nEach option is also a variable "
        "(--model-dir: STAFFEL_MODEL_DIR) and a key of the --config file (model_dir).\n",
        list.Help().c_str());
    return kExitOk;
  }
  if (const Status status = FinishWorkerOptions(&options); !status.ok()) {
    return Fail(status, kExitUsage);
  }
  InitLogging(options.log_level, options.log_format);
  return Work(options, dial);
}

}  // namespace staffel
