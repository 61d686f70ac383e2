#include "base/text/task_payload.h"

#include <optional>

#include "base/bytes.h"
#include "base/text/packed_field.h"

namespace gpusched {

void add_task_payload(std::string& packed_spec, std::string_view payload) {
  if (payload.empty()) return;
  ByteWriter out(packed_spec);
  out.varint(kTaskPayloadField << 3 | 2);
  out.bytes(payload);
}

std::string_view task_payload_of(std::string_view packed_spec) {
  return find_field(packed_spec, kTaskPayloadField).bytes;
}

std::size_t task_payload_bytes_of(std::string_view packed_spec) {
  const std::string_view payload = task_payload_of(packed_spec);
  if (!payload.empty()) return payload.size();
  const std::optional<uint64_t> size = find_number(packed_spec, kTaskPayloadField);
  return size ? static_cast<std::size_t>(*size) : 0;
}

std::string forget_task_payload(std::string_view packed_spec) {
  const std::size_t bytes = task_payload_of(packed_spec).size();
  std::string rest = without_task_payload(packed_spec);
  if (bytes == 0) return rest;
  ByteWriter out(rest);
  out.varint(kTaskPayloadField << 3);
  out.varint(bytes);
  return rest;
}

std::string without_task_payload(std::string_view packed_spec) {
  const PackedField field = find_field(packed_spec, kTaskPayloadField);
  std::string rest(packed_spec.substr(0, field.begin));
  rest += packed_spec.substr(field.end);
  return rest;
}

}  // namespace gpusched
