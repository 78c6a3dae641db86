// By which of its addresses other workers reach this one.
#pragma once

#include <string>
#include <vector>

namespace staffel {

// `interface`: --interface, wins. `towards_master`: the own address of the connection to the
// master; empty over a Unix socket: all workers are on this machine. Where the way to the master is
// the loopback device, the master is on this machine but other workers need not be: the first of
// `addresses` is taken, loopback only if there is none.
std::string ChooseDataAddress(const std::string& interface, const std::string& towards_master,
                              const std::vector<std::string>& addresses);

// Addresses of this machine without loopback and link-local ones: first that of the default route,
// then those of the interfaces that are up, IPv4 before IPv6.
std::vector<std::string> OwnAddresses();

}  // namespace staffel
