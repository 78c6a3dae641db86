// The way of events from the engine thread, which must not wait, to a task that reads them.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "staffel/request.h"

namespace staffel::api {

class EventInbox {
 public:
  // Any thread. True: nobody drains, nor is about to; the caller has to see to it that Drain runs.
  // A new inbox counts as about to be drained: whoever made it drains it once it is ready.
  [[nodiscard]] bool Put(const SeqEvent& event) {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
    return !std::exchange(scheduled_, true);
  }

  // Gives all events to `apply`, in order, those that come meanwhile too. Two of these never run
  // at the same time if Put is heeded.
  template <class Apply>
  void Drain(Apply apply) {
    std::vector<SeqEvent> events;
    for (;;) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (events_.empty()) {
          scheduled_ = false;
          return;
        }
        events.clear();
        events.swap(events_);
      }
      for (SeqEvent& event : events) apply(event);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<SeqEvent> events_;  // guarded by mutex_
  bool scheduled_ = true;         // guarded by mutex_
};

}  // namespace staffel::api
