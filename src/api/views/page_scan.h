#pragma once

#include <cstdint>

#include "api/contract/jobs.h"
#include "host/readers/observer.h"

namespace gpusched::api {

/// One page of jobs in the making, newest first, a bounded number of jobs at a time: between two steps the
/// state may move on, so that a long search holds nobody up. What the page shows of a job is of the step that
/// found it.
class PageScan {
 public:
  /// `tenant` none: jobs of all.
  PageScan(JobFilter filter, TenantId tenant) : filter_(std::move(filter)), tenant_(tenant) {}

  /// Looks at some more jobs. False once the page is complete; then `take` has it.
  bool step(const Observer::View& view);
  JobPage take() &&;

 private:
  void begin(const Observer::View& view);
  bool over_active(const Observer::View& view);
  bool look_at(const Observer::View& view, const Job& job);
  bool full() const;

  const JobFilter filter_;
  const TenantId tenant_;
  bool begun_ = false;
  bool complete_ = false;
  int64_t total_ = 0;
  int64_t skip_ = 0;
  int64_t seen_ = 0, looked_ = 0;
  int64_t work_left_ = 0;  ///< Of this step, in jobs that are looked at.
  JobId last_;
  JobPage page_;
};

}  // namespace gpusched::api
