#include "codec/snapshot.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include "base/check.h"
#include "codec/binary.h"
#include "codec/snapshot_sections.h"

namespace gpusched {
namespace {

using snapshot::FinishedJobs;
using snapshot::Header;
using snapshot::Section;
using snapshot::StoredTimer;

constexpr std::size_t kPiece = 64 * 1024;

class SnapshotEncoder {
 public:
  using Sink = std::function<Result<Unit>(std::string_view)>;
  explicit SnapshotEncoder(const Sink& sink) : sink_(sink) {}

  template <HasFields T>
  void add(Section section, const T& value, uint32_t prefix = 0) {
    ByteWriter writer(out_);
    writer.u8(static_cast<uint8_t>(section));
    writer.varint(prefix);
    const std::size_t at = out_.size();
    writer.fixed32(0);
    Encoder encoder(out_);
    encoder.encode(value);
    const auto size = static_cast<uint32_t>(out_.size() - at - 4);
    std::memcpy(out_.data() + at, &size, sizeof size);
    if (out_.size() >= kPiece) flush();
  }
  Result<Unit> finish() {
    flush();
    return result_;
  }

 private:
  void flush() {
    if (result_.ok() && !out_.empty()) result_ = sink_(out_);
    out_.clear();
  }
  const Sink& sink_;
  std::string out_;
  Result<Unit> result_ = Unit{};
};

void add_jobs(SnapshotEncoder& out, const State& state) {
  boost::unordered_flat_map<uint32_t, uint32_t> numbers;
  state.jobs.for_each([&](const Job& job) {
    const auto [it, fresh] = numbers.try_emplace(job.job_class, static_cast<uint32_t>(numbers.size()));
    const uint32_t number = it->second;
    if (fresh) out.add(Section::kJobClass, state.classes[job.job_class]);
    out.add(Section::kJob, job, number);
    return true;
  });
}

}  // namespace

Result<Unit> encode_snapshot(const State& state, const std::function<Result<Unit>(std::string_view)>& sink) {
  SnapshotEncoder out(sink);
  out.add(Section::kHeader, Header{.config = state.config,
                                   .sequence = state.last.sequence,
                                   .at = state.last.at,
                                   .digest = state.digest.value(),
                                   .job_count = state.jobs.size(),
                                   .skipped = state.skipped,
                                   .skipped_last = state.skipped_last});
  // Ids ascend, and a parent is older than its children.
  for (const auto& [id, tenant] : state.tenants) out.add(Section::kTenant, tenant);
  for (const DeviceClass& device_class : state.device_classes) out.add(Section::kDeviceClass, device_class);
  for (const Node& node : state.nodes) out.add(Section::kNode, node);
  state.owners.for_each(
      [&](const JobOwner* owner) { out.add(Section::kOwner, owner == nullptr ? JobOwner{} : *owner); });
  add_jobs(out, state);
  for (const auto& [key, attempt] : state.attempts) out.add(Section::kAttempt, attempt);
  for (const auto& [number, request] : state.requests) out.add(Section::kRequest, request);
  out.add(Section::kFinished, FinishedJobs{.ids = {state.finished.begin(), state.finished.end()}});
  for (const Timer& timer : state.timers) {
    out.add(Section::kTimer,
            StoredTimer{.due = timer.due, .kind = timer.kind, .id = timer.id, .extra = timer.extra});
  }
  for (const auto& [id, array] : state.arrays) out.add(Section::kArray, array);
  for (const auto& [job, promise] : state.promises) out.add(Section::kPromise, promise);
  for (const auto& [key, submitter] : state.submitters) out.add(Section::kSubmitter, submitter);
  for (const auto& [id, booking] : state.bookings) out.add(Section::kBooking, booking);
  for (const auto& [id, key] : state.keys) out.add(Section::kKey, key);
  for (const auto& [id, ticket] : state.node_identities.tickets()) out.add(Section::kNodeTicket, ticket);
  for (const auto& [name, identity] : state.node_identities.identities())
    out.add(Section::kNodeIdentity, identity);
  for (const auto& [id, person] : state.people) out.add(Section::kPerson, person);
  out.add(Section::kEnd, FinishedJobs{});
  return out.finish();
}

Digest snapshot_digest(const State& state) {
  Digest digest;
  const Result<Unit> written = encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
    digest.mix(piece);
    return Unit{};
  });
  CHECK(written.ok());
  return digest;
}

}  // namespace gpusched
