#include "model/job.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/utf8.h"

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
  ByteReader packed(extras->move_detail.view());
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
  extras.set(&JobExtras::move_detail, Blob(packed));
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

AttemptUsage Attempt::usage() const {
  AttemptUsage usage;
  for (const Member& member : members) {
    usage.total.add(member.outcome.usage);
    const EndCause cause = member.outcome.cause;
    const bool ran = cause != EndCause::kStartFailed && cause != EndCause::kNodeFault;
    if (ran && !member.outcome.usage.is_known()) ++usage.members_unknown;
  }
  return usage;
}

bool Attempt::may_go() const { return is_gang() && stop == StopReason::kNone && unprepared == 0; }

NodeId Job::node_of_attempt(uint32_t attempt) const {
  if (attempt == 0 || attempt > attempt_count) return NodeId{};
  const std::size_t back = attempt_count - attempt;
  if (back == 0) return node;
  const std::string_view nodes = extras->past_nodes.view();
  if (back * kEntryBytes > nodes.size()) return NodeId{};
  ByteReader entry(nodes.substr(nodes.size() - back * kEntryBytes, kEntryBytes));
  return NodeId{entry.fixed64()};
}

NodeId Job::node_of_member(uint32_t member) const {
  if (member == 0) return node;
  const std::string_view nodes = extras->member_nodes.view();
  if ((std::size_t{member} + 1) * kEntryBytes > nodes.size()) return NodeId{};
  ByteReader entry(nodes.substr(member * kEntryBytes, kEntryBytes));
  return NodeId{entry.fixed64()};
}

void Job::set_member_nodes(const std::vector<NodeId>& nodes) {
  std::string packed;
  ByteWriter writer(packed);
  for (std::size_t i = 0; nodes.size() > 1 && i < nodes.size(); ++i) writer.fixed64(nodes[i].value);
  extras.set(&JobExtras::member_nodes, Blob(packed));
}

void Job::remember_node() {
  std::string nodes(extras->past_nodes.view());
  ByteWriter(nodes).fixed64(node.value);
  if (nodes.size() > kBytesMax) nodes.erase(0, nodes.size() - kBytesMax);
  extras.set(&JobExtras::past_nodes, Blob(nodes));
}

namespace {

/// Room for an entry's numbers and what it used; its words come on top. A guess is enough.
constexpr std::size_t kEntryNumbersBytes = 96;

void pack_entry(ByteWriter& writer, const JobHistoryEntry& entry, Time since) {
  writer.u8(static_cast<uint8_t>(entry.step));
  writer.svarint(entry.at.ms() - since.ms());
  writer.varint(entry.attempt);
  switch (entry.step) {
    case JobStep::kPlaced:
      writer.varint(entry.node.value);
      writer.varint(entry.members);
      break;
    case JobStep::kEnded:
      writer.u8(static_cast<uint8_t>(entry.cause));
      writer.svarint(entry.exit_code);
      writer.svarint(entry.signal);
      writer.bytes(std::string_view(entry.detail).substr(0, limits::kHistoryDetailMax));
      pack_usage(writer, entry.usage);
      break;
    case JobStep::kRequeued:
    case JobStep::kPreempted:
    case JobStep::kHeldByFailure:
      writer.svarint(entry.until.ms() - since.ms());
      break;
    case JobStep::kFinished:
      writer.u8(static_cast<uint8_t>(entry.state));
      writer.u8(static_cast<uint8_t>(entry.reason));
      break;
    case JobStep::kStarted:
    case JobStep::kAbandoned:
      break;
    case JobStep::kCancelAsked:
    case JobStep::kHoldAsked:
    case JobStep::kReleaseAsked:
    case JobStep::kRequeueAsked:
    case JobStep::kChangeAsked:
      writer.bytes(entry.by);
      break;
  }
}

/// Not valid: no time that we would have written.
Time time_at(Time since, int64_t ms) {
  constexpr int64_t kMsMax = int64_t{1} << 42;  // More than a century.
  if (ms < -kMsMax || ms > kMsMax || since.ms() > kMsMax || since.ms() < -kMsMax) return {};
  return Time{(since.ms() + ms) * 1'000'000};
}

/// Words as they can be told. What was cut may end with a part of a character, and old journals hold words of
/// clients that were never UTF-8: they stay as they are in the state, whose digest is made of them.
std::string readable(std::string_view words) {
  constexpr std::size_t kTailMax = 3;
  const std::size_t good = utf8_prefix_bytes(words);
  const bool was_cut = words.size() == limits::kHistoryDetailMax && words.size() - good <= kTailMax;
  return utf8_cleaned(was_cut ? words.substr(0, good) : words);
}

/// False: it does not parse.
bool unpack_entry(std::string_view bytes, Time since, JobHistoryEntry& entry) {
  ByteReader reader(bytes);
  const uint8_t step = reader.u8();
  if (step == 0 || step > static_cast<uint8_t>(kJobStepLast)) return false;
  entry.step = static_cast<JobStep>(step);
  entry.at = time_at(since, reader.svarint());
  entry.attempt = static_cast<uint32_t>(reader.varint());
  switch (entry.step) {
    case JobStep::kPlaced:
      entry.node = NodeId{reader.varint()};
      entry.members = static_cast<uint32_t>(reader.varint());
      break;
    case JobStep::kEnded:
      entry.cause = static_cast<EndCause>(reader.u8());
      entry.exit_code = static_cast<int32_t>(reader.svarint());
      entry.signal = static_cast<int32_t>(reader.svarint());
      entry.detail = readable(reader.bytes());
      entry.usage = unpack_usage(reader.take(reader.remaining()));
      if (entry.cause > kEndCauseLast) return false;
      break;
    case JobStep::kRequeued:
    case JobStep::kPreempted:
    case JobStep::kHeldByFailure:
      entry.until = time_at(since, reader.svarint());
      break;
    case JobStep::kFinished:
      entry.state = static_cast<JobState>(reader.u8());
      entry.reason = static_cast<JobReason>(reader.u8());
      if (entry.state < JobState::kPending || entry.state > JobState::kPreempted ||
          entry.reason > kJobReasonLast)
        return false;
      break;
    case JobStep::kStarted:
    case JobStep::kAbandoned:
      break;
    case JobStep::kCancelAsked:
    case JobStep::kHoldAsked:
    case JobStep::kReleaseAsked:
    case JobStep::kRequeueAsked:
    case JobStep::kChangeAsked:
      entry.by = readable(reader.bytes());
      break;
  }
  return reader.ok() && reader.at_end();
}

}  // namespace

