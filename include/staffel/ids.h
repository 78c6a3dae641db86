// Strong integer types for everything that is counted or named. Two ids of different kinds do not
// compare or convert.
#pragma once

#include <compare>
#include <cstdint>
#include <ostream>
#include <utility>

namespace staffel {

template <class Tag, class Integer>
struct Id {
  Integer value = Integer(-1);

  constexpr Id() = default;
  constexpr explicit Id(Integer v) : value(v) {}
  constexpr bool valid() const { return value != Integer(-1); }
  constexpr auto operator<=>(const Id&) const = default;

  template <class H>
  friend H AbslHashValue(H h, const Id& id) {
    return H::combine(std::move(h), id.value);
  }
  friend std::ostream& operator<<(std::ostream& out, const Id& id) { return out << id.value; }
};

using TokenId = int32_t;  // index into the vocabulary
using RequestId =
    Id<struct RequestTag, uint64_t>;       // what a client sent; unique in the master's life
using Slot = Id<struct SlotTag, int32_t>;  // a sequence's index in the workers' tables
using BlockId =
    Id<struct BlockTag, int32_t>;  // KV storage of block_size tokens, the same id on every rank

}  // namespace staffel
