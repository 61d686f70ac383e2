#pragma once

#include <string>
#include <string_view>

#include "base/fields.h"

namespace gpusched {

/// Appends `text` as a JSON string; bytes that are not ASCII text are escaped one by one.
void dump_string(std::string& out, std::string_view text);

namespace codec_detail {

/// Writes fields that are not zero as members of a JSON object. For people; nothing reads it back.
class DumpVisitor {
 public:
  explicit DumpVisitor(std::string& out) : out_(out) {}

  template <typename T>
  void operator()(uint32_t, const char* name, const T& value) {
    if (HashVisitor::is_zero(value)) return;
    if (!first_) out_ += ',';
    first_ = false;
    dump_string(out_, name);
    out_ += ':';
    put(value);
  }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      dump_string(out_, value);
    } else if constexpr (std::is_same_v<T, Blob>) {
      out_ += "{\"bytes\":" + std::to_string(value.view().size()) + "}";
    } else if constexpr (kIsVector<T>) {
      out_ += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out_ += ',';
        put(value[i]);
      }
      out_ += ']';
    } else if constexpr (kIsBoxed<T>) {
      put(*value);
    } else if constexpr (HasFields<T>) {
      out_ += '{';
      T::fields(value, DumpVisitor(out_));
      out_ += '}';
    } else if constexpr (kIsId<T>) {
      out_ += std::to_string(value.value);
    } else if constexpr (std::is_same_v<T, Time> || std::is_same_v<T, Duration>) {
      out_ += std::to_string(value.ns);
    } else if constexpr (std::is_same_v<T, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (kIsOptionalNumber<T>) {
      out_ += std::to_string(*value);  // An absent one is zero, which is not written.
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      out_ += std::to_string(value);
    } else {
      out_ += std::to_string(static_cast<int64_t>(value));
    }
  }

  std::string& out_;
  bool first_ = true;
};

}  // namespace codec_detail

/// Appends a struct as a JSON object of its fields that are not zero.
template <HasFields T>
void dump_json(std::string& out, const T& value) {
  out += '{';
  T::fields(value, codec_detail::DumpVisitor(out));
  out += '}';
}

}  // namespace gpusched
