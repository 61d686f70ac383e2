#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "history/record/events.h"

namespace gpusched::history {

/// A member of an attempt that holds its place. Times in milliseconds since the Unix epoch; 0: not yet.
struct OpenMember {
  AttemptKey key;
  TenantId tenant;
  std::string user;
  MemberPlace place;
  int64_t placed_ms = 0;
  int64_t started_ms = 0;

  friend bool operator==(const OpenMember&, const OpenMember&) = default;
};

/// The same when it is over.
struct ClosedMember {
  OpenMember member;
  int64_t ended_ms = 0;
  std::string cause;  ///< One word; "abandoned": the job went on without it.
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t cpu_used_ms = 0;
  int64_t peak_memory_bytes = 0;
  bool succeeded = false;  ///< It ended by itself with exit code 0.
};

/// GPU time of it, as UsageSums has it.
int64_t gpu_us_of(const ClosedMember& closed);

/// One hour of one device's use by one user of one tenant. `device` is the GPU's index on the node; -1: CPU
/// and memory without a GPU, or use whose GPU is not known.
struct UsageKey {
  int64_t hour = 0;  ///< Hours since the Unix epoch.
  TenantId tenant;
  std::string user;
  std::string node;
  int32_t device = -1;
  std::string model;

  friend auto operator<=>(const UsageKey&, const UsageKey&) = default;
};

/// Allocated time. Microseconds of one GPU or core, so that thousandths of one times milliseconds are exact.
struct UsageSums {
  int64_t gpu_us = 0;       ///< Whole GPUs, shares and slices.
  int64_t share_us = 0;     ///< Part of it by shares.
  int64_t slice_us = 0;     ///< Part of it by MIG slices.
  int64_t lost_us = 0;      ///< Part of `gpu_us` of attempts that did not end with exit code 0.
  int64_t cpu_us = 0;       ///< Allocated cores.
  int64_t memory_mb_s = 0;  ///< Allocated memory, megabytes times seconds.
  int64_t attempts = 0;     ///< Members of attempts that ended in the hour.

  void add(const UsageSums& other);
  bool operator==(const UsageSums&) const = default;
};
using Usages = std::map<UsageKey, UsageSums>;

/// The same by days since the Unix epoch, without the places.
struct UsageDay {
  int64_t day = 0;
  TenantId tenant;
  std::string user;
  std::string model;

  friend auto operator<=>(const UsageDay&, const UsageDay&) = default;
};
std::map<UsageDay, UsageSums> by_day(const Usages& usages);

/// Adds what a member has held in [from_ms, until_ms) to the hours of `usages`.
void add_usage(const OpenMember& member, int64_t from_ms, int64_t until_ms, bool lost, Usages& usages);

/// Who holds what: follows placements and ends, and says what each member has used when it ends. Pure.
class Ledger {
 public:
  /// Changes by events, until they are taken.
  struct Changes {
    std::set<AttemptKey> touched;  ///< Members that came, started or went.
    std::vector<ClosedMember> closed;
    Usages usages;
  };

  void restore(OpenMember member) { open_.insert_or_assign(member.key, std::move(member)); }
  void clear() { open_.clear(); }
  void apply(const Event& event);
  Changes take() { return std::exchange(changes_, {}); }
  const std::map<AttemptKey, OpenMember>& open() const { return open_; }
  /// Members whose end nobody knows, because it was among what was lost. They count as no use.
  uint64_t members_lost() const { return members_lost_; }

 private:
  void on(const Placed& placed);
  void on(const Started& started);
  void on(const Ended& ended);
  void on(const Abandoned& abandoned);
  void on(const Adopted& adopted);
  void open(const Placed& placed, const MemberPlace& place);
  void close(std::map<AttemptKey, OpenMember>::iterator it, ClosedMember closed);

  std::map<AttemptKey, OpenMember> open_;
  Changes changes_;
  uint64_t members_lost_ = 0;
};

}  // namespace gpusched::history
