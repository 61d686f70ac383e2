#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace gpusched {

/// A struct that few of its owners need: one pointer wide, and none while it equals T{}. Copies are deep. Not
/// thread-safe beyond what is const.
template <typename T>
class Rare {
 public:
  Rare() = default;
  Rare(const Rare& other) : value_(other.value_ == nullptr ? nullptr : std::make_unique<T>(*other.value_)) {}
  Rare(Rare&& other) noexcept = default;
  Rare& operator=(Rare other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  ~Rare() = default;

  const T& operator*() const { return value_ == nullptr ? none() : *value_; }
  const T* operator->() const { return &**this; }
  bool is_set() const { return value_ != nullptr; }

  /// Takes the whole struct; keeps no memory for T{}.
  void assign(T value) {
    if (value == T{}) {
      value_ = nullptr;
    } else if (value_ == nullptr) {
      value_ = std::make_unique<T>(std::move(value));
    } else {
      *value_ = std::move(value);
    }
  }
  /// Sets one member. Makes nothing for a value that it has already.
  template <typename Member>
  void set(Member T::* member, std::type_identity_t<Member> value) {
    if ((**this).*member == value) return;
    if (value_ == nullptr) value_ = std::make_unique<T>();
    (*value_).*member = std::move(value);
  }

 private:
  static const T& none() {
    static const T kNone{};
    return kNone;
  }
  std::unique_ptr<T> value_;
};

/// The members of a Rare for `fields`: of a const one as they are, of another one a copy that is put back.
template <typename T>
class RareFields {
 public:
  explicit RareFields(Rare<T>& rare) : rare_(rare), value_(*rare) {}
  ~RareFields() { rare_.assign(std::move(value_)); }
  RareFields(const RareFields&) = delete;
  RareFields& operator=(const RareFields&) = delete;
  T* operator->() { return &value_; }

 private:
  Rare<T>& rare_;
  T value_;
};
template <typename T>
class RareFields<const T> {
 public:
  explicit RareFields(const Rare<T>& rare) : value_(*rare) {}
  const T* operator->() const { return &value_; }

 private:
  const T& value_;
};
template <typename T>
RareFields(Rare<T>&) -> RareFields<T>;
template <typename T>
RareFields(const Rare<T>&) -> RareFields<const T>;

}  // namespace gpusched
