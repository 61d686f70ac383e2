#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "codec/binary.h"

namespace gpusched {

/// Counts the bytes that Encoder would write, without writing them. Exact; a test compares the two.
class SizeVisitor {
 public:
  template <HasFields T>
  static std::size_t size_of(const T& value) {
    SizeVisitor visitor;
    T::fields(value, visitor);
    return visitor.bytes_;
  }

  template <typename T>
  void operator()(uint32_t number, const char*, const T& value) {
    if (HashVisitor::is_zero(value)) return;
    bytes_ += varint_size((uint64_t{number} << 3) | static_cast<uint64_t>(wire_kind<T>()));
    bytes_ += size_of_value(value);
  }

 private:
  static std::size_t varint_size(uint64_t value) {
    return (static_cast<std::size_t>(std::bit_width(value | 1)) + 6) / 7;
  }
  static std::size_t svarint_size(int64_t value) {
    return varint_size((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  static std::size_t with_length(std::size_t size) { return varint_size(size) + size; }

  template <typename T>
  static std::size_t size_of_value(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      return with_length(value.size());
    } else if constexpr (std::is_same_v<T, Blob>) {
      return with_length(value.view().size());
    } else if constexpr (kIsVector<T>) {
      std::size_t size = varint_size(value.size());
      for (const auto& element : value) size += size_of_value(element);
      return with_length(size);
    } else if constexpr (kIsBoxed<T>) {
      return size_of_value(*value);
    } else if constexpr (HasFields<T>) {
      return with_length(size_of(value));
    } else if constexpr (kIsId<T>) {
      return svarint_size(static_cast<int64_t>(value.value));
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
      return svarint_size(value.ns);
    } else if constexpr (kIsOptionalNumber<T>) {
      return svarint_size(stored_number(value));
    } else {
      return svarint_size(static_cast<int64_t>(value));
    }
  }

  std::size_t bytes_ = 0;
};

}  // namespace gpusched
