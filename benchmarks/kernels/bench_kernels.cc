// Every CPU kernel as a share of what the machine can do at most in the same run, one thread:
//   bench_kernels [--level NAME] [--activations int16|int8|f32] [SECTION ...]
//   sections: memory cache attention pack rows
// A figure is the best of many short pieces, measured in turns with the limit.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/kernels/limits.h"
#include "kernels/api/cpu_select.h"
#include "staffel/backend.h"
#include "staffel/tensor.h"

namespace staffel::bench {
namespace {

using namespace kernels;  // NOLINT(google-build-using-namespace): a program about them

constexpr int kRepetitions = 20;
const DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                        DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                        DType::kBF16, DType::kF16,  DType::kF32};

// Memory on huge pages where the system grants them.
struct Buffer {
  explicit Buffer(int64_t bytes) : size((bytes + (2 << 20)) & ~int64_t{(2 << 20) - 1}) {
    data = static_cast<uint8_t*>(std::aligned_alloc(2 << 20, size));
    madvise(data, size, MADV_HUGEPAGE);
    std::memset(data, 0, size);
  }
  ~Buffer() { std::free(data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  int64_t size;
  uint8_t* data;
};

std::vector<float> Gaussian(int64_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (auto& v : x) v = normal(rng);
  return x;
}

struct Prepared {
  Prepared(const CpuKernels& k, ActivationForm form, int rows, int cols)
      : memory(ActivationBytes(form, rows, cols)) {
    auto x = Gaussian(int64_t{rows} * cols);
    activations.form = form;
    activations.rows = rows;
    activations.cols = cols;
    activations.data = memory.data;
    PrepareParams p;
    p.rows = rows;
    p.cols = cols;
    p.tile_end = Tiles(rows);
    p.residual = x.data();
    p.residual_stride = cols;
    p.out = &activations;
    k.prepare(p);
  }
  Buffer memory;
  Activations activations;
};

// A packed matrix whose groups repeat one group of random bytes.
struct Weights {
  Weights(const CpuKernels& k, DType type, int rows, int cols)
      : memory(PackedBytes(type, rows, cols) + (16 << 10)) {
    const DTypeInfo& info = InfoOf(type);
    WeightPart part;
    part.type = type;
    part.row_stride_bytes = int64_t{cols} / info.block_elements * info.block_bytes;
    part.rows = kGroup;
    part.cols = cols;
    std::mt19937 rng(1);
    std::vector<uint8_t> stored(kGroup * part.row_stride_bytes);
    for (auto& b : stored) b = static_cast<uint8_t>(rng() & 0x3f);  // floats and halves below 1
    part.bytes = stored.data();
    matrix.type = type;
    matrix.cols = cols;
    matrix.data = memory.data;
    matrix.group_stride_bytes = GroupBytes(type, cols);
    matrix.rows = kGroup;
    k.pack(part, matrix, 0, 1);
    matrix.rows = rows;
    for (int g = 1; g < Groups(rows); g++) {
      std::memcpy(memory.data + g * matrix.group_stride_bytes, memory.data,
                  matrix.group_stride_bytes);
    }
  }
  int64_t bytes() const { return Groups(matrix.rows) * matrix.group_stride_bytes; }
  Buffer memory;
  PackedMatrix matrix;
};

void Multiply(const CpuKernels& k, const PackedMatrix& w, const Activations& in, int group_begin,
              int group_end, std::vector<float>& out) {
  MatmulParams p;
  p.weight = &w;
  p.in = &in;
  p.group_begin = group_begin;
  p.group_end = group_end;
  p.tile_end = Tiles(in.rows);
  p.out = out.data();
  p.out_stride = w.rows;
  k.matmul(p);
}

double Seconds(const std::function<void()>& f) {
  const double begin = NowSeconds();
  f();
  return NowSeconds() - begin;
}

// The best of many short pieces and its share of the best limit, measured in turns: pieces of about
// a millisecond fall between the time slices of whatever else runs on the machine.
struct Rate {
  double rate = 0, share = 0;
};
Rate Best(int pieces, double work, const std::function<double(int)>& limit,
          const std::function<void(int)>& f) {
  double rate = 0, top = 0;
  for (int i = 0; i < pieces; i++) {
    top = std::max(top, limit(i));
    rate = std::max(rate, work / Seconds([&] { f(i); }) / 1e9);
  }
  return {rate, 100 * rate / top};
}

void BenchMemory(const CpuKernels& k, ActivationType activations) {
  std::printf(
      "\nproducts from memory, one pass over 128 MB, GB/s (share of the read loop), GOP/s\n");
  const int cols = 4096;
  for (DType type : kTypes) {
    const int rows = static_cast<int>((128LL << 20) / GroupBytes(type, cols)) * kGroup;
    const Weights w(k, type, rows, cols);
    const int64_t group_bytes = w.matrix.group_stride_bytes;
    const int step = static_cast<int>((4 << 20) / group_bytes), pieces = Groups(rows) / step;
    const auto bytes = static_cast<double>(step * group_bytes);
    std::printf("%-5s", InfoOf(type).name);
    for (int m : {1, 2, 4, 8}) {
      const Prepared in(k, FormFor(type, activations), m, cols);
      std::vector<float> out(int64_t{m} * rows);
      const Rate r = Best(
          pieces, bytes,
          [&](int i) {  // half of the matrix away: out of the caches
            const int far = (i + pieces / 2) % pieces;
            return ReadGbps(w.memory.data + far * step * group_bytes, step * group_bytes);
          },
          [&](int i) { Multiply(k, w.matrix, in.activations, i * step, (i + 1) * step, out); });
      std::printf("  M=%d %4.1f (%3.0f %%) %3.0f", m, r.rate, r.share,
                  r.rate / bytes * 2 * m * step * kGroup * cols);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

void BenchCache(const CpuKernels& k, ActivationType activations) {
  std::printf(
      "\nproducts in cache, GOP/s (share of the int8 peak, of the float peak for floats)\n");
  struct Shape {
    int cols, rows;
  };
  for (DType type : kTypes) {
    for (const Shape s : {Shape{576, 960}, Shape{1536, 576}, Shape{2048, 2048}}) {
      if (s.cols % InfoOf(type).block_elements != 0) continue;
      const Weights w(k, type, s.rows, s.cols);
      std::printf("%-5s K %4d N %4d", InfoOf(type).name, s.cols, s.rows);
      for (int m : {1, 2, 4, 8, 16, 64, 256}) {
        const ActivationForm form = FormFor(type, activations);
        const Prepared in(k, form, m, s.cols);
        std::vector<float> out(int64_t{m} * s.rows);
        const double group_work = 2.0 * m * kGroup * s.cols;
        const int step = std::clamp(static_cast<int>(3e8 / group_work), 1, Groups(s.rows));
        const Rate r = Best(
            24, group_work * step,
            [&](int) {
              return InfoOf(type).block_elements > 1 ? Int8PeakGops() : FloatPeakGflops();
            },
            [&](int i) {
              const int begin = i * step % (Groups(s.rows) - step + 1);
              Multiply(k, w.matrix, in.activations, begin, begin + step, out);
            });
        std::printf("  M=%d %4.0f (%2.0f %%)", m, r.rate, r.share);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

void BenchAttention(const CpuKernels& k) {
  struct Shape {
    int kv_heads, share, dim;
  };
  constexpr int kContext = 4096;
  for (const Shape s : {Shape{3, 3, 64}, Shape{2, 7, 64}, Shape{8, 4, 128}, Shape{1, 4, 256}}) {
    const int64_t sequence_bytes = kContext / 16 * KvSubBlockElements(s.kv_heads, s.dim) * 2;
    const int sequences = static_cast<int>(std::max<int64_t>(1, (96 << 20) / sequence_bytes));
    const int blocks = kContext / 16;
    const Buffer memory(sequences * sequence_bytes);
    const auto x = Gaussian(1 << 16);
    auto* kv_data = reinterpret_cast<uint16_t*>(memory.data);
    for (int64_t i = 0; i < sequences * sequence_bytes / 2; i++) {
      uint32_t bits;
      std::memcpy(&bits, &x[i & 0xffff], 4);
      kv_data[i] = static_cast<uint16_t>(bits >> 16);
    }
    std::vector<int32_t> table(sequences * blocks);
    for (size_t i = 0; i < table.size(); i++) table[i] = static_cast<int32_t>(i);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    const KvLayer kv{kv_data, s.kv_heads, s.dim};
    std::vector<float> out(8 * s.dim);
    AttentionParams p;
    p.kv = &kv;
    p.scale = 1 / std::sqrt(static_cast<float>(s.dim));
    p.rows = std::min(8, s.share);
    for (int m = 0; m < 8; m++) {
      p.q[m] = &x[m * s.dim];
      p.out[m] = &out[m * s.dim];
      p.limit[m] = kContext;
    }
    const int64_t piece_bytes = sequence_bytes / s.kv_heads;  // one head of one sequence
    const int pieces = sequences * s.kv_heads;
    const Rate decode = Best(
        std::min(pieces, 120), static_cast<double>(piece_bytes),
        [&](int i) {
          const int far = (i + pieces / 2) % pieces;
          return ReadGbps(memory.data + far * piece_bytes, piece_bytes);
        },
        [&](int i) {
          p.kv_head = i % s.kv_heads;
          p.blocks = &table[i / s.kv_heads * blocks];
          k.attention(p);
        });
    std::printf("head %3d, %d q heads a kv head: decode %4.1f GB/s (%2.0f %%)", s.dim, s.share,
                decode.rate, decode.share);
    p.rows = 8;
    p.kv_head = 0;
    p.blocks = table.data();
    for (int n : {512, 2048}) {  // the last rows of a prompt of n tokens: about n keys each
      const int tiles = 16;
      const Rate prompt = Best(
          24, 4.0 * tiles * 8 * s.dim * n, [](int) { return FloatPeakGflops(); },
          [&](int) {
            for (int t = 0; t < tiles; t++) {
              for (int m = 0; m < 8; m++) p.limit[m] = n;
              k.attention(p);
            }
          });
      std::printf("  prompt %d %3.0f GFLOP/s (%2.0f %%)", n, prompt.rate, prompt.share);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

void BenchPack(const CpuKernels& k) {
  std::printf("\npacking, GB/s of stored bytes; a row of 4096 decoded, ns\n");
  const int rows = 1024, cols = 4096;
  for (DType type : kTypes) {
    const DTypeInfo& info = InfoOf(type);
    WeightPart part;
    part.type = type;
    part.row_stride_bytes = int64_t{cols} / info.block_elements * info.block_bytes;
    part.rows = rows;
    part.cols = cols;
    const std::vector<uint8_t> stored(rows * part.row_stride_bytes, 0x33);
    part.bytes = stored.data();
    const Weights w(k, type, rows, cols);
    double pack = 1e9, row = 1e9;
    std::vector<float> out(cols);
    for (int i = 0; i < kRepetitions; i++) {
      pack = std::min(pack, Seconds([&] { k.pack(part, w.matrix, 0, Groups(rows)); }));
      row = std::min(row, Seconds([&] { k.unpack_row(w.matrix, i, 1.0f, out.data()); }));
    }
    std::printf("%-5s pack %5.2f GB/s  unpack_row %5.0f ns\n", info.name,
                static_cast<double>(stored.size()) / pack / 1e9, row * 1e9);
  }
}

void BenchRows(const CpuKernels& k) {
  std::printf("\nrows\n");
  const int cols = 576, rows = 512;
  auto x = Gaussian(rows * cols);
  const auto norm = Gaussian(cols);
  for (ActivationForm form : {ActivationForm::kInt8, ActivationForm::kInt16, ActivationForm::kBf16,
                              ActivationForm::kF32}) {
    const Prepared out(k, form, rows, cols);
    PrepareParams p;
    p.rows = rows;
    p.cols = cols;
    p.tile_end = Tiles(rows);
    p.residual = x.data();
    p.residual_stride = cols;
    p.norm = norm.data();
    p.eps = 1e-5f;
    p.out = &out.activations;
    double best = 1e9;
    for (int i = 0; i < kRepetitions; i++) best = std::min(best, Seconds([&] { k.prepare(p); }));
    std::printf("norm + form %d: %.2f ns an element\n", static_cast<int>(form),
                best / rows / cols * 1e9);
  }
  const int heads = 9, kv_heads = 3, dim = 64, width = (heads + 2 * kv_heads) * dim;
  auto qkv = Gaussian(rows * width);
  Buffer memory(rows / 16 * KvSubBlockElements(kv_heads, dim) * 2);
  const KvLayer kv{reinterpret_cast<uint16_t*>(memory.data), kv_heads, dim};
  std::vector<float> cos_sin(rows * dim, 0.7f);
  std::vector<int32_t> positions(rows), blocks(rows);
  for (int r = 0; r < rows; r++) positions[r] = r, blocks[r] = r / 16;
  for (RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves}) {
    RopeStoreParams p;
    p.qkv = qkv.data();
    p.qkv_stride = width;
    p.row_end = rows;
    p.q_head_end = heads;
    p.kv_head_end = kv_heads;
    p.q_heads = heads;
    p.rope_dim = dim;
    p.pairs = pairs;
    p.cos_sin = cos_sin.data();
    p.positions = positions.data();
    p.sub_blocks = blocks.data();
    p.kv = &kv;
    double best = 1e9;
    for (int i = 0; i < kRepetitions; i++) best = std::min(best, Seconds([&] { k.rope_store(p); }));
    std::printf("rope + store, pairs %d: %.0f ns a token (9 q heads, 3 kv heads of 64)\n",
                static_cast<int>(pairs), best / rows * 1e9);
  }
  const int vocab = 262144;
  const auto logits = Gaussian(vocab);
  std::vector<ScoredId> top(1024);
  const auto report = [&](const char* name, const std::function<void()>& f) {
    double best = 1e9;
    for (int i = 0; i < kRepetitions; i++) best = std::min(best, Seconds(f));
    std::printf("%s of %d logits: %.0f us, %.1f GB/s\n", name, vocab, best * 1e6,
                4.0 * vocab / best / 1e9);
  };
  volatile double sink = 0;
  report("argmax", [&] { sink = k.argmax(logits.data(), vocab); });
  report("softmax stats", [&] { sink = k.softmax_stats(logits.data(), vocab).sum; });
  report("top 40", [&] { k.top_k(logits.data(), vocab, 40, top.data()); });
  report("top 1024", [&] { k.top_k(logits.data(), vocab, 1024, top.data()); });
}

int Main(int argc, char** argv) {
  std::string level;
  ActivationType activations = ActivationType::kInt16;
  std::vector<std::string> sections;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--level") == 0 && i + 1 < argc) {
      level = argv[++i];
    } else if (std::strcmp(argv[i], "--activations") == 0 && i + 1 < argc) {
      const std::string word = argv[++i];
      activations = word == "int8"  ? ActivationType::kInt8
                    : word == "f32" ? ActivationType::kF32
                                    : ActivationType::kInt16;
    } else {
      sections.emplace_back(argv[i]);
    }
  }
  const auto table = SelectCpuKernels(level);
  if (!table.ok()) {
    std::fprintf(stderr, "%s\n", std::string(table.status().message()).c_str());
    return 1;
  }
  const CpuKernels& k = **table;
  std::printf("level %s, int8 peak %.0f GOP/s, float peak %.0f GFLOP/s, one thread\n", k.name,
              Int8PeakGops(), FloatPeakGflops());
  const auto wanted = [&](const char* name) {
    return sections.empty() || std::find(sections.begin(), sections.end(), name) != sections.end();
  };
  if (wanted("rows")) BenchRows(k);
  if (wanted("pack")) BenchPack(k);
  if (wanted("cache")) BenchCache(k, activations);
  if (wanted("memory")) BenchMemory(k, activations);
  if (wanted("attention")) BenchAttention(k);
  return 0;
}

}  // namespace
}  // namespace staffel::bench

int main(int argc, char** argv) { return staffel::bench::Main(argc, argv); }
