// A worker process: joins again when the master is lost. Arguments: ADDRESS NAME. Exit code 3: the
// master has refused it for good.
#include <thread>

#include "tests/support/echo_worker.h"
#include "transport/grpc/backoff.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  staffel::MasterLinkOptions options;
  options.master = argv[1];
  options.hello.name = argv[2];
  options.hello.host = "host-b";
  options.hello.devices.resize(1);
  staffel::testing::EchoWorker worker;
  staffel::ReconnectBackoff backoff;
  while (worker.RunOnce(options)) std::this_thread::sleep_for(backoff.Next());
  return 3;
}
