#include "base/text/trace_variable.h"

#include "base/bytes.h"
#include "base/text/packed_field.h"
#include "base/text/trace_context.h"

namespace gpusched {
namespace {

constexpr uint64_t kBytesField = 2;  // The wire type of texts and of messages.
constexpr uint64_t kEnvironment = 6 << 3 | kBytesField;
constexpr uint64_t kKey = 1 << 3 | kBytesField, kValue = 2 << 3 | kBytesField;
constexpr std::size_t kTraceparentBytes = 55;

/// An entry of the environment as `add_trace` packs it.
std::string entry_of(std::string_view traceparent) {
  std::string entry;
  ByteWriter inner(entry);
  inner.varint(kValue);
  inner.bytes(traceparent);
  inner.varint(kKey);
  inner.bytes(kTraceVariable);
  std::string field;
  ByteWriter out(field);
  out.varint(kEnvironment);
  out.bytes(entry);
  return field;
}

bool names_variable(std::string_view entry) {
  ByteReader reader(entry);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    if (tag != kKey && tag != kValue) return false;
    const std::string_view text = reader.bytes();
    if (reader.ok() && tag == kKey && text == kTraceVariable) return true;
  }
  return false;
}

/// Whether the job names the variable, or has bytes that are no JobSpec's: behind those nothing is put.
bool keeps_trace_away(std::string_view packed_spec) {
  ByteReader reader(packed_spec);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!read_field(reader, tag, bytes) || (tag == kEnvironment && names_variable(bytes))) return true;
  }
  return false;
}

}  // namespace

void add_trace(std::string& packed_spec, std::string_view traceparent) {
  if (trace_id_of(traceparent).empty() || keeps_trace_away(packed_spec)) return;
  // Of a version to come what version 00 has is passed on, as the standard asks for.
  packed_spec += entry_of("00" + std::string(traceparent.substr(2, kTraceparentBytes - 2)));
}

std::string_view without_trace(std::string_view packed_spec) {
  static const std::size_t kSize = entry_of(std::string(kTraceparentBytes, '0')).size();
  if (packed_spec.size() < kSize) return packed_spec;
  const std::size_t place = packed_spec.size() - kSize;
  const std::string_view last = packed_spec.substr(place);
  const std::size_t value_at = kSize - kTraceparentBytes - kTraceVariable.size() - 2;
  const std::string_view value = last.substr(value_at, kTraceparentBytes);
  const bool is_trace = !trace_id_of(value).empty() && last == entry_of(value);
  return is_trace ? packed_spec.substr(0, place) : packed_spec;
}

}  // namespace gpusched
