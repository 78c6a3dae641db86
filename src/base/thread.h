// What the kernel is told about a thread of ours, by that thread itself.
#pragma once

#include <atomic>

namespace staffel {

// Spins until `waiting` is not 0, some tens of microseconds at most: what comes that soon would
// cost as much again in a sleep and a wake-up. It yields: whoever brings it may be waiting for this
// very core.
void SpinWhileZero(const std::atomic<int>& waiting);

// The name in ps, top and debuggers; the kernel keeps 15 bytes.
void NameThread(const char* name);

// For threads that hand work on in short bursts: the kernel is asked to run them soon after they
// wake, although every core computes (sched(7): a short slice; from Linux 6.12 on, a wake-up with a
// shorter slice need not wait for the end of another thread's). A hint that takes no rights and
// nothing from anybody's share; where it is unknown nothing happens.
void PreferShortSlices();

}  // namespace staffel
