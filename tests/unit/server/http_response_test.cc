#include "server/http_response.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "gtest/gtest.h"
#include "tests/support/seed.h"

namespace staffel {
namespace {

constexpr std::string_view kEvent = "data: x\n\n";

// An HTTP/1.0 answer, whose stream has no chunk framing. `takes`: bytes that the socket takes of
// each send.
struct Answer {
  explicit Answer(size_t takes_each_time, StreamFraming framing = StreamFraming::kEvents)
      : takes(takes_each_time) {
    state.BeginStream({}, framing);
    state.Take(head);
    state.Sent(head.size());
    notified = 0;
  }

  std::atomic<size_t> takes;
  std::atomic<int> notified = 0;
  std::string head;
  std::string sent;  // by writers; guarded by the state's lock
  ResponseState state{{.version = 10},
                      [this] { notified++; },
                      [] { return false; },
                      [this](std::string_view bytes) {
                        const size_t taken = std::min<size_t>(bytes.size(), takes);
                        sent += bytes.substr(0, taken);
                        return taken;
                      }};
};

TEST(HttpResponse, AnEventGoesOutAtOnce) {
  Answer answer(100);
  EXPECT_TRUE(answer.state.WriteEvent("x"));
  EXPECT_EQ(answer.sent, kEvent);
  EXPECT_EQ(answer.notified, 0) << "nobody else is needed";
  EXPECT_EQ(answer.state.Look().bytes_sent, kEvent.size());
  EXPECT_GT(answer.state.Look().sent_at, Time{});
  std::string rest;
  answer.state.Take(rest);
  EXPECT_EQ(rest, "");
}

TEST(HttpResponse, LinesHaveATypeOfTheirOwnAndNoPings) {
  Answer answer(100, StreamFraming::kLines);
  EXPECT_NE(answer.head.find("Content-Type: application/x-ndjson\r\n"), std::string::npos);
  answer.state.WriteEvent("{}");
  EXPECT_EQ(answer.sent, "{}\n");
  answer.state.Ping();
  answer.state.Abandon();
  std::string rest;
  answer.state.Take(rest);
  EXPECT_EQ(rest.substr(0, 10), "{\"error\":{");
  EXPECT_EQ(rest.back(), '\n');
}

TEST(HttpResponse, WhatTheSocketLeavesIsTheConnections) {
  Answer answer(5);
  EXPECT_TRUE(answer.state.WriteEvent("x"));
  EXPECT_EQ(answer.sent, kEvent.substr(0, 5));
  EXPECT_EQ(answer.notified, 1);
  answer.takes = 100;
  EXPECT_TRUE(answer.state.WriteEvent("y"));  // must not overtake
  EXPECT_EQ(answer.sent, kEvent.substr(0, 5));
  std::string rest;
  answer.state.Take(rest);
  EXPECT_EQ(rest, std::string(kEvent.substr(5)) + "data: y\n\n");
  EXPECT_TRUE(answer.state.WriteEvent("z"));  // nor while that is being sent
  EXPECT_EQ(answer.sent, kEvent.substr(0, 5));
  answer.state.Sent(rest.size());
  answer.state.Take(rest = "");
  EXPECT_EQ(rest, "data: z\n\n");
  answer.state.Sent(rest.size());
  EXPECT_TRUE(answer.state.WriteEvent("x"));
  EXPECT_EQ(answer.sent, std::string(kEvent.substr(0, 5)) + std::string(kEvent));
}

TEST(HttpResponse, NothingIsSentOnASocketThatIsGone) {
  for (const bool disconnect : {false, true}) {
    Answer answer(100);
    if (disconnect) {
      answer.state.Disconnect();
    } else {
      answer.state.Detach();
    }
    EXPECT_EQ(answer.state.WriteEvent("x"), !disconnect);
    EXPECT_EQ(answer.sent, "");
  }
}

// One thread writes, one is the connection; the socket takes what it likes.
TEST(HttpResponse, WriterAndConnectionKeepTheOrderTogether) {
  constexpr int kEvents = 20'000;
  Answer answer(0);
  std::atomic<bool> done = false;
  std::thread writer([&] {
    std::mt19937 random(TestSeed());
    for (int i = 0; i < kEvents; i++) {
      answer.takes = random() % 3 == 0 ? random() % 20 : 100;
      EXPECT_TRUE(answer.state.WriteEvent(std::to_string(i)));
    }
    done = true;
  });
  // Both append to one text, in the order in which a socket would see the bytes: what the
  // connection has taken is on its way before a writer may send again.
  for (bool last = false; !last;) {
    last = done;
    std::string taken;
    answer.state.Take(taken);
    if (taken.empty()) continue;
    answer.sent += taken;  // no writer sends until this is reported
    answer.state.Sent(taken.size());
  }
  writer.join();
  std::string want;
  for (int i = 0; i < kEvents; i++) want += "data: " + std::to_string(i) + "\n\n";
  EXPECT_EQ(answer.sent, want);
}

}  // namespace
}  // namespace staffel
