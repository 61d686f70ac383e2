#include "shim/box.h"

#include <climits>
#include <cstdint>

namespace gpusched::shim {
namespace {

template <typename Struct>
concept HasMembers = requires(Struct& value) { Struct::members(value, [](auto&) {}); };

class Putter {
 public:
  explicit Putter(ByteWriter& out) : out_(out) {}

  void operator()(const std::string& value) { out_.bytes(value); }
  void operator()(bool value) { out_.u8(value ? 1 : 0); }
  void operator()(uint32_t value) { out_.varint(value); }
  void operator()(uint64_t value) { out_.varint(value); }
  void operator()(int32_t value) { out_.svarint(value); }
  void operator()(int64_t value) { out_.svarint(value); }
  template <typename Value>
  void operator()(const std::optional<Value>& value) {
    (*this)(value.has_value());
    if (value) (*this)(*value);
  }
  template <typename Value>
  void operator()(const std::vector<Value>& values) {
    out_.varint(values.size());
    for (const Value& value : values) (*this)(value);
  }
  template <HasMembers Struct>
  void operator()(const Struct& value) {
    Struct::members(value, *this);
  }

 private:
  ByteWriter& out_;
};

class Getter {
 public:
  explicit Getter(ByteReader& in) : in_(in) {}

  void operator()(std::string& value) { value = std::string(in_.bytes()); }
  void operator()(bool& value) { value = in_.u8() != 0; }
  void operator()(uint32_t& value) {
    const uint64_t number = in_.varint();
    if (number > UINT32_MAX) in_.fail();
    value = static_cast<uint32_t>(number);
  }
  void operator()(uint64_t& value) { value = in_.varint(); }
  void operator()(int32_t& value) {
    const int64_t number = in_.svarint();
    if (number < INT32_MIN || number > INT32_MAX) in_.fail();
    value = static_cast<int32_t>(number);
  }
  void operator()(int64_t& value) { value = in_.svarint(); }
  template <typename Value>
  void operator()(std::optional<Value>& value) {
    bool there = false;
    (*this)(there);
    if (there) (*this)(value.emplace());
  }
  template <typename Value>
  void operator()(std::vector<Value>& values) {
    const uint64_t count = in_.varint();
    if (count > in_.remaining()) in_.fail();  // Each takes a byte at least.
    for (uint64_t i = 0; i < count && in_.ok(); ++i) (*this)(values.emplace_back());
  }
  template <HasMembers Struct>
  void operator()(Struct& value) {
    Struct::members(value, *this);
  }

 private:
  ByteReader& in_;
};

}  // namespace

void put_box(ByteWriter& out, const Box& box) { Putter{out}(box); }

Box get_box(ByteReader& in) {
  Box box;
  Getter{in}(box);
  return box;
}

}  // namespace gpusched::shim
