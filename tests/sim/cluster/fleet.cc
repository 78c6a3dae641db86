#include "tests/sim/cluster/fleet.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace staffel::cluster::sim {
namespace {

constexpr int64_t kMiB = 1 << 20;

constexpr int kMachines = 3;

Slot MakeSlot(std::mt19937_64& random, int index) {
  Slot slot;
  slot.name = StrCat("w", index);
  const int machine = Pick(random, 1, kMachines);
  slot.host = StrCat("host-", machine);
  slot.machine = StrCat("machine-", machine);
  slot.memory_bytes = Pick(random, 30, 1000) * kMiB;
  slot.told_bytes = Chance(random, 25) ? 0 : slot.memory_bytes;
  slot.speed = Chance(random, 60) ? 1.0 : Pick(random, 1, 8) / 4.0;
  if (Chance(random, 40)) slot.labels["kind"] = Chance(random, 50) ? "chat" : "vision";
  return slot;
}

}  // namespace

std::vector<PoolConfig> MakePools(std::mt19937_64& random) {
  std::vector<PoolConfig> pools;
  const int count = Pick(random, 1, 3);
  for (int i = 0; i < count; ++i) {
    PoolConfig pool;
    pool.name = StrCat("model-", i);
    ModelShape& m = pool.shape;
    m.layers = Pick(random, 2, 6);
    m.kv_heads = Pick(random, 1, 3);
    m.q_heads = m.kv_heads * Pick(random, 1, 3);
    m.head_dim = 64;
    m.hidden = 256;
    m.ffn = 32 * Pick(random, 8, 16);
    m.vocab = 1024;
    m.layer_bytes = Pick(random, 1, 60) * kMiB;
    m.embedding_bytes = Pick(random, 1, 20) * kMiB;
    pool.max_model_len = 256;
    pool.max_sequences = 4;
    pool.tensor_parallel = Chance(random, 30) ? 0 : Pick(random, 1, std::min(3, m.q_heads));
    pool.pipeline_parallel = Chance(random, 30) ? 0 : Pick(random, 1, 2);
    pool.data_parallel = Pick(random, 0, 2);
    if (Chance(random, 25)) {
      pool.kv_blocks = Pick(random, 1, 40);
    } else if (Chance(random, 25)) {
      pool.kv_memory_bytes = Pick(random, 1, 40) * kMiB;
    }
    if (Chance(random, 30)) pool.labels["kind"] = Chance(random, 50) ? "chat" : "vision";
    pools.push_back(std::move(pool));
  }
  return pools;
}

std::vector<Slot> MakeSlots(std::mt19937_64& random, const std::vector<PoolConfig>& pools) {
  std::vector<Slot> slots;
  const int count = Pick(random, 1, 7);
  for (int i = 0; i < count; ++i) slots.push_back(MakeSlot(random, i));
  std::map<std::string, int64_t> shared_bytes;
  for (int i = 1; i <= kMachines; ++i) {
    shared_bytes[StrCat("machine-", i)] = Pick(random, 60, 1500) * kMiB;
  }
  for (Slot& slot : slots) {
    slot.shares = Chance(random, 50);
    if (slot.shares) slot.memory_bytes = slot.told_bytes = shared_bytes.at(slot.machine);
  }
  // Enough of what every pool asks for, for the end.
  for (const PoolConfig& pool : pools) {
    const int need = std::max(pool.tensor_parallel, 1) * std::max(pool.pipeline_parallel, 1) *
                     std::max(pool.data_parallel, 1);
    for (int i = 0; i < need; ++i) {
      Slot slot = MakeSlot(random, static_cast<int>(slots.size()));
      slot.labels = pool.labels;
      slot.memory_bytes = slot.told_bytes = 65536 * kMiB;
      slot.fresh = true;
      slots.push_back(slot);
    }
  }
  return slots;
}

}  // namespace staffel::cluster::sim
