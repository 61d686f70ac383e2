#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "model/job.h"
#include "model/types.h"

/// Values that the history keeps: what the engine's events say, with names instead of numbers, so that they
/// mean the same when the state has forgotten the job. They are made on the observer's thread and written on
/// the history's.
namespace gpusched::history {

/// One member of an attempt where it was placed.
struct MemberPlace {
  uint32_t member = 0;
  std::string node;          ///< Name; "node-<id>" for one that was removed meanwhile.
  std::string model;         ///< Model of its GPUs; empty: it has none.
  uint64_t device_mask = 0;  ///< Its GPUs on that node, by index.
  int32_t gpu_milli = 0;     ///< Thousandths of its one GPU; 0: whole ones.
  bool is_slice = false;     ///< The share is a MIG slice.
  int32_t cpu_milli = 0;
  int64_t memory_mb = 0;

  friend bool operator==(const MemberPlace&, const MemberPlace&) = default;
};

struct Placed {
  JobId job;
  uint32_t attempt = 0;
  Time at;
  TenantId tenant;
  std::string tenant_name;
  std::string user;
  std::vector<MemberPlace> members;
};
struct Started {
  AttemptKey key;
  Time at;
};
struct Ended {
  AttemptKey key;
  Time at;
  EndCause cause = EndCause::kNone;
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t cpu_ms = 0;             ///< CPU time that it used; 0: not known.
  int64_t peak_memory_bytes = 0;  ///< 0: not known.
};
/// The job goes on without the attempt, which is nobody's use from here on.
struct Abandoned {
  JobId job;
  uint32_t attempt = 0;
  Time at;
};
struct Preempted {
  JobId job;
  uint32_t attempt = 0;
  Time at;
};
/// A job in its final state; as a part of Present, in any other.
struct JobRow {
  JobId id;
  TenantId tenant;
  std::string tenant_name;
  std::string user;   ///< See user_of.
  std::string owner;  ///< Kind and name of the caller who submitted it, "person ana"; empty: not known.
  std::string name;
  std::string state;   ///< "completed", "failed" or "cancelled"; else as jobs have it.
  std::string reason;  ///< One word, as jobs have it.
  std::string cause;   ///< How the last attempt ended.
  int32_t exit_code = 0;
  int32_t signal = 0;
  int32_t priority = 0;
  int64_t gpu_count = 0;  ///< Whole GPUs of all members.
  int64_t gpu_milli = 0;  ///< Thousandths of GPUs, of shares and slices.
  std::string gpu_model;  ///< As requested; empty: any.
  int64_t gpu_memory_mb = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  Time submitted_at, scheduled_at, started_at, ended_at;
  uint32_t attempts = 0;
  uint32_t preemptions = 0;
  std::string node;    ///< Node of the last attempt's first member.
  int64_t gpu_ms = 0;  ///< Milliseconds times GPUs of its ended attempts, as the engine counts them.
  JobId array;         ///< Array of an element; its own id for an array.

  friend bool operator==(const JobRow&, const JobRow&) = default;
};
struct Finished {
  JobRow job;
};
/// A tenant was made, or its limits were changed.
struct QuotaChanged {
  Time at;
  TenantId tenant;
  std::string tenant_name;
  std::string by;
  std::string change;  ///< "max_gpus=8 weight=1.5": the given settings.
};
/// Nothing is known of what was between two positions but what the state still has: the history goes on from
/// that state. `jobs` are its finished jobs; `running` has the attempts that are not over in it.
struct Adopted {
  uint64_t after = 0;  ///< Records from here up to this batch's position are lost.
  std::vector<JobRow> jobs;
  std::vector<Placed> running;
  std::vector<AttemptKey> begun;  ///< Members of `running` that have started.
};

using Event = std::variant<Placed, Started, Ended, Abandoned, Preempted, Finished, QuotaChanged, Adopted>;

/// A tenant as it is: limits and present use, its children's included.
struct TenantRow {
  TenantId id;
  std::string name;
  std::string organization;
  std::optional<int64_t> max_gpus, max_gpu_memory_mb, max_cpu_milli, max_memory_mb, max_jobs;
  int32_t priority_tier = 0;
  int64_t weight_milli = 0;
  int64_t gpus = 0;       ///< Whole ones.
  int64_t gpu_milli = 0;  ///< Beside these: thousandths of GPUs, of shares.
  int64_t gpu_memory_mb = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;
  int64_t jobs = 0;  ///< Those that are placed.
  int64_t jobs_total = 0, jobs_successful = 0, jobs_failed = 0;
  bool active = true;  ///< False: it was deleted.
  Time created_at, updated_at;

  friend bool operator==(const TenantRow&, const TenantRow&) = default;
};

/// How a record left the jobs and tenants that it changed: for databases that show the present, too.
struct Present {
  std::vector<JobRow> jobs;  ///< Those that are not over.
  std::vector<TenantRow> tenants;
  bool is_all = false;  ///< There are no others.
};

/// The events of one journal record.
struct Batch {
  uint64_t position = 0;
  Time at;
  std::vector<Event> events;
  Present present = {};  ///< Nothing where nobody wants it.
};

/// Name and submitter of a job out of its packed specification, which this room cannot read.
struct JobWords {
  std::string name;
};
using DescribeJob = std::function<JobWords(const Job&)>;

}  // namespace gpusched::history
