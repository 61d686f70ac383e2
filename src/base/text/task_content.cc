#include "base/text/task_content.h"

#include <cstddef>

#include "base/bytes.h"
#include "base/text/packed_field.h"

namespace gpusched {
namespace {

constexpr uint64_t kTag = kTaskContentField << 3 | 2;
constexpr std::size_t kDigestBytes = 16;

/// Where the field is, with its tag, and the digest in it.
struct Place {
  std::size_t begin = 0, end = 0;
  std::string_view digest;
};

Place place_in(std::string_view packed_spec) {
  ByteReader reader(packed_spec);
  while (!reader.at_end()) {
    const std::size_t begin = packed_spec.size() - reader.remaining();
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!reader.ok() || !read_field(reader, tag, bytes)) return {};
    if (tag == kTag && bytes.size() == kDigestBytes)
      return {.begin = begin, .end = packed_spec.size() - reader.remaining(), .digest = bytes};
  }
  return {};
}

}  // namespace

void add_task_content(std::string& packed_spec, TaskContent content) {
  std::string digest;
  ByteWriter inner(digest);
  inner.fixed64(content.high);
  inner.fixed64(content.low);
  ByteWriter out(packed_spec);
  out.varint(kTag);
  out.bytes(digest);
}

TaskContent task_content_of(std::string_view packed_spec) {
  const Place place = place_in(packed_spec);
  if (place.digest.empty()) return {};
  ByteReader reader(place.digest);
  TaskContent content;
  content.high = reader.fixed64();
  content.low = reader.fixed64();
  return content;
}

void remove_task_content(std::string& packed_spec) {
  const Place place = place_in(packed_spec);
  packed_spec.erase(place.begin, place.end - place.begin);
}

}  // namespace gpusched
