#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace gpusched {

/// Appends little-endian and variable-length (LEB128) integers to a string.
class ByteWriter {
 public:
  explicit ByteWriter(std::string& out) : out_(out) {}

  void u8(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void fixed32(uint32_t value) { raw(&value, sizeof value); }
  void fixed64(uint64_t value) { raw(&value, sizeof value); }
  void varint(uint64_t value) {
    char buffer[10];
    int size = 0;
    while (value >= 0x80) {
      buffer[size++] = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    buffer[size++] = static_cast<char>(value);
    out_.append(buffer, static_cast<std::size_t>(size));
  }
  /// Small negative numbers stay small (zigzag).
  void svarint(int64_t value) {
    varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void bytes(std::string_view value) {
    varint(value.size());
    out_.append(value);
  }
  std::size_t size() const { return out_.size(); }

 private:
  void raw(const void* data, std::size_t size) { out_.append(static_cast<const char*>(data), size); }
  std::string& out_;
};

/// Reads what ByteWriter wrote, from untrusted bytes: every read past the end or overlong number makes
/// `ok()` false for good and returns zero or nothing.
class ByteReader {
 public:
  explicit ByteReader(std::string_view in) : in_(in) {}

  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }
  std::size_t remaining() const { return in_.size(); }
  void fail() {
    ok_ = false;
    in_ = {};
  }

  uint8_t u8() {
    if (in_.empty()) return fail(), uint8_t{0};
    const auto value = static_cast<uint8_t>(in_.front());
    in_.remove_prefix(1);
    return value;
  }
  uint32_t fixed32() { return fixed<uint32_t>(); }
  uint64_t fixed64() { return fixed<uint64_t>(); }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (in_.empty()) return fail(), 0;
      const auto byte = static_cast<uint8_t>(in_.front());
      in_.remove_prefix(1);
      if (shift == 63 && byte > 1) return fail(), 0;
      value |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return fail(), 0;
  }
  int64_t svarint() {
    const uint64_t value = varint();
    return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
  }
  /// The next `size` bytes, as a view into the input: valid as long as the input is.
  std::string_view take(std::size_t size) {
    if (size > in_.size()) return fail(), std::string_view{};
    const std::string_view value = in_.substr(0, size);
    in_.remove_prefix(size);
    return value;
  }
  /// Length and bytes, likewise.
  std::string_view bytes() {
    const uint64_t size = varint();
    if (size > in_.size()) return fail(), std::string_view{};
    const std::string_view value = in_.substr(0, size);
    in_.remove_prefix(size);
    return value;
  }

 private:
  template <typename T>
  T fixed() {
    if (in_.size() < sizeof(T)) return fail(), T{0};
    T value = 0;
    std::memcpy(&value, in_.data(), sizeof(T));
    in_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view in_;
  bool ok_ = true;
};

}  // namespace gpusched
