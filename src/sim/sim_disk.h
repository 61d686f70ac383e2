#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/disk/process_disk.h"
#include "sim/context.h"

namespace gpusched::sim {

/// How often it did not do what it was asked.
struct DiskCounts {
  uint64_t failed_calls = 0;
  uint64_t lying_calls = 0;
  uint64_t decays = 0;
};

/// Losses without a trace that a disk's lies may explain.
struct LossByLies {
  std::optional<uint64_t> lied_from;  ///< Records from here on: the disk's word on them was a lie.
  uint64_t proof_left =
      UINT64_MAX;  ///< Records behind this one: nothing that can be read says that they were.

  bool explains_an_end_at(uint64_t position) const {
    return lied_from && (*lied_from <= position + 1 || proof_left <= position);
  }
};

/// The disk of the scheduler's machine, with all that goes wrong with it. Its draws come from a generator of
/// its own. It keeps account of what it did, so that a start that is refused, or records that are gone, can
/// be told from a broken promise.
class SimDisk {
 public:
  /// `volume_bytes`: how large the disk is.
  SimDisk(Context& context, uint64_t seed, uint64_t volume_bytes);

  Prng& prng() { return prng_; }
  Disk& process() { return *process_; }
  /// For another process that is started beside it.
  std::unique_ptr<ProcessDisk> another_process() { return std::make_unique<ProcessDisk>(memory_); }
  /// Whether it has an end.
  bool is_bounded() const { return full_ || volume_bytes_ != UINT64_MAX; }
  /// Free space; UINT64_MAX where it has no end.
  uint64_t free_bytes();

  /// A process begins; the one before is over.
  void begin_process();
  /// The process dies in the middle of some call, not long from now.
  void arm_death();
  bool process_is_dead() const { return process_ == nullptr || process_->is_dead(); }
  /// The process has no effect any more. Then its objects go, then `bury`.
  void kill();
  /// Leaves the files as a kill does, or with `power` the loss of it.
  void bury(bool power);

  /// A call fails once, or calls of a kind do for a while.
  void break_a_call();
  void fail_next_sync();
  /// A sync or a write that is still to come seems to be done and is not, a write lands elsewhere, or a
  /// reading is wrong.
  void lie();
  /// Bytes of some file change. Not those of a group that no later one proves: nobody can tell that from
  /// an unfinished write.
  void decay();
  /// There is room for so many bytes more.
  void fill(uint64_t room);
  void empty();
  /// Nothing breaks any more, and everything is as it should be.
  void heal();

  /// Everything up to this record was said to be durable.
  void note_durable(uint64_t position) { durable_ = position; }
  /// A call failed or was wrong since the process began, or there is no room.
  bool broke_in_this_life() const { return broken_calls_ > 0 || full_; }
  /// Whether such an error can come of a disk that has an end.
  bool may_be_full(const Error& error) const { return is_bounded() && error.code == ErrorCode::kStorageFull; }
  bool is_damaged() const { return memory_.is_damaged(); }
  /// Nothing is wrong with it but that files in this folder decayed, and not all of them.
  bool only_decayed_in(const std::string& dir);
  const DiskCounts& counts() const { return counts_; }
  /// An operator puts back what should be there.
  void repair();
  /// Records from here on may be gone after a power loss although the device said that they are durable.
  std::optional<uint64_t> lied_from() const { return lied_from_; }
  /// Losses by its lies that a start that begins now may find.
  LossByLies loss_by_lies(const std::string& journal_dir, uint64_t store_id) const;

 private:
  struct Plan {
    MemoryDisk::Call call;
    MemoryDisk::Verdict verdict;
    uint64_t after = 0;
  };

  MemoryDisk::Verdict judge(MemoryDisk::Call call);
  MemoryDisk::Verdict some_failure(MemoryDisk::Call call);
  bool decay_at(const std::string& path, const std::string& bytes);

  Context& context_;
  Prng prng_;
  MemoryDisk memory_;
  std::unique_ptr<ProcessDisk> process_;
  std::vector<Plan> plans_;                  ///< Failures that happen once.
  std::optional<MemoryDisk::Call> failing_;  ///< Every call of this kind fails for now.
  uint64_t failing_number_ = 0;
  uint64_t broken_calls_ = 0;  ///< In this life.
  DiskCounts counts_;
  const uint64_t volume_bytes_;
  bool full_ = false;
  uint64_t durable_ = 0;
  std::optional<uint64_t> lied_from_;
  std::set<std::string> decayed_;  ///< Files, since the last repair.
};

}  // namespace gpusched::sim
