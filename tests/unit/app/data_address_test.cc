#include "app/data_address.h"

#include <gtest/gtest.h>

namespace staffel {
namespace {

const std::vector<std::string> kTwo = {"10.0.0.7", "fd00::7"};

TEST(DataAddress, IsTheOneThatLeadsToTheMaster) {
  EXPECT_EQ(ChooseDataAddress("", "192.168.3.1", kTwo), "192.168.3.1");
  EXPECT_EQ(ChooseDataAddress("", "fe80::1%eth1", kTwo), "fe80::1%eth1");
}

TEST(DataAddress, TheOptionWins) {
  EXPECT_EQ(ChooseDataAddress("eth1", "192.168.3.1", kTwo), "eth1");
  EXPECT_EQ(ChooseDataAddress("127.0.0.1", "127.0.0.1", kTwo), "127.0.0.1");
}

// Beside its master a worker must still be reached by those of other machines.
TEST(DataAddress, IsNoLoopbackWhereThereIsAnother) {
  for (const char* loopback : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(ChooseDataAddress("", loopback, kTwo), "10.0.0.7");
    EXPECT_EQ(ChooseDataAddress("", loopback, {}), loopback);
  }
}

TEST(DataAddress, OverAUnixSocketAllIsOnThisMachine) {
  EXPECT_EQ(ChooseDataAddress("", "", kTwo), "127.0.0.1");
}

TEST(DataAddress, OwnAddressesAreNoLoopback) {
  for (const std::string& address : OwnAddresses()) {
    EXPECT_FALSE(address.starts_with("127.")) << address;
    EXPECT_NE(address, "::1");
  }
}

}  // namespace
}  // namespace staffel
