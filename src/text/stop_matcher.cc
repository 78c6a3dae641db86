#include "text/stop_matcher.h"

#include <utility>

namespace staffel {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop)
    : stops_(std::move(stops)), include_stop_(include_stop) {
  Build();
}

int32_t StopMatcher::Child(int32_t node, char byte) const {
  const auto it = edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte));
  return it == edges_.end() ? -1 : it->second;
}

int32_t StopMatcher::Step(int32_t node, char byte) const {
  while (true) {
    const int32_t child = Child(node, byte);
    if (child >= 0) return child;
    if (node == 0) return 0;
    node = nodes_[node].fail;
  }
}

void StopMatcher::Build() {
  nodes_.emplace_back();
  for (size_t i = 0; i < stops_.size(); i++) {
    if (stops_[i].empty()) continue;
    int32_t node = 0;
    for (const char byte : stops_[i]) {
      const auto [it, added] =
          edges_.try_emplace(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte),
                             static_cast<int32_t>(nodes_.size()));
      if (added) nodes_.push_back({.depth = nodes_[node].depth + 1});
      node = it->second;
    }
    if (nodes_[node].stop < 0) nodes_[node].stop = static_cast<int>(i);
  }
  // Failure links in order of depth: a node's link is known before those of its children.
  std::vector<std::vector<std::pair<char, int32_t>>> children(nodes_.size());
  for (const auto& [key, child] : edges_) {
    children[key >> 8].emplace_back(static_cast<char>(key & 0xFF), child);
  }
  std::vector<int32_t> order = {0};
  for (size_t i = 0; i < order.size(); i++) {
    for (const auto& [byte, child] : children[order[i]]) {
      if (order[i] != 0) nodes_[child].fail = Step(nodes_[order[i]].fail, byte);
      if (nodes_[child].stop < 0) nodes_[child].stop = nodes_[nodes_[child].fail].stop;
      order.push_back(child);
    }
  }
}

bool StopMatcher::Push(std::string_view text, std::string* out) {
  if (finished_) return matched_.has_value();
  held_.append(text);
  for (const char byte : text) {
    state_ = Step(state_, byte);
    read_++;
    const Node& node = nodes_[state_];
    if (node.stop >= 0) {
      const size_t start = read_ - stops_[node.stop].size();
      if (!best_ || start < best_->start) best_ = Match{start, node.stop};
    }
    // The node's string is the longest that may still grow into a match; none starts before it.
    if (best_ && read_ - node.depth >= best_->start) {
      Win(out);
      return true;
    }
  }
  const size_t free = held_.size() - nodes_[state_].depth;
  out->append(held_, 0, free);
  held_.erase(0, free);
  given_ += free;
  return false;
}

bool StopMatcher::Flush(std::string* out) {
  if (finished_) return matched_.has_value();
  if (best_) {
    Win(out);
    return true;
  }
  finished_ = true;
  out->append(held_);
  held_.clear();
  return false;
}

void StopMatcher::Win(std::string* out) {
  finished_ = true;
  matched_ = best_->stop;
  const size_t stop_bytes = include_stop_ ? stops_[best_->stop].size() : 0;
  const size_t length = best_->start - given_ + stop_bytes;
  out->append(held_, 0, length);
  held_.clear();
}

}  // namespace staffel
