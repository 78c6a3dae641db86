// Worker nodes in this process, told what to do by a test that plays the master.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/worker_node.h"
#include "base/strings.h"
#include "comm/mesh/mesh_endpoint.h"
#include "device/cpu/cpu_backend.h"
#include "modelfile/model_digest.h"
#include "modelfile/open.h"
#include "plan/placement.h"
#include "staffel/cluster.h"

namespace staffel::testing {

inline constexpr auto kPatience = std::chrono::seconds(30);

// A folder of this test's own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            StrCat("staffel-test-", getpid(), "-", count.fetch_add(1));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Keeps what the node sends; serves the bytes of a file.
class FakeLink final : public MasterLink {
 public:
  void Start(MasterHandler*) override {}
  void SetHeartbeat(std::function<Heartbeat()>) override {}
  std::string local_address() const override { return "127.0.0.1"; }

  void Send(const WorkerMessage& message) override {
    {
      std::lock_guard lock(mutex_);
      sent_.push_back(message);
    }
    changed_.notify_all();
  }

  Status ReadModel(const std::string& digest, absl::Span<const ModelRange> ranges,
                   const std::function<Status(absl::Span<const uint8_t>)>& sink) override {
    ++reads;
    if (digest != served_digest) return absl::NotFoundError("the master has no such model");
    for (const ModelRange& range : ranges) {
      // In odd pieces.
      for (int64_t at = 0; at < range.size;) {
        if (before_piece) STAFFEL_RETURN_IF_ERROR(before_piece());
        const int64_t size = std::min<int64_t>(range.size - at, 1000);
        STAFFEL_RETURN_IF_ERROR(sink(absl::MakeConstSpan(
            reinterpret_cast<const uint8_t*>(served_bytes.data()) + range.offset + at, size)));
        bytes_served += size;
        at += size;
      }
    }
    return absl::OkStatus();
  }

  // The first message of that kind that has not been taken.
  template <class T>
  std::optional<T> Take(std::chrono::milliseconds patience = kPatience) {
    std::unique_lock lock(mutex_);
    std::optional<T> found;
    changed_.wait_for(lock, patience, [&] {
      for (auto at = sent_.begin(); at != sent_.end(); ++at) {
        if (T* message = std::get_if<T>(&*at)) {
          found = std::move(*message);
          sent_.erase(at);
          return true;
        }
      }
      return false;
    });
    return found;
  }

  std::string served_digest, served_bytes;
  std::function<Status()> before_piece;  // an error ends the read
  std::atomic<int64_t> bytes_served = 0;
  std::atomic<int> reads = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WorkerMessage> sent_;
};

// A node with its link; dials again on demand.
class NodeUnderTest {
 public:
  struct Settings {
    std::string name = "w";
    int64_t memory = 0;
    std::string model_dir, cache_dir;
    std::chrono::milliseconds form_timeout{5000};
    std::unique_ptr<Backend> backend;  // null: the CPU's, one thread
  };

  explicit NodeUnderTest(Settings settings) {
    WorkerNodeOptions options;
    options.name = settings.name;
    options.memory_limit_bytes = settings.memory;
    options.form_timeout = settings.form_timeout;
    options.models = {.model_dir = settings.model_dir, .cache_dir = settings.cache_dir};
    if (settings.backend == nullptr) settings.backend = *MakeCpuBackend({.threads = 1});
    node_ = std::make_unique<WorkerNode>(
        options, std::move(settings.backend),
        [](const std::string& address) {
          MeshOptions mesh;
          mesh.host = address;
          mesh.ring_bytes = 1 << 20;
          return MakeMeshEndpoint(mesh);
        },
        clock_);
    Connect();
  }
  ~NodeUnderTest() { Lose(); }

  void Connect() {
    link_ = std::make_unique<FakeLink>();
    node_->Connect(link_.get());
  }
  // The master is gone.
  void Lose() {
    if (link_ == nullptr) return;
    node_->OnGone(absl::UnavailableError("the master is gone"), false);
    node_->Disconnect();
    link_ = nullptr;
  }
  void Tell(MasterMessage message) { node_->OnMessage(std::move(message)); }

  WorkerNode& node() { return *node_; }
  FakeLink& link() { return *link_; }

 private:
  SystemClock clock_;
  std::unique_ptr<WorkerNode> node_;
  std::unique_ptr<FakeLink> link_;
};

// A model file and what a master knows of it.
struct ServedFile {
  ModelRef ref;
  ModelConfig config;
  std::string path;

  static ServedFile Of(const std::string& path) {
    ServedFile served;
    served.path = path;
    Result<std::unique_ptr<ModelFile>> file = OpenModelFile(path);
    EXPECT_TRUE(file.ok()) << file.status();
    Result<ModelConfig> config = ReadConfig(**file);
    EXPECT_TRUE(config.ok()) << config.status();
    served.config = *std::move(config);
    Result<ModelRef> ref = MakeModelRef(**file, "tiny");
    EXPECT_TRUE(ref.ok()) << ref.status();
    served.ref = *std::move(ref);
    return served;
  }

  PlacementPlan Place(int tp, int pp, std::vector<double> speeds = {}) const {
    ClusterShape cluster;
    cluster.devices.resize(tp * pp);
    for (size_t i = 0; i < speeds.size(); ++i) cluster.devices[i].speed = speeds[i];
    Result<PlacementPlan> plan =
        MakePlacement(config.shape, cluster, {.tensor_parallel = tp, .pipeline_parallel = pp});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }
};

inline RankOptions SmallOptions() {
  RankOptions options;
  options.block_size = 16;
  options.max_rows = 64;
  options.max_sampled_rows = 32;
  options.max_positions = 128;
  options.activations = "int16";
  return options;
}

}  // namespace staffel::testing
