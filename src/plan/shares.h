// Cutting a row of things into contiguous ranges for ranks of unequal speed.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "staffel/placement.h"

namespace staffel {

// `count` units of equal `cost` over ranks of `speeds`, each of which already has `load`: every
// rank gets at least one, each further unit goes where it ends soonest, ties to the lowest rank.
// count >= speeds.size() >= 1.
std::vector<int> Apportion(int count, double cost, absl::Span<const double> load,
                           absl::Span<const double> speeds);

// The same with at most limits[rank] units for each rank. Nothing: they do not fit.
std::optional<std::vector<int>> ApportionWithin(int count, double cost,
                                                absl::Span<const double> load,
                                                absl::Span<const double> speeds,
                                                absl::Span<const int> limits);

// Contiguous ranges of those sizes in units of `granule`, from 0.
std::vector<Range> RangesOf(absl::Span<const int> sizes, int granule);

}  // namespace staffel
