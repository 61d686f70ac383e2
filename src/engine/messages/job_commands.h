#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "engine/messages/job_request.h"
#include "model/identity/caller_kind.h"
#include "model/job.h"
#include "model/types.h"

/// Commands of clients about jobs; see commands.h.
namespace gpusched {

/// One job or a batch: all are accepted or none. Takes one sequence number a job, which is its id; an array
/// takes as many more as it has elements.
struct SubmitJobs {
  TenantId tenant;
  std::string request_key;
  std::vector<JobRequest> jobs;
  std::string user;  ///< User whose bucket pays (see AdmissionPolicy); empty: the tenant's nameless one.
  std::string by;    ///< Caller who asked, for people; a repetition with the same key may come from another.
  /// Owner of the jobs, as its credential says. Without a kind: nobody. Its request keys are its own.
  CallerKind owner_kind{};
  std::string owner = {};

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "request_key", self.request_key);
    visit(3, "jobs", self.jobs);
    visit(50, "user", self.user);
    visit(51, "by", self.by);
    visit(52, "owner_kind", self.owner_kind);
    visit(53, "owner", self.owner);
  }
};

/// A waiting job ends at once; a placed one is ended by its node.
struct CancelJob {
  JobId job;
  TenantId tenant;  ///< Given: only if the job is this tenant's.
  std::string by;   ///< Caller who asked, for people; empty: nobody in particular, and nothing is noted.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "by", self.by);
  }
};

/// The given fields of UpdateJob.
enum JobField : uint32_t {
  kJobPriority = 1u << 0,
  kJobMaxRuntime = 1u << 1,
  kJobSpec = 1u << 2,
  kJobBegin = 1u << 3,
  kJobDeadline = 1u << 4,
  kJobParts = 1u << 5,
};

/// Changes what `given` names. A priority, a begin and parts only of a job that waits; a specification only
/// in what a running job does not see, such as its name: that is the door's to keep.
struct UpdateJob {
  JobId job;
  TenantId tenant;     ///< Given: only if the job is this tenant's.
  uint32_t given = 0;  ///< Bits of JobField.
  int32_t priority = 0;
  Duration max_runtime;  ///< From its start; zero: no limit.
  Blob spec;
  Time begin_at;            ///< Begin time, absolute.
  Duration begin_after;     ///< Begin time from now on; without either: now.
  Time deadline;            ///< Deadline, absolute.
  Duration deadline_after;  ///< Deadline from now on; without either: none.
  std::vector<Part> parts;  ///< Checked as those of a new job.
  std::string by;           ///< As in CancelJob.
  bool may_raise = false;   ///< An operator: a longer limit of a placed job is not looked at.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "given", self.given);
    visit(4, "priority", self.priority);
    visit(5, "max_runtime", self.max_runtime);
    visit(6, "spec", self.spec);
    visit(7, "begin_at", self.begin_at);
    visit(8, "begin_after", self.begin_after);
    visit(9, "deadline", self.deadline);
    visit(10, "deadline_after", self.deadline_after);
    visit(11, "parts", self.parts);
    visit(12, "by", self.by);
    visit(13, "may_raise", self.may_raise);
  }
};

/// A pending job waits until it is released, or does so no longer.
struct HoldJob {
  JobId job;
  TenantId tenant;  ///< Given: only if the job is this tenant's.
  bool held = false;
  std::string by;  ///< As in CancelJob.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "held", self.held);
    visit(4, "by", self.by);
  }
};

/// Ends the attempt of a placed job and puts the job back in line, without spending a retry.
struct RequeueJob {
  JobId job;
  TenantId tenant;  ///< Given: only if the job is this tenant's.
  std::string by;   ///< As in CancelJob.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "by", self.by);
  }
};

}  // namespace gpusched
