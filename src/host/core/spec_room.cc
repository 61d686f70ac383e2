#include "host/core/spec_room.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace gpusched {
namespace {

/// Finished jobs that one look gives up at most.
constexpr int64_t kGivenUpAtOnce = 4'096;

/// A command that adds to the specifications.
struct Added {
  const Tenant* tenant = nullptr;
  int64_t bytes = 0;
};

Added added_by(const State& state, const SubmitJobs& command) {
  // A repeated submission is only answered again.
  if (!command.request_key.empty() && remembered_request(state, command) != nullptr) return {};
  Added added{.tenant = state.find_tenant(command.tenant)};
  for (const JobRequest& job : command.jobs) added.bytes += static_cast<int64_t>(job.spec.view().size());
  return added;
}

Added added_by(const State& state, const UpdateJob& command) {
  const Job* const job = state.jobs.find(command.job);
  if (job == nullptr || (command.given & kJobSpec) == 0) return {};
  const auto bytes = static_cast<int64_t>(command.spec.view().size());
  return {.tenant = state.find_tenant(job->tenant), .bytes = bytes - state.own_spec_bytes(*job)};
}

constexpr std::string_view kAdvice =
    "wait until jobs end, cancel some, or put large scripts and data into files that the jobs read";

std::string megabytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MB"; }

std::string limit_words(int64_t bytes_max) {
  return "the " + megabytes(bytes_max) + " that scheduler.specs_mb_max allows";
}

}  // namespace

void SpecRoom::begin_group() {
  group_bytes_ = 0;
  group_bytes_of_.clear();
}

std::optional<Error> SpecRoom::take(const State& state, const Command& command) {
  if (bytes_max_ == 0) return std::nullopt;
  Added added;
  if (const auto* submit = std::get_if<SubmitJobs>(&command)) added = added_by(state, *submit);
  if (const auto* update = std::get_if<UpdateJob>(&command)) added = added_by(state, *update);
  // The engine refuses what names no tenant.
  if (added.tenant == nullptr || added.bytes <= 0) return std::nullopt;
  if (std::optional<Error> refused = refusal(state, *added.tenant, added.bytes)) return refused;
  group_bytes_ += added.bytes;
  group_bytes_of_[state.spec_holder(*added.tenant)] += added.bytes;
  return std::nullopt;
}

std::optional<Error> SpecRoom::refusal(const State& state, const Tenant& tenant, int64_t bytes) const {
  const TenantId holder = state.spec_holder(tenant);
  const auto in_state = state.unfinished_spec_bytes_of.find(holder);
  const auto in_group = group_bytes_of_.find(holder);
  const int64_t held = (in_state == state.unfinished_spec_bytes_of.end() ? 0 : in_state->second) +
                       (in_group == group_bytes_of_.end() ? 0 : in_group->second);
  const int64_t unfinished = state.unfinished_spec_bytes + group_bytes_;
  const int64_t left = bytes_max_ - unfinished - bytes;
  if (held + bytes > left) {
    std::string who = "callers without a credential have";
    // The holder is the tenant itself or one above it, whose name is not the caller's business.
    if (holder == tenant.id) who = "tenant " + tenant.name + " has";
    if (holder != tenant.id && state.find_tenant(holder) != nullptr)
      who = "tenant " + tenant.name + " and its related tenants have";
    return Error{.code = ErrorCode::kSpecsFull,
                 .message = "the specifications of jobs that have not ended take " + megabytes(unfinished) +
                            " of " + limit_words(bytes_max_) + ", " + megabytes(held) + " of it those that " +
                            who + ", and nobody may use more than the space left free for others; " +
                            std::string(kAdvice),
                 .field = "jobs"};
  }
  if (state.spec_bytes + group_bytes_ + bytes > bytes_max_) {
    return Error{.code = ErrorCode::kSpecsFull,
                 .message = "the specifications of all jobs, including finished ones, take " +
                            megabytes(state.spec_bytes + group_bytes_) + " of " + limit_words(bytes_max_) +
                            "; the oldest finished jobs are being removed to free space: try again soon",
                 .field = "jobs"};
  }
  return std::nullopt;
}

// Before it is needed, so that it mostly is there when it is.
void SpecRoom::look(const State& state) {
  if (bytes_max_ == 0) return;
  const int64_t enough = bytes_max_ / 4 * 3;
  if (state.spec_bytes <= enough) return finished_kept_.reset();
  const auto finished = static_cast<int64_t>(state.finished.size());
  if (finished_kept_ ? finished > *finished_kept_ : state.spec_bytes <= bytes_max_ / 8 * 7) return;
  int64_t gained = 0;
  int64_t given_up = 0;
  while (given_up < std::min(finished, kGivenUpAtOnce) && gained < state.spec_bytes - enough) {
    const Job& job = state.job_at(state.finished[static_cast<std::size_t>(given_up)]);
    gained += static_cast<int64_t>(job.spec.view().size());
    ++given_up;
  }
  finished_kept_ = finished - given_up;
}

}  // namespace gpusched
