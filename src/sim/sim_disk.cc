#include "sim/sim_disk.h"

#include <algorithm>
#include <array>
#include <utility>

#include "journal/journal_dir.h"
#include "journal/record_format.h"
#include "journal/segment_scan.h"
#include "journal/testing/proof_left.h"

namespace gpusched::sim {
namespace {

constexpr uint64_t kSmallFile = 4'096;

using Call = MemoryDisk::Call;
using Outcome = MemoryDisk::Outcome;
using Verdict = MemoryDisk::Verdict;

/// Bytes that decay could take without a trace: what was written last, before anything proves that it was
/// durable.
std::pair<uint64_t, uint64_t> unproven(const std::string& bytes) {
  const ParsedSegmentHeader parsed = parse_segment_header(bytes);
  if (parsed.state != HeaderState::kValid) return {0, 0};
  const Result<SegmentScan> scan = scan_segment(bytes, parsed.header, {});
  CHECK(scan.ok());
  return {scan->proven_end, scan->end};
}

bool needs_room(Call call) {
  switch (call) {
    case Call::kOpen:
    case Call::kWrite:
    case Call::kAllocate:
    case Call::kRename:
    case Call::kMakeDir:
      return true;
    case Call::kRead:
    case Call::kSync:
    case Call::kRemove:
    case Call::kSyncDir:
    case Call::kMap:
    case Call::kList:
      return false;
  }
  UNREACHABLE();
}

}  // namespace

SimDisk::SimDisk(Context& context, uint64_t seed, uint64_t volume_bytes)
    : context_(context), prng_(seed), memory_(prng_.next()), volume_bytes_(volume_bytes) {
  memory_.set_capacity(volume_bytes);
  memory_.set_rule([this](Call call, const std::string&) { return judge(call); });
}

void SimDisk::begin_process() {
  CHECK(process_is_dead());
  process_ = std::make_unique<ProcessDisk>(memory_);
  broken_calls_ = 0;
}

void SimDisk::arm_death() { process_->die_at(prng_.below(40), prng_.chance(500)); }

void SimDisk::kill() {
  if (process_ != nullptr) process_->die();
}

void SimDisk::bury(bool power) {
  process_.reset();
  if (prng_.chance(300)) memory_.write_back(prng_);
  if (power) return memory_.lose_power(prng_);
  if (prng_.chance(300)) memory_.drop_cache();
}

Verdict SimDisk::some_failure(Call call) {
  return {.outcome = prng_.chance(500) ? Outcome::kFails : Outcome::kFailsLate,
          .code = needs_room(call) && prng_.chance(300) ? ErrorCode::kStorageFull : ErrorCode::kIo};
}

void SimDisk::break_a_call() {
  const auto call = static_cast<Call>(prng_.below(MemoryDisk::kCallCount));
  if (prng_.chance(700)) {
    const uint64_t after = prng_.below(12);
    context_.trace.note("call-fails", {static_cast<uint64_t>(call), after});
    return plans_.push_back({.call = call, .verdict = some_failure(call), .after = after});
  }
  const Duration span = milliseconds(prng_.between(1, 20'000));
  context_.trace.note("calls-fail", {static_cast<uint64_t>(call), static_cast<uint64_t>(span.ms())});
  failing_ = call;
  context_.schedule.in(span, [this, number = ++failing_number_] {
    if (number == failing_number_) failing_.reset();
  });
}

void SimDisk::fail_next_sync() {
  plans_.push_back({.call = Call::kSync, .verdict = {.outcome = Outcome::kFails, .code = ErrorCode::kIo}});
}

void SimDisk::lie() {
  static constexpr std::array<std::pair<Call, Outcome>, 6> kLies = {{{Call::kSync, Outcome::kLies},
                                                                     {Call::kSyncDir, Outcome::kLies},
                                                                     {Call::kWrite, Outcome::kLies},
                                                                     {Call::kWrite, Outcome::kStrays},
                                                                     {Call::kRead, Outcome::kLies},
                                                                     {Call::kMap, Outcome::kLies}}};
  const std::size_t drawn = prng_.below(kLies.size());
  const uint64_t after = prng_.below(12);
  context_.trace.note("disk-lies", {drawn, after});
  plans_.push_back({.call = kLies[drawn].first, .verdict = {.outcome = kLies[drawn].second}, .after = after});
}

Verdict SimDisk::judge(Call call) {
  Verdict verdict;
  const auto due = std::find_if(plans_.begin(), plans_.end(), [&](Plan& plan) { return plan.call == call; });
  if (failing_ == call) {
    verdict = some_failure(call);
  } else if (due != plans_.end() && due->after > 0) {
    due->after -= 1;
  } else if (due != plans_.end()) {
    verdict = due->verdict;
    plans_.erase(due);
  }
  if (verdict.outcome == Outcome::kDone) return verdict;
  broken_calls_ += 1;
  const bool lies = verdict.outcome == Outcome::kLies || verdict.outcome == Outcome::kStrays;
  (lies ? counts_.lying_calls : counts_.failed_calls) += 1;
  // The newest record may be written again at a start: it is in danger, too.
  if (lies && call != Call::kRead && call != Call::kMap)
    lied_from_ = std::min(lied_from_.value_or(UINT64_MAX), durable_);
  return verdict;
}

void SimDisk::decay() {
  const std::vector<std::string> paths = memory_.files();
  if (paths.empty()) return;
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Mostly the large ones: a decay of others is always seen, and ends the run of the rest.
    const std::string& path = paths[prng_.below(paths.size())];
    if (memory_.content(path).size() < kSmallFile && !prng_.chance(100)) continue;
    // Nothing else knows the id of a journal that has no record yet.
    if (durable_ == 0 && path.ends_with(kVersionName)) continue;
    if (decay_at(path, memory_.content(path))) return;
  }
}

bool SimDisk::decay_at(const std::string& path, const std::string& bytes) {
  if (bytes.empty()) return false;
  uint64_t offset = prng_.below(bytes.size());
  // Where something is written, mostly: files are full of zero bytes.
  if (prng_.chance(700)) {
    const std::size_t written = bytes.find_first_not_of('\0', offset);
    if (written != std::string::npos) offset = written;
  }
  std::string changed(1, static_cast<char>(bytes[offset] ^ static_cast<char>(1U << prng_.below(8))));
  if (prng_.chance(300)) {
    constexpr uint64_t kSector = 512;
    offset -= offset % kSector;
    changed.assign(std::min<uint64_t>(kSector, bytes.size() - offset), '\0');
    if (prng_.chance(500)) {
      for (char& byte : changed) byte = static_cast<char>(prng_.next());
    }
  }
  // A proof that is not on the device may never come there.
  for (const std::string& seen : {bytes, memory_.on_device(path)}) {
    const auto [begin, end] = unproven(seen);
    if (offset < end && begin < offset + changed.size()) return false;
  }
  context_.trace.note("disk-decays", {offset, changed.size()}, path);
  memory_.decay(path, offset, changed);
  decayed_.insert(path);
  counts_.decays += 1;
  return true;
}

void SimDisk::fill(uint64_t room) {
  full_ = true;
  memory_.set_capacity(std::min(volume_bytes_, memory_.used() + room));
}

uint64_t SimDisk::free_bytes() {
  const std::optional<DiskRoom> room = memory_.room("/");
  return room ? room->free_bytes : UINT64_MAX;
}

void SimDisk::empty() {
  full_ = false;
  memory_.set_capacity(volume_bytes_);
}

bool SimDisk::only_decayed_in(const std::string& dir) {
  if (decayed_.empty() || counts_.lying_calls > 0) return false;
  const auto in_dir = [&](const std::string& path) { return path.starts_with(dir + "/"); };
  const std::vector<std::string> files = memory_.files();
  return std::all_of(decayed_.begin(), decayed_.end(), in_dir) &&
         std::any_of(files.begin(), files.end(), [&](const std::string& path) {
           return in_dir(path) && path.ends_with(".snap") && !decayed_.contains(path);
         });
}

LossByLies SimDisk::loss_by_lies(const std::string& journal_dir, uint64_t store_id) const {
  if (!lied_from_) return {};
  return {.lied_from = lied_from_, .proof_left = proof_left(memory_, journal_dir, store_id)};
}

void SimDisk::repair() {
  decayed_.clear();
  context_.trace.note("disk-repaired", {});
  memory_.repair();
}

void SimDisk::heal() {
  plans_.clear();
  failing_.reset();
  ++failing_number_;
  empty();
  decayed_.clear();
  memory_.repair();
  if (process_ != nullptr) process_->die_at(UINT64_MAX, /*after=*/false);
  // Calls that the device only claimed to have done are done now.
  if (lied_from_) memory_.settle();
}

}  // namespace gpusched::sim
