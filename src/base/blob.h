#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace gpusched {

/// Immutable bytes, shared by reference count: one pointer wide, so that a million waiting jobs and the
/// observer's copy of them hold their specifications once. Thread-safe as far as it is const.
class Blob {
 public:
  Blob() = default;
  explicit Blob(std::string_view bytes) {
    if (bytes.empty()) return;
    CHECK(bytes.size() <= UINT32_MAX);
    void* memory = ::operator new(sizeof(Header) + bytes.size());
    header_ = new (memory) Header{.references = 1, .size = static_cast<uint32_t>(bytes.size())};
    std::memcpy(static_cast<void*>(header_ + 1), bytes.data(), bytes.size());
  }
  Blob(const Blob& other) : header_(other.header_) {
    if (header_ != nullptr) header_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Blob(Blob&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  Blob& operator=(Blob other) noexcept {
    std::swap(header_, other.header_);
    return *this;
  }
  ~Blob() {
    if (header_ == nullptr) return;
    if (header_->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    header_->~Header();
    ::operator delete(header_);
  }

  std::string_view view() const {
    if (header_ == nullptr) return {};
    return {reinterpret_cast<const char*>(header_ + 1), header_->size};
  }
  bool empty() const { return header_ == nullptr; }
  /// Equal for those that share one piece of memory; null when empty.
  const void* identity() const { return header_; }
  friend bool operator==(const Blob& a, const Blob& b) { return a.view() == b.view(); }

 private:
  struct Header {
    std::atomic<uint32_t> references;
    uint32_t size;
  };
  Header* header_ = nullptr;
};

}  // namespace gpusched
