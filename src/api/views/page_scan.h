#pragma once

#include <cstdint>

#include "api/contract/jobs.h"
#include "api/views/viewer.h"
#include "host/readers/observer.h"

namespace gpusched::api {

/// One page of jobs in the making, newest first or in the order of the line, a bounded number of jobs at a
/// time: between two steps the state may move on, so that a long search holds nobody up. The page shows a job
/// as the step saw it that found it.
class PageScan {
 public:
  /// Jobs of one page that the filter looks inside: some 50 ms in all.
  static constexpr int64_t kLookedIntoMax = 200'000;

  /// `tenant` none: jobs of all that the caller may see.
  PageScan(CallerPtr caller, JobFilter filter, TenantId tenant, int64_t looked_max = kLookedIntoMax)
      : caller_(std::move(caller)),
        filter_(std::move(filter)),
        tenant_(tenant),
        looked_max_(looked_max),
        viewer_(Viewer::of(caller_, tenant)),
        sees_all_(Viewer::of(caller_).sees_all()) {}

  /// Looks at some more jobs. False once the page is complete; then `take` has it.
  bool step(const Observer::View& view);
  JobPage take() &&;

 private:
  void begin(const Observer::View& view);
  bool over_active(const Observer::View& view);
  void over_line(const Observer::View& view);
  bool look_at(const Observer::View& view, const Job& job);
  bool full() const;
  bool may_see(const State& state, TenantId tenant);

  const CallerPtr caller_;
  const JobFilter filter_;
  const TenantId tenant_;
  const int64_t looked_max_;
  const Viewer viewer_;
  const bool sees_all_;
  bool begun_ = false;
  bool complete_ = false;
  int64_t total_ = 0;
  int64_t skip_ = 0;
  int64_t found_ = 0, looked_ = 0;
  int64_t work_left_ = 0;  ///< Work of this step, in jobs that are looked at.
  TenantId asked_;         ///< Tenant that this step looked up last.
  bool seen_ = false;      ///< The caller may see that tenant's jobs.
  JobId last_;             ///< The last one that was looked at.
  JobId told_;             ///< The last one that the caller may know of: it names a page's token.
  JobPage page_;
};

}  // namespace gpusched::api
