#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace gpusched::api {

/// The answers of a stream: asked for in order, ready in any order, taken in order. Thread-safe.
template <typename Answer>
class OrderedAnswers {
 public:
  /// Keeps the next place; what `put` fills later.
  uint64_t reserve() {
    const std::lock_guard lock(mutex_);
    places_.emplace_back();
    return first_ + places_.size() - 1;
  }
  void put(uint64_t place, Answer answer) {
    const std::lock_guard lock(mutex_);
    places_[place - first_].emplace(std::move(answer));
  }
  /// The answers whose turn it is, at most `most`; they are forgotten here.
  std::vector<Answer> take(std::size_t most) {
    const std::lock_guard lock(mutex_);
    std::vector<Answer> out;
    while (!places_.empty() && places_.front() && out.size() < most) {
      out.push_back(std::move(*places_.front()));
      places_.pop_front();
      ++first_;
    }
    return out;
  }
  /// Whether there is something to take.
  bool ready() const {
    const std::lock_guard lock(mutex_);
    return !places_.empty() && places_.front().has_value();
  }
  /// Places that were not taken yet.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return places_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::deque<std::optional<Answer>> places_;
  uint64_t first_ = 0;  // The number of the front place.
};

}  // namespace gpusched::api
