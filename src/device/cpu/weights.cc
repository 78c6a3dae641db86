#include "device/cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"

namespace staffel::cpu {
namespace {

kernels::WeightPart PartOf(const WeightSlice& slice) {
  return {.type = slice.tensor->type,
          .bytes = slice.RowBytes(0).data(),
          .row_stride_bytes = slice.tensor->row_bytes(),
          .rows = slice.rows.size(),
          .cols = slice.cols.size()};
}

}  // namespace

class Weights::Loader {
 public:
  Loader(const Plan& plan, const Program& program, const std::vector<WeightSlice>& slices,
         const WeightSource& source, const kernels::CpuKernels& kernels, ThreadPool& pool,
         const BackendOptions& options)
      : plan_(plan),
        program_(program),
        slices_(slices),
        source_(source),
        kernels_(kernels),
        pool_(pool),
        options_(options) {}

  Result<Weights> Load() {
    // One page more: kernels prefetch beyond the last group, which must not fault in a neighbour.
    STAFFEL_ASSIGN_OR_RETURN(out_.arena_, HugeMemory::Map(plan_.weight_bytes, "the weights"));
    CountUses();
    LoadVectors();
    for (const Matrix& matrix : plan_.matrices) {
      if (!cancelled()) LoadMatrix(matrix);
    }
    out_.stored_.resize(slices_.size());
    for (const Launch& launch : plan_.launches) {
      const auto* embed = std::get_if<EmbedLaunch>(&launch.kind);
      if (embed != nullptr && embed->matrix == MatrixId::kNone) LoadStored(*embed);
    }
    if (cancelled()) return absl::CancelledError("the loading of the weights was given up");
    out_.bytes_ = plan_.weight_bytes;
    return std::move(out_);
  }

 private:
  bool cancelled() const { return options_.cancelled && options_.cancelled(); }
  const WeightSlice& slice(WeightId id) const { return slices_[static_cast<int>(id)]; }

  // A tensor may be used more than once (an embedding tied to the vocabulary projection but cut
  // differently): it is released after the last time.
  void CountUses() {
    auto count = [&](WeightId id) {
      ++uses_[slice(id).tensor];
      total_elements_ += slice(id).elements();
    };
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (program_.weights[i].vector) count(static_cast<WeightId>(i));
    }
    for (const Matrix& matrix : plan_.matrices) {
      for (WeightId part : matrix.parts) count(part);
    }
    for (const Launch& launch : plan_.launches) {
      const auto* embed = std::get_if<EmbedLaunch>(&launch.kind);
      if (embed != nullptr && embed->matrix == MatrixId::kNone) count(embed->stored);
    }
  }

  void Done(WeightId id) {
    if (--uses_[slice(id).tensor] == 0) source_.Release(*slice(id).tensor);
    Report(slice(id).elements());
  }
  void Report(int64_t elements) {
    done_elements_ += elements;
    if (options_.progress) options_.progress(static_cast<double>(done_elements_) / total_elements_);
  }

  void LoadVectors() {
    out_.vectors_.resize(slices_.size());
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (!program_.weights[i].vector) continue;
      std::vector<float>& vector = out_.vectors_[i];
      vector.resize(slices_[i].elements());
      kernels_.decode_row(PartOf(slices_[i]), 0, 1.0f, vector.data());
      Done(static_cast<WeightId>(i));
    }
  }

  void LoadMatrix(const Matrix& matrix) {
    uint8_t* data = out_.arena_.data() + matrix.offset;
    out_.matrices_.push_back({.type = matrix.type,
                              .rows = matrix.rows,
                              .cols = matrix.cols,
                              .data = data,
                              .group_stride_bytes = matrix.group_stride_bytes});
    for (WeightId id : matrix.parts) {
      const kernels::WeightPart part = PartOf(slice(id));
      const kernels::PackedMatrix target{.type = matrix.type,
                                         .rows = part.rows,
                                         .cols = part.cols,
                                         .data = data,
                                         .group_stride_bytes = matrix.group_stride_bytes};
      constexpr int kGroupsPerPiece = 4;
      const int groups = kernels::Groups(part.rows);
      pool_.Run((groups + kGroupsPerPiece - 1) / kGroupsPerPiece, [&](int piece, int) {
        if (cancelled()) return;
        const int begin = piece * kGroupsPerPiece;
        kernels_.pack(part, target, begin, std::min(groups, begin + kGroupsPerPiece));
      });
      data += groups * matrix.group_stride_bytes;
      Done(id);
    }
    out_.biases_.push_back(BiasOf(matrix));
  }

  std::vector<float> BiasOf(const Matrix& matrix) const {
    std::vector<float> bias;
    for (size_t i = 0; i < matrix.biases.size(); ++i) {
      if (matrix.biases[i] == WeightId::kNone) {
        bias.resize(bias.size() + slice(matrix.parts[i]).rows.size());
      } else {
        const std::vector<float>& part = out_.vectors_[static_cast<int>(matrix.biases[i])];
        bias.insert(bias.end(), part.begin(), part.end());
      }
    }
    return bias;
  }

  void LoadStored(const EmbedLaunch& embed) {
    const WeightSlice& from = slice(embed.stored);
    const int64_t row_bytes = static_cast<int64_t>(from.RowBytes(0).size());
    uint8_t* data = out_.arena_.data() + embed.stored_offset;
    constexpr int kRowsPerPiece = 256;
    const int rows = from.rows.size();
    pool_.Run((rows + kRowsPerPiece - 1) / kRowsPerPiece, [&](int piece, int) {
      for (int r = piece * kRowsPerPiece; r < std::min(rows, (piece + 1) * kRowsPerPiece); ++r) {
        std::memcpy(data + r * row_bytes, from.RowBytes(r).data(), row_bytes);
      }
    });
    out_.stored_[static_cast<int>(embed.stored)] = {.type = from.tensor->type,
                                                    .bytes = data,
                                                    .row_stride_bytes = row_bytes,
                                                    .rows = rows,
                                                    .cols = from.cols.size()};
    Done(embed.stored);
  }

  const Plan& plan_;
  const Program& program_;
  const std::vector<WeightSlice>& slices_;
  const WeightSource& source_;
  const kernels::CpuKernels& kernels_;
  ThreadPool& pool_;
  const BackendOptions& options_;
  std::map<const TensorView*, int> uses_;
  int64_t total_elements_ = 0, done_elements_ = 0;
  Weights out_;
};

Result<Weights> Weights::Load(const Plan& plan, const Program& program,
                              const std::vector<WeightSlice>& slices, const WeightSource& source,
                              const kernels::CpuKernels& kernels, ThreadPool& pool,
                              const BackendOptions& options) {
  return Loader(plan, program, slices, source, kernels, pool, options).Load();
}

kernels::WeightPart Weights::stored(const EmbedLaunch& launch) const {
  return stored_[static_cast<int>(launch.stored)];
}

}  // namespace staffel::cpu
