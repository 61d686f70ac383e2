#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/fields.h"

/// The binary form of structs with `fields` (base/fields.h): for each field that is not zero, in ascending
/// order, `varint(number << 3 | kind)` and the value. Kinds: 0 a zigzag varint (integers, optional ones,
/// enums, ids, times), 1 length and bytes (strings, blobs), 2 length and a struct, 3 length, count and
/// elements (vectors). A struct ends where its length ends, so unknown fields can be skipped by their kind;
/// the reader is told when a newer writer wrote them.
namespace gpusched {

enum class WireKind : uint8_t { kInteger = 0, kBytes = 1, kStruct = 2, kVector = 3 };

template <typename T>
constexpr WireKind wire_kind() {
  if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Blob>) return WireKind::kBytes;
  if constexpr (kIsVector<T>) return WireKind::kVector;
  if constexpr (HasFields<T> || kIsBoxed<T>) return WireKind::kStruct;
  return WireKind::kInteger;
}

/// Appends structs to a string.
class Encoder {
 public:
  explicit Encoder(std::string& out) : out_(out), writer_(out) {}

  template <HasFields T>
  void encode(const T& value) {
    T::fields(value, *this);
  }

  template <typename T>
  void operator()(uint32_t number, const char*, const T& value) {
    if (HashVisitor::is_zero(value)) return;
    writer_.varint((uint64_t{number} << 3) | static_cast<uint64_t>(wire_kind<T>()));
    put(value);
  }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      writer_.bytes(value);
    } else if constexpr (std::is_same_v<T, Blob>) {
      writer_.bytes(value.view());
    } else if constexpr (kIsVector<T>) {
      sized([&] {
        writer_.varint(value.size());
        for (const auto& element : value) put(element);
      });
    } else if constexpr (kIsBoxed<T>) {
      put(*value);
    } else if constexpr (HasFields<T>) {
      sized([&] { encode(value); });
    } else if constexpr (kIsId<T>) {
      writer_.svarint(static_cast<int64_t>(value.value));
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
      writer_.svarint(value.ns);
    } else if constexpr (kIsOptionalNumber<T>) {
      writer_.svarint(stored_number(value));
    } else {
      writer_.svarint(static_cast<int64_t>(value));
    }
  }

  /// Writes what `body` writes behind its length. Most bodies are shorter than 128 bytes: one byte of length
  /// is kept free and widened when that was too little.
  template <typename Body>
  void sized(Body&& body) {
    const std::size_t at = out_.size();
    out_.push_back('\0');
    body();
    std::size_t size = out_.size() - at - 1;
    if (size < 0x80) {
      out_[at] = static_cast<char>(size);
      return;
    }
    char prefix[10];
    std::size_t width = 0;
    while (size >= 0x80) {
      prefix[width++] = static_cast<char>(size | 0x80);
      size >>= 7;
    }
    prefix[width++] = static_cast<char>(size);
    out_.insert(at + 1, width - 1, '\0');
    out_.replace(at, width, prefix, width);
  }

  std::string& out_;
  ByteWriter writer_;
};

/// Reads what Encoder wrote, from untrusted bytes. After any failure `ok()` is false and values are partial.
class Decoder {
 public:
  explicit Decoder(std::string_view in) : reader_(in) {}

  bool ok() const { return reader_.ok(); }
  /// Whether there were fields with higher numbers than this program knows: a newer one wrote them, and what
  /// was decoded is not what it meant.
  bool is_newer() const { return newer_; }

  /// Reads one struct that ends with the input.
  template <HasFields T>
  void decode(T& value) {
    next_tag();
    T::fields(value, *this);
    // The remaining fields are those of a newer writer.
    newer_ |= has_tag_;
    while (has_tag_) skip();
  }

