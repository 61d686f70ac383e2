#include "journal/testing/proof_left.h"

#include <algorithm>
#include <string_view>

#include "journal/journal_dir.h"
#include "journal/record_format.h"
#include "journal/spare_segments.h"

namespace gpusched {
namespace {

uint64_t proof_in(std::string_view segment, uint64_t store_id, uint64_t index) {
  uint64_t proof = 0;
  const ParsedSegmentHeader header = parse_segment_header(segment);
  if (header.state == HeaderState::kValid) proof = header.header.first_position - 1;
  for (uint64_t at = kSegmentHeaderBytes; at < segment.size(); at += kRecordAlignment) {
    const RecordPlace place{.store_id = store_id, .segment_index = index, .offset = at};
    const auto stored = parse_record(segment.substr(at), place);
    if (stored) proof = std::max(proof, stored->synced_position);
  }
  return proof;
}

}  // namespace

uint64_t proof_left(const MemoryDisk& disk, const std::string& dir, uint64_t store_id) {
  uint64_t proof = 0;
  for (const std::string& path : disk.files()) {
    if (!path.starts_with(dir + "/")) continue;
    const std::string name = path.substr(dir.size() + 1);
    const std::string bytes = disk.content(path);
    if (const auto index = parse_segment_name(name))
      proof = std::max(proof, proof_in(bytes, store_id, *index));
    if (name == kReachedName) proof = std::max(proof, parse_reached_mark(bytes, store_id).position);
  }
  return proof;
}

}  // namespace gpusched