std::string_view to_string(JobStep step) {
  switch (step) {
    case JobStep::kPlaced:
      return "placed";
    case JobStep::kStarted:
      return "started";
    case JobStep::kEnded:
      return "ended";
    case JobStep::kAbandoned:
      return "lost";
    case JobStep::kRequeued:
      return "requeued";
    case JobStep::kPreempted:
      return "preempted";
    case JobStep::kHeldByFailure:
      return "held";
    case JobStep::kFinished:
      return "finished";
    case JobStep::kCancelAsked:
      return "cancel_requested";
    case JobStep::kHoldAsked:
      return "hold_requested";
    case JobStep::kReleaseAsked:
      return "release_requested";
    case JobStep::kRequeueAsked:
      return "requeue_requested";
    case JobStep::kChangeAsked:
      return "change_requested";
  }
  UNREACHABLE();
}

// How many were dropped, how many there are, and each with its length.
Blob with_entry(const Blob& packed, Time since, const JobHistoryEntry& entry) {
  ByteReader before(packed.view());
  uint64_t dropped = packed.empty() ? 0 : before.varint();
  uint64_t count = packed.empty() ? 0 : before.varint();
  for (; before.ok() && count >= limits::kHistoryEntriesMax; --count, ++dropped) before.bytes();
  if (!before.ok()) dropped = count = 0;  // Not written by us.
  std::string out;
  out.reserve(before.remaining() + kEntryNumbersBytes + entry.detail.size() + entry.by.size());
  ByteWriter writer(out);
  writer.varint(dropped);
  writer.varint(count + 1);
  out += before.take(before.remaining());
  // Most entries are short: one byte is kept for the length, and a long one is written again behind its own.
  const std::size_t at = out.size();
  writer.u8(0);
  pack_entry(writer, entry, since);
  const std::size_t size = out.size() - at - 1;
  if (size < 0x80) {
    out[at] = static_cast<char>(size);
  } else {
    const std::string words = out.substr(at + 1);
    out.resize(at);
    writer.bytes(words);
  }
  return Blob(out);
}

JobHistory unpack_history(const Blob& packed, Time since) {
  JobHistory history;
  if (packed.empty()) return history;
  ByteReader reader(packed.view());
  history.dropped = reader.varint();
  for (uint64_t left = reader.varint(); left > 0 && reader.ok(); --left) {
    JobHistoryEntry entry;
    if (unpack_entry(reader.bytes(), since, entry)) history.entries.push_back(std::move(entry));
  }
  return history;
}

}  // namespace gpusched
