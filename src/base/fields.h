#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/blob.h"
#include "base/digest.h"
#include "base/ids.h"
#include "base/time.h"

/// How structs that live for ever (commands, events, the state) are described, once, for every use: binary
/// codec, digest, dump. Each such struct has
///
///   template <typename Self, typename Visit>
///   static void fields(Self& self, Visit&& visit) {
///     visit(1, "name", self.name);
///     visit(2, "gpus", self.gpus);
///   }
///
/// An optional number is stored as its value plus one, so that an absent one is zero.
/// Numbers ascend, are never reused and never change their meaning. A field that equals its type's zero is
/// neither stored nor hashed, so a new field leaves old bytes and old digests as they are.
namespace gpusched {

/// A value that lives apart, so that a rare large struct does not widen a variant. Never empty.
template <typename T>
class Boxed {
 public:
  Boxed() : value_(std::make_unique<T>()) {}
  Boxed(T value) : value_(std::make_unique<T>(std::move(value))) {}  // NOLINT(google-explicit-constructor)
  Boxed(const Boxed& other) : value_(std::make_unique<T>(*other)) {}
  Boxed(Boxed&& other) noexcept = default;
  Boxed& operator=(Boxed other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Boxed() = default;

  const T& operator*() const { return *value_; }
  T& operator*() { return *value_; }
  const T* operator->() const { return value_.get(); }
  T* operator->() { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

namespace fields_detail {
struct AnyVisit {
  template <typename T>
  void operator()(uint32_t, const char*, T&) const {}
};
}  // namespace fields_detail

template <typename T>
concept HasFields = requires(T& value) { T::fields(value, fields_detail::AnyVisit{}); };

template <typename T>
inline constexpr bool kIsId = false;
template <typename Tag>
inline constexpr bool kIsId<Id<Tag>> = true;

template <typename T>
inline constexpr bool kIsBoxed = false;
template <typename T>
inline constexpr bool kIsBoxed<Boxed<T>> = true;

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <typename T>
inline constexpr bool kIsOptionalNumber = false;
template <std::integral T>
inline constexpr bool kIsOptionalNumber<std::optional<T>> = true;

/// Returns the number that is stored for an optional one: its value plus one, 0 when absent.
template <std::integral T>
int64_t stored_number(const std::optional<T>& value) {
  return value.has_value() ? static_cast<int64_t>(static_cast<uint64_t>(*value) + 1) : 0;
}

/// Mixes a value's fields, by number, into a digest.
class HashVisitor {
 public:
  explicit HashVisitor(Digest& digest) : digest_(digest) {}

  template <typename T>
  void operator()(uint32_t number, const char*, const T& value) {
    if (is_zero(value)) return;
    digest_.mix(number);
    mix(value);
  }

  template <typename T>
  static bool is_zero(const T& value) {
    if constexpr (std::is_same_v<T, std::string> || kIsVector<T> || std::is_same_v<T, Blob>) {
      return value.empty();
    } else if constexpr (HasFields<T> || kIsBoxed<T>) {
      return false;
    } else if constexpr (kIsOptionalNumber<T>) {
      return !value.has_value();
    } else {
      return value == T{};
    }
  }

 private:
  template <typename T>
  void mix(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      digest_.mix(std::string_view(value));
    } else if constexpr (std::is_same_v<T, Blob>) {
      digest_.mix(value.view());
    } else if constexpr (kIsVector<T>) {
      digest_.mix(value.size());
      for (const auto& element : value) mix(element);
    } else if constexpr (kIsId<T>) {
      digest_.mix(value.value);
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
      digest_.mix(static_cast<uint64_t>(value.ns));
    } else if constexpr (kIsBoxed<T>) {
      mix(*value);
    } else if constexpr (HasFields<T>) {
      T::fields(value, *this);
      digest_.mix(uint64_t{0});  // The struct's end.
    } else if constexpr (kIsOptionalNumber<T>) {
      digest_.mix(static_cast<uint64_t>(stored_number(value)));
    } else {
      static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
      digest_.mix(static_cast<uint64_t>(static_cast<int64_t>(value)));
    }
  }

  Digest& digest_;
};

/// Mixes `value`'s fields into `digest`.
template <HasFields T>
void mix_fields(Digest& digest, const T& value) {
  T::fields(value, HashVisitor(digest));
}

}  // namespace gpusched
