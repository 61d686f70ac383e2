#pragma once

#include <memory>
#include <string>

#include "api/contract/jobs.h"
#include "host/host.h"

/// Arrays, dependencies and times as clients see them. On the observer's thread.
namespace gpusched::api {

/// A job, or an element of an array that is none yet as the job that it will be.
class FoundJob {
 public:
  explicit FoundJob(const Job* job) : job_(job) {}
  explicit FoundJob(std::shared_ptr<const Job> made) : job_(made.get()), made_(std::move(made)) {}
  const Job& operator*() const { return *job_; }
  const Job* operator->() const { return job_; }

 private:
  const Job* job_;
  std::shared_ptr<const Job> made_;
};

/// Nothing when there is none of this id, or of this array and index.
std::optional<FoundJob> look_up(const State& state, JobId id);

/// Puts the job's array, dependencies, times and retries into its view.
void add_flow(const State& state, const Job& job, JobView& shown);

/// Why a pending job is not in line for such a reason, as a sentence; empty when it is for none.
std::string flow_message(const State& state, const Job& job);
/// Actions that would put it in line.
std::vector<std::string> flow_lifted_by(const State& state, const Job& job);
/// " (its deadline ...)" when a waiting job can no longer meet its deadline; else empty.
std::string deadline_warning(const State& state, const Job& job);

}  // namespace gpusched::api
