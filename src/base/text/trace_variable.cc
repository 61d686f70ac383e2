#include "base/text/trace_variable.h"

#include <optional>

#include "base/bytes.h"
#include "base/text/appended_environment.h"
#include "base/text/packed_field.h"
#include "base/text/trace_context.h"

namespace gpusched {
namespace {

constexpr std::size_t kTraceparentBytes = 55;

bool names_variable(std::string_view entry, std::string_view name) {
  ByteReader reader(entry);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    if (tag != kVariableNameTag && tag != kVariableValueTag) return false;
    const std::string_view text = reader.bytes();
    if (reader.ok() && tag == kVariableNameTag && text == name) return true;
  }
  return false;
}

/// Whether the job names the variable, or has bytes that are no JobSpec's: behind those nothing is put.
bool keeps_away(std::string_view packed_spec, std::string_view name) {
  ByteReader reader(packed_spec);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!read_field(reader, tag, bytes) || (tag == kEnvironmentTag && names_variable(bytes, name)))
      return true;
  }
  return false;
}

/// Without the entry of that name and that many bytes of text at the end; nothing where it is not there.
std::optional<std::string_view> without_entry(std::string_view packed_spec, std::string_view name,
                                              std::size_t text_bytes, bool (*is_text)(std::string_view)) {
  const std::size_t size = appended_environment(name, std::string(text_bytes, '0')).size();
  if (packed_spec.size() < size) return std::nullopt;
  const std::size_t place = packed_spec.size() - size;
  const std::string_view last = packed_spec.substr(place);
  const std::string_view text = last.substr(size - text_bytes - name.size() - 2, text_bytes);
  if (!is_text(text) || last != appended_environment(name, text)) return std::nullopt;
  return packed_spec.substr(0, place);
}

bool is_traceparent(std::string_view text) { return !trace_id_of(text).empty(); }

/// Only the entry's length tells where it begins. No letter of an id is a tag: one length fits at most.
std::string_view without_request_id(std::string_view packed_spec) {
  if (!packed_spec.ends_with(kRequestVariable)) return packed_spec;
  for (std::size_t bytes = 1; bytes <= kRequestNameBytesMax; ++bytes) {
    if (const auto rest = without_entry(packed_spec, kRequestVariable, bytes, is_request_name)) return *rest;
  }
  return packed_spec;
}

}  // namespace

void add_request_id(std::string& packed_spec, std::string_view request_id) {
  if (!is_request_name(request_id) || keeps_away(packed_spec, kRequestVariable)) return;
  packed_spec += appended_environment(kRequestVariable, request_id);
}

void add_trace(std::string& packed_spec, std::string_view traceparent) {
  if (trace_id_of(traceparent).empty() || keeps_away(packed_spec, kTraceVariable)) return;
  // A later version is cut to what version 00 has, as the standard asks for.
  packed_spec +=
      appended_environment(kTraceVariable, "00" + std::string(traceparent.substr(2, kTraceparentBytes - 2)));
}

std::string_view without_trace(std::string_view packed_spec) {
  if (packed_spec.ends_with(kTraceVariable)) {
    const auto rest = without_entry(packed_spec, kTraceVariable, kTraceparentBytes, is_traceparent);
    if (rest) packed_spec = *rest;
  }
  return without_request_id(packed_spec);
}

}  // namespace gpusched
