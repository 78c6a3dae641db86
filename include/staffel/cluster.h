// What master and workers say to each other beside steps, and the two ends of that conversation.
// The master decides: a worker loads, forms, runs and releases what it is told, and never talks to
// another worker but through its Communicator.
//
// Life of a worker at the master: Hello → (Configure → Capacity → Form → FormProgress* → Formed →
// steps → Abort)* → Leaving or loss. An epoch counts the placements of one replica; what speaks of
// another epoch than the current one is ignored by both.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "staffel/clock.h"
#include "staffel/ids.h"
#include "staffel/placement.h"
#include "staffel/status.h"
#include "staffel/step.h"

namespace staffel {

using WorkerId = Id<struct WorkerTag, uint64_t>;   // one connection of a worker; never reused
using ReplicaId = Id<struct ReplicaTag, int32_t>;  // index among all replicas of all pools

// A worker speaks protocol major.minor; the master accepts its own major with its own minor, the
// one before and the one after.
struct ProtocolVersion {
  uint32_t major = 1, minor = 0;
};
inline constexpr ProtocolVersion kClusterProtocol{};

// ---- worker to master

struct Hello {
  ProtocolVersion protocol;
  std::string build;  // staffel's version, for people
  std::string name;  // --name; a restart keeps it; two live workers of one name: the newer wins
  std::string host;  // host name
  std::string machine;  // equal for two workers that can share memory (boot id and namespaces)
  // Names what its memory is taken from: equal for two workers that each could take it all. "": a
  // limit of its own.
  std::string memory_pool;
  std::vector<DeviceShape> devices;  // one for now; speed: measured or 1
  std::map<std::string, std::string> labels;
};

// Answer to Configure. Not OK: the worker cannot take this shard, with numbers; it stays a member.
struct Capacity {
  ReplicaId replica;
  int epoch = 0;
  Status status;
  int64_t kv_bytes_per_block = 0;
  int64_t weight_bytes = 0;  // of the shard
  int64_t memory_bytes = 0;  // free for KV after the weights
  std::string comm_address;  // CommEndpoint::address()
};

struct FormProgress {
  ReplicaId replica;
  int epoch = 0;
  double share = 0;  // [0, 1] of weights packed
};

// Answer to Form.
struct Formed {
  ReplicaId replica;
  int epoch = 0;
  Status status;
  int64_t bytes_read = 0;     // of the model file, by this worker for this shard
  int64_t bytes_fetched = 0;  // of these, from the master
  double load_s = 0, form_s = 0;
  bool weights_kept = false;  // the shard was resident already
};

// Every heartbeat_ms, and before anything that ends the connection on purpose.
struct Heartbeat {
  ReplicaId replica;  // invalid: none
  int epoch = 0;
  uint64_t step = 0;        // last finished
  uint64_t collective = 0;  // finished in this epoch
  bool in_step = false;
  double in_step_s = 0;  // since the running step began
  // In a step: which, and the rank that its collective waits for (-1: it computes, or bytes move)
  // and since when nothing has moved. For telling a broken link from a slow rank.
  uint64_t running_step = 0;
  int waiting_for = -1;
  double waiting_s = 0;
  // Totals of the epoch.
  double compute_s = 0, wait_s = 0, wire_s = 0;
  int64_t bytes_sent = 0, bytes_received = 0;
  int64_t resident_bytes = 0;
};

// The worker is about to end (SIGTERM): it serves on until Release or `grace_s`.
struct Leaving {
  std::string reason;
  double grace_s = 0;
};

using WorkerMessage = std::variant<Capacity, FormProgress, Formed, Heartbeat, Leaving, StepOutcome>;

// ---- master to worker

struct Welcome {
  WorkerId worker;
  int heartbeat_ms = 50;
  int dead_after_ms = 1000;  // without any word from the other side
  // Of a quicker way for plans and outcomes between processes of one machine; empty: none.
  std::string lane_name, lane_secret;
};

// One file of a model: what a worker must know to read a part of it only.
struct ModelPartSize {
  int64_t bytes = 0;
  int64_t header_bytes = 0;  // ModelPart::header_bytes
};

// Which file, by content: a worker uses its own copy if the digest is equal, else asks the master
// for the bytes it needs.
struct ModelRef {
  std::string name;    // served name, for logs
  std::string path;    // at the master; a worker looks for a file of this name in its --model-dir
  std::string digest;  // ModelDigest, hex
  std::vector<ModelPartSize> parts;  // of each file of a split model, in order; else one
};

// Bytes of a model: its files count as one, in their order.
struct ModelRange {
  int64_t offset = 0, size = 0;
};

// What ranks of one replica must agree on.
struct RankOptions {
  int block_size = 16;
  int max_rows = 512;
  int max_sampled_rows = 512;
  int max_positions = 8192;
  std::string activations = "int16";  // value of --activations
};

struct Configure {
  ReplicaId replica;
  ModelRef model;
  PlacementPlan plan;  // plan.epoch is the epoch
  int rank = 0;
  RankOptions options;
  int64_t memory_bytes = 0;  // the worker's share of a memory pool; 0: all that it has
};

struct Form {
  ReplicaId replica;
  int epoch = 0;
  int block_count = 0;                 // KV blocks of every rank
  std::vector<std::string> addresses;  // comm_address by rank
  std::vector<std::string> machines;   // Hello::machine by rank
  std::string secret;                  // known to this epoch's ranks only
};

// The epoch is over: stop at once whatever runs, keep the weights.
struct Abort {
  ReplicaId replica;
  int epoch = 0;
  std::string reason;
};

// Forget the replica and free its memory.
struct Release {
  ReplicaId replica;
};

// A StepPlan for the ranks of `replica`; see StepStream for the way it takes.
struct Step {
  ReplicaId replica;
  StepPlan plan;
};

using MasterMessage = std::variant<Welcome, Configure, Form, Abort, Release, Step>;

// ---- the master's end

struct WorkerGone {
  WorkerId worker;
  Status reason;  // one sentence: which worker, on which host, what happened, how long ago
};

// Calls come one at a time from the server's own threads, in order for each worker; they must not
// block. OnJoin precedes all else of a worker, OnGone ends it, after Disconnect too. They may call
// the server, but not end it. None comes once the server's destructor has begun.
class ClusterHandler {
 public:
  virtual ~ClusterHandler() = default;
  virtual void OnJoin(WorkerId worker, const Hello& hello, const std::string& peer_address) = 0;
  virtual void OnMessage(WorkerId worker, WorkerMessage message) = 0;
  virtual void OnGone(WorkerGone gone) = 0;
};

class ClusterServer {
 public:
  virtual ~ClusterServer() = default;  // tells all workers
  // The port is bound already, but nobody is let in before. Once; `handler` outlives the server.
  virtual void Start(ClusterHandler* handler) = 0;
  // Any thread; returns at once. Unknown workers are ignored: OnGone tells of them.
  virtual void Send(WorkerId worker, const MasterMessage& message) = 0;
  // The same bytes to all of them, serialised once: the way of StepPlans.
  virtual void SendToAll(const std::vector<WorkerId>& workers, const MasterMessage& message) = 0;
  // Ends the connection; the worker is told why and may come back.
  virtual void Disconnect(WorkerId worker, const Status& reason) = 0;
  virtual std::string address() const = 0;  // "HOST:PORT" that it listens on
};

// ---- the worker's end

// Calls come one at a time from the link's reader thread; they must not block (a step runs
// elsewhere: an Abort may follow it) and must not end the link. Welcome is the first message. None
// comes once the link's destructor has begun.
class MasterHandler {
 public:
  virtual ~MasterHandler() = default;
  virtual void OnMessage(MasterMessage message) = 0;
  // The master is gone, or has refused; permanent: do not try again (wrong token, other protocol).
  virtual void OnGone(const Status& reason, bool permanent) = 0;
};

class MasterLink {
 public:
  virtual ~MasterLink() = default;  // what was sent is delivered first, if that is quick
  // Dials the master and says Hello. Once; `handler` outlives the link.
  virtual void Start(MasterHandler* handler) = 0;
  // Any thread; in order; returns at once. After OnGone: nothing happens.
  virtual void Send(const WorkerMessage& message) = 0;
  // Asked by the heartbeat every heartbeat_ms on a thread of its own, so that a busy or hung step
  // does not silence it. Before Start.
  virtual void SetHeartbeat(std::function<Heartbeat()> heartbeat) = 0;
  // The own address (no port) of the connection to the master: the interface that leads to it.
  // From Welcome on; empty over a Unix socket.
  virtual std::string local_address() const = 0;
  // Most ranges of one ReadModel: a rank's part of a matrix that is cut by columns is thousands.
  static constexpr int kReadRangesMax = 4096;
  // Reads ranges of the model of that digest from the master. `sink` gets their bytes one after
  // the other, in pieces of any size; an error of it ends the read and is returned. Waits, until
  // the link's end at most; any thread, from Welcome on, over a connection of its own. NotFound,
  // OutOfRange, Unavailable, DataLoss.
  virtual Status ReadModel(const std::string& digest, absl::Span<const ModelRange> ranges,
                           const std::function<Status(absl::Span<const uint8_t>)>& sink) = 0;
};

}  // namespace staffel
