#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace gpusched::api {

/// Counts the answers of one door by their code, and the time from a request's head to its answer's. Streams
/// count when they begin to answer. Thread-safe; counting takes some ten nanoseconds.
class RequestMeter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kCodesMax = 600;
  /// Upper bounds in seconds; a further bucket is for what took longer.
  static constexpr std::array<double, 9> kBounds = {0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60};

  explicit RequestMeter(std::string_view kind) : kind_(kind) {}

  /// `code` is of HTTP or of gRPC.
  void count(int code, Clock::time_point began);

  std::string_view kind() const { return kind_; }  ///< Such as "grpc".
  uint64_t answers(std::size_t code) const { return answers_[code].load(std::memory_order_relaxed); }
  /// Answers that took no longer than the bucket's bound, and longer than the one before.
  uint64_t bucket(std::size_t index) const { return buckets_[index].load(std::memory_order_relaxed); }
  double seconds() const { return static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / 1e9; }

 private:
  const std::string_view kind_;
  std::array<std::atomic<uint64_t>, kCodesMax> answers_{};
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<uint64_t> nanoseconds_ = 0;
};

}  // namespace gpusched::api