  template <typename T>
  void operator()(uint32_t number, const char*, T& value) {
    while (has_tag_ && tag_ >> 3 < number) skip();
    if (!has_tag_ || tag_ >> 3 != number) return clear(value);
    if ((tag_ & 7) != static_cast<uint64_t>(wire_kind<T>())) return fail();
    get(value);
    next_tag();
  }

 private:
  static constexpr int kDepthMax = 16;

  void fail() {
    reader_.fail();
    has_tag_ = false;
  }
  void next_tag() {
    has_tag_ = reader_.ok() && !reader_.at_end();
    if (!has_tag_) return;
    const uint64_t before = tag_;
    tag_ = reader_.varint();
    // Ascending numbers only: anything else was not written by us.
    if (!reader_.ok() || (tag_ & 7) > 3 || (before != 0 && tag_ >> 3 <= before >> 3)) fail();
  }
  /// A field that is not there is zero, whatever the struct's own default is.
  template <typename T>
  static void clear(T& value) {
    if constexpr (wire_kind<T>() != WireKind::kStruct) value = T{};
  }
  void skip() {
    if ((tag_ & 7) == static_cast<uint64_t>(WireKind::kInteger)) {
      reader_.varint();
    } else {
      reader_.bytes();
    }
    next_tag();
  }

  template <typename T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      value.assign(reader_.bytes());
    } else if constexpr (std::is_same_v<T, Blob>) {
      value = Blob(reader_.bytes());
    } else if constexpr (kIsVector<T>) {
      get_vector(value);
    } else if constexpr (kIsBoxed<T>) {
      get(*value);
    } else if constexpr (HasFields<T>) {
      Decoder inner(reader_.bytes());
      inner.depth_ = depth_ + 1;
      if (!reader_.ok() || inner.depth_ > kDepthMax) return fail();
      inner.decode(value);
      newer_ |= inner.newer_;
      if (!inner.ok()) fail();
    } else {
      get_integer(value);
    }
  }

  template <typename T>
  void get_vector(std::vector<T>& value) {
    Decoder inner(reader_.bytes());
    inner.depth_ = depth_ + 1;
    if (!reader_.ok() || inner.depth_ > kDepthMax) return fail();
    const uint64_t count = inner.reader_.varint();
    // Every element takes a byte at least: a count beyond the bytes is a lie.
    if (count > inner.reader_.remaining()) return fail();
    value.reserve(count);
    for (uint64_t i = 0; i < count && inner.ok(); ++i) inner.get(value.emplace_back());
    newer_ |= inner.newer_;
    if (!inner.ok() || !inner.reader_.at_end()) fail();
  }

  template <typename T>
  void get_integer(T& value) {
    const int64_t number = reader_.svarint();
    if constexpr (kIsId<T>) {
      value.value = static_cast<uint64_t>(number);
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
      value.ns = number;
    } else if constexpr (kIsOptionalNumber<T>) {
      get_optional(number, value);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (number != 0 && number != 1) return fail();
      value = number != 0;
    } else if constexpr (std::is_enum_v<T>) {
      if (number < 0 || number > std::numeric_limits<std::underlying_type_t<T>>::max()) return fail();
      value = static_cast<T>(number);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      value = static_cast<uint64_t>(number);
    } else {
      if (number < int64_t{std::numeric_limits<T>::min()} ||
          number > int64_t{std::numeric_limits<T>::max()}) {
        return fail();
      }
      value = static_cast<T>(number);
    }
  }

  template <typename T>
  void get_optional(int64_t stored, std::optional<T>& value) {
    value.reset();
    if (stored == 0) return;
    if (stored == std::numeric_limits<int64_t>::min()) return fail();
    const int64_t number = stored - 1;
    if (number < int64_t{std::numeric_limits<T>::min()} || number > int64_t{std::numeric_limits<T>::max()})
      return fail();
    value = static_cast<T>(number);
  }

  ByteReader reader_;
  uint64_t tag_ = 0;
  bool has_tag_ = false;
  bool newer_ = false;
  int depth_ = 0;
};

}  // namespace gpusched
