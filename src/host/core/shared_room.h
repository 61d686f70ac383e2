#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace gpusched {

/// Room that several holders share. One holder gets at most as much as all of them together leave free: alone
/// half of the room, of two a third each, and whoever has nothing always finds something, however many ask
/// and however greedily. Not thread-safe.
template <typename Key>
class SharedRoom {
 public:
  explicit SharedRoom(std::size_t room) : room_(room) {}

  bool fits(const Key& key, std::size_t amount) const { return fits_in(room_, key, amount); }
  /// As if the room were another: a part of it may be kept for those who are asked with more.
  bool fits_in(std::size_t room, const Key& key, std::size_t amount) const {
    if (used_ > room || amount > room - used_) return false;
    return held(key) + amount <= room - used_ - amount;
  }
  /// Without asking whether it fits. Each amount is given back once.
  void take(const Key& key, std::size_t amount) {
    held_[key] += amount;
    used_ += amount;
  }
  void give_back(const Key& key, std::size_t amount) {
    const auto found = held_.find(key);
    CHECK(found != held_.end() && found->second >= amount);
    found->second -= amount;
    used_ -= amount;
    if (found->second == 0) held_.erase(found);
  }
  void set_room(std::size_t room) { room_ = room; }

  std::size_t room() const { return room_; }
  std::size_t used() const { return used_; }
  std::size_t held(const Key& key) const {
    const auto found = held_.find(key);
    return found == held_.end() ? 0 : found->second;
  }
  std::size_t holders() const { return held_.size(); }

 private:
  std::size_t room_;
  std::size_t used_ = 0;
  boost::unordered_flat_map<Key, std::size_t> held_;
};

}  // namespace gpusched
