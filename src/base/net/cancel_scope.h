#pragma once

#include <atomic>

namespace gpusched {

/// Lets what this thread waits for in the network end early: from its construction to its destruction, once
/// `cancelled` is true, the client's waits on this thread end within kCancelLookMs as if their time were
/// over. A thread that must be joined soon makes one. The innermost counts.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& cancelled) : outer_(current_) { current_ = &cancelled; }
  ~CancelScope() { current_ = outer_; }
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Whether there is one on this thread, and whether it is cancelled.
  static bool exists() { return current_ != nullptr; }
  static bool is_cancelled() { return current_ != nullptr && current_->load(std::memory_order_acquire); }

 private:
  inline static thread_local const std::atomic<bool>* current_ = nullptr;
  const std::atomic<bool>* const outer_;
};

/// How often a wait looks whether it is cancelled.
inline constexpr int kCancelLookMs = 50;

}  // namespace gpusched
