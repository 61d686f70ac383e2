#include "base/text/task_content.h"

#include <cstddef>

#include "base/bytes.h"
#include "base/text/packed_field.h"

namespace gpusched {
namespace {

constexpr std::size_t kDigestBytes = 16;

/// The field, if it holds a digest.
PackedField digest_in(std::string_view packed_spec) {
  const PackedField field = find_field(packed_spec, kTaskContentField);
  return field.bytes.size() == kDigestBytes ? field : PackedField{};
}

}  // namespace

void add_task_content(std::string& packed_spec, TaskContent content) {
  std::string digest;
  ByteWriter inner(digest);
  inner.fixed64(content.high);
  inner.fixed64(content.low);
  ByteWriter out(packed_spec);
  out.varint(kTaskContentField << 3 | 2);
  out.bytes(digest);
}

TaskContent task_content_of(std::string_view packed_spec) {
  const PackedField field = digest_in(packed_spec);
  if (field.bytes.empty()) return {};
  ByteReader reader(field.bytes);
  TaskContent content;
  content.high = reader.fixed64();
  content.low = reader.fixed64();
  return content;
}

void remove_task_content(std::string& packed_spec) {
  const PackedField field = digest_in(packed_spec);
  packed_spec.erase(field.begin, field.end - field.begin);
}

}  // namespace gpusched
