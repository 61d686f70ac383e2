#pragma once

#include <cstdint>

#include "api/views/viewer.h"

namespace gpusched::api {

/// Classes looked at for one place: a page of 1,000 jobs asks for as many places on the readers' thread.
inline constexpr std::size_t kPlaceClassesMax = 256;

/// Where a job that waits in line stands, 1 is next: among all jobs for who may see all, else among those
/// that the viewer's caller may see, so that nobody learns how many others wait. Where the state has very
/// many different requests, such a caller is told the place among the tenant's jobs that want the same.
inline int64_t place_in_line(const State& state, const Job& job, const Viewer& viewer) {
  const OrderKey order = job.order();
  if (viewer.counts_all()) return static_cast<int64_t>(state.line.rank(order)) + 1;
  if (state.classes.size() > kPlaceClassesMax)
    return static_cast<int64_t>(state.class_of(job).waiting.rank(order)) + 1;
  std::size_t before = 0;
  TenantId asked = job.tenant;  // Classes of one tenant often stand together.
  bool counted = true;
  for (const JobClass& each : state.classes) {
    if (each.waiting.empty() || order < each.waiting.front()) continue;
    if (each.tenant != asked) {
      asked = each.tenant;
      counted = viewer.counts(state, asked);
    }
    if (counted) before += each.waiting.rank(order);
  }
  return static_cast<int64_t>(before) + 1;
}

}  // namespace gpusched::api
