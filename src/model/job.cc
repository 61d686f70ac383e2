#include "model/job.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr std::size_t kEntryBytes = 8;
constexpr std::size_t kBytesMax = limits::kPastNodesMax * kEntryBytes;

constexpr std::size_t kDependencyBytes = 9;

constexpr uint8_t kMoveRecord = 1;

}  // namespace

// Each is the parent in eight bytes, and in one its kind and, from the fifth bit on, the verdict.
std::vector<JobDependency> Job::dependency_list() const {
  std::vector<JobDependency> list;
  ByteReader packed(dependencies.view());
  while (packed.remaining() >= kDependencyBytes) {
    JobDependency& one = list.emplace_back();
    one.parent = JobId{packed.fixed64()};
    const uint8_t rest = packed.u8();
    one.kind = static_cast<DependencyKind>(rest & 0x0F);
    one.verdict = static_cast<JobDependency::Verdict>(rest >> 4);
  }
  return list;
}

void Job::set_dependencies(const std::vector<JobDependency>& list) {
  std::string packed;
  ByteWriter writer(packed);
  unmet = 0;
  for (const JobDependency& one : list) {
    writer.fixed64(one.parent.value);
    writer.u8(static_cast<uint8_t>(static_cast<uint8_t>(one.kind) | static_cast<uint8_t>(one.verdict) << 4));
    if (one.verdict != JobDependency::Verdict::kMet) ++unmet;
  }
  dependencies = Blob(packed);
}

// A byte that no sentence begins with, then the fields in their order.
std::optional<MoveRecord> Job::move_record() const {
  ByteReader packed(move_detail.view());
  if (packed.u8() != kMoveRecord) return std::nullopt;
  MoveRecord record;
  record.moved = packed.u8() != 0;
  record.from = packed.bytes();
  record.to = packed.bytes();
  for (uint64_t left = packed.varint(); left > 0 && packed.ok(); --left)
    record.others.push_back(JobId{packed.varint()});
  record.by = packed.bytes();
  record.why = packed.bytes();
  if (!packed.ok() || !packed.at_end()) return std::nullopt;
  return record;
}

void Job::set_move_record(const MoveRecord& record) {
  std::string packed;
  ByteWriter writer(packed);
  writer.u8(kMoveRecord);
  writer.u8(record.moved ? 1 : 0);
  writer.bytes(record.from);
  writer.bytes(record.to);
  writer.varint(record.others.size());
  for (const JobId other : record.others) writer.varint(other.value);
  writer.bytes(record.by);
  writer.bytes(record.why);
  move_detail = Blob(packed);
}

void Attempt::count_members() {
  unprepared = unbegun = going = 0;
  for (const Member& member : members) {
    unprepared += member.state == MemberState::kPlaced ? 1 : 0;
    unbegun += has_begun(member.state) ? 0 : 1;
    going += member.state != MemberState::kEnded ? 1 : 0;
  }
}

void Attempt::move_member(uint32_t member, MemberState to) {
  MemberState& state = members[member].state;
  if (state == MemberState::kPlaced && to != state) --unprepared;
  if (!has_begun(state) && has_begun(to)) --unbegun;
  if (state != MemberState::kEnded && to == MemberState::kEnded) --going;
  state = to;
}

bool Attempt::may_go() const { return is_gang() && stop == StopReason::kNone && unprepared == 0; }

NodeId Job::node_of_attempt(uint32_t attempt) const {
  if (attempt == 0 || attempt > attempt_count) return NodeId{};
  const std::size_t back = attempt_count - attempt;
  if (back == 0) return node;
  const std::string_view nodes = past_nodes.view();
  if (back * kEntryBytes > nodes.size()) return NodeId{};
  ByteReader entry(nodes.substr(nodes.size() - back * kEntryBytes, kEntryBytes));
  return NodeId{entry.fixed64()};
}

NodeId Job::node_of_member(uint32_t member) const {
  if (member == 0) return node;
  const std::string_view nodes = member_nodes.view();
  if ((std::size_t{member} + 1) * kEntryBytes > nodes.size()) return NodeId{};
  ByteReader entry(nodes.substr(member * kEntryBytes, kEntryBytes));
  return NodeId{entry.fixed64()};
}

void Job::set_member_nodes(const std::vector<NodeId>& nodes) {
  std::string packed;
  ByteWriter writer(packed);
  for (std::size_t i = 0; nodes.size() > 1 && i < nodes.size(); ++i) writer.fixed64(nodes[i].value);
  member_nodes = Blob(packed);
}

void Job::remember_node() {
  std::string nodes(past_nodes.view());
  ByteWriter(nodes).fixed64(node.value);
  if (nodes.size() > kBytesMax) nodes.erase(0, nodes.size() - kBytesMax);
  past_nodes = Blob(nodes);
}

}  // namespace gpusched
