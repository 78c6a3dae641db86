#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace staffel {
namespace {

TEST(Thread, HasItsName) {
  std::thread([] {
    NameThread("io");
    char name[16];
    ASSERT_EQ(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    EXPECT_EQ(std::string(name), "io");
  }).join();
}

TEST(Thread, ShortSlicesChangeNeitherPolicyNorNiceness) {
  std::thread([] {
    const auto thread = static_cast<id_t>(syscall(SYS_gettid));
    ASSERT_EQ(setpriority(PRIO_PROCESS, thread, 3), 0);
    PreferShortSlices();
    EXPECT_EQ(getpriority(PRIO_PROCESS, thread), 3);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

TEST(Thread, APolicyThatSomebodyChoseStays) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    PreferShortSlices();
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace staffel
