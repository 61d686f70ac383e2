#include "api/backend/rerun.h"

#include <algorithm>
#include <iterator>

#include "api/backend/services/service_labels.h"
#include "api/contract/names.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

ApiError conflict(std::string message) { return {ErrorKind::kConflict, std::move(message)}; }

/// Ascending indexes as ranges.
std::vector<IndexRange> ranges_of(const std::vector<int64_t>& indexes) {
  std::vector<IndexRange> ranges;
  for (const int64_t index : indexes) {
    if (!ranges.empty() && ranges.back().last + 1 == index) {
      ranges.back().last = index;
    } else {
      ranges.push_back({.first = index, .last = index});
    }
  }
  return ranges;
}

/// All indexes, ascending: one look at each range, of which an array may have many.
std::vector<int64_t> expanded(const std::vector<IndexRange>& ranges) {
  std::vector<int64_t> indexes;
  indexes.reserve(static_cast<std::size_t>(count_of(ranges)));
  for (const IndexRange& range : ranges) {
    for (int64_t index = range.first; index <= range.last; index += range.step) indexes.push_back(index);
  }
  return indexes;
}

/// The elements that failed, as far as their records are kept.
Answer<std::vector<IndexRange>> failed_elements(const State& state, const JobArray& array) {
  const std::string name = job_name(array.id);
  const std::vector<int64_t> all = expanded(array.ranges);
  std::vector<int64_t> indexes;
  for (int64_t position = 0; position < array.count && std::ssize(indexes) < array.failed; ++position) {
    const Job* const element = state.jobs.find(array.element(position));
    if (element != nullptr && element->state == JobState::kFailed)

      indexes.push_back(all[static_cast<std::size_t>(position)]);
  }
  if (array.failed == 0) return conflict("no element of " + name + " failed");
  if (std::ssize(indexes) < array.failed) {
    return conflict("only " + std::to_string(indexes.size()) + " of the " + std::to_string(array.failed) +
                    " failed elements of " + name + " are still kept; name those to run again, as " + name +
                    "[3,7-9]");
  }
  return ranges_of(indexes);
}

/// The indexes of the new array; none: it is no array.
Answer<std::vector<IndexRange>> elements_of(const State& state, const Job& job, const RerunRequest& request) {
  const std::string name = job_name(job.id);
  const JobArray* const array = job.array.valid() ? state.find_array(job.array) : nullptr;
  if (!job.is_array() && (request.failed || !request.indexes.empty()))
    return ApiError{ErrorKind::kUnprocessable, name + " is no array, so it has no elements to choose from",
                    request.failed ? "failed" : "indexes"};
  if (array == nullptr) return std::vector<IndexRange>{};
  if (job.is_element()) {
    const int64_t index = array->index_at(array->position_of(job.id));
    return std::vector<IndexRange>{{.first = index, .last = index}};
  }
  if (request.failed) return failed_elements(state, *array);
  if (request.indexes.empty()) return array->ranges;
  std::vector<int64_t> missing;
  std::ranges::set_difference(expanded(request.indexes), expanded(array->ranges),
                              std::back_inserter(missing));
  if (!missing.empty()) {
    return ApiError{ErrorKind::kUnprocessable, name + " has no element " + std::to_string(missing.front()),
                    "indexes"};
  }
  return request.indexes;
}

/// As the checks of submissions see it: they look at little besides the specification.
JobRequest checked_part_of(const Job& job, const v1::JobSpec& spec, const std::vector<Part>& parts) {
  JobRequest request{.spec = std::string(job.spec.view()), .name = spec.name(), .priority = job.priority};
  request.external = !spec.executor().empty();
  request.preempt_webhook = spec.preempt_webhook();
  request.preempt_grace = milliseconds(job.preempt_grace_ms);
  for (const Part& part : parts) request.nodes += part.members_most();
  return request;
}

/// The name of the reservation that it asked for; empty: it asked for none. Nothing: that is over.
std::optional<std::string> reservation_of(const State& state, const std::vector<Part>& parts) {
  if (parts.front().booking == 0) return "";
  const Booking* const booking = state.find_booking(BookingId{parts.front().booking});
  return booking == nullptr ? std::nullopt : std::optional(booking->name);
}

}  // namespace

Answer<Rerun> rerun_of(const State& state, const Job& job, const RerunRequest& request) {
  const std::string name = job_name(job.id);
  if (mentions_service(job.spec.view()) || has_our_label(job.spec.view())) {
    return conflict(
        name +
        " belongs to a service, a lease or a task of an agent; ask for another one where that was "
        "asked for");
  }
  if (!is_final(job.state) && !request.failed && request.indexes.empty())
    return conflict(name + " has not ended; requeue stops it and lets it begin again");
  Answer<std::vector<IndexRange>> elements = elements_of(state, job, request);
  if (!elements) return elements.error();
  Rerun rerun{.parts = state.class_of(job).parts};
  std::optional<std::string> reservation = reservation_of(state, rerun.parts);
  if (!reservation) return conflict("the reservation that " + name + " asked for is over");
  v1::JobSpec spec;
  if (!spec.ParseFromString(std::string(job.spec.view())))
    return conflict("the specification of " + name + " cannot be read");
  rerun.submission = {.tenant = tenant_name(job.tenant),
                      .jobs = {checked_part_of(job, spec, rerun.parts)},
                      .request_key = request.request_key,
                      .by = request.by};
  rerun.reservation = std::move(*reservation);
  rerun.elements = std::move(*elements);
  const JobArray* const array = job.array.valid() ? state.find_array(job.array) : nullptr;
  rerun.at_once = request.at_once;
  if (array != nullptr && rerun.at_once == 0) rerun.at_once = array->at_once;
  return rerun;
}

void take_record(const Job& job, Rerun rerun, gpusched::JobRequest& request) {
  for (Part& part : rerun.parts) part.booking = 0;
  request.parts = std::move(rerun.parts);
  request.max_runtime = job.max_runtime;
  request.retry = job.retry;
  request.require_feasible = job.require_feasible;
  request.preemption_mode = job.preemption_mode;
  request.preemption_exempt = job.preemption_exempt;
  request.interactive = job.interactive;
  request.booking = std::move(rerun.reservation);
  if (!rerun.elements.empty())
    request.flow = {JobFlow{.array = std::move(rerun.elements), .array_at_once = rerun.at_once}};
}

}  // namespace gpusched::api
