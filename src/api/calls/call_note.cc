#include "api/calls/call_note.h"

#include <algorithm>

#include "api/contract/spec_peek.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

using audit::Outcome;

Outcome outcome_of(const ApiError* error) {
  if (error == nullptr) return Outcome::kDone;
  if (error->hidden) return Outcome::kHidden;
  switch (error->kind) {
    case ErrorKind::kPermissionDenied:
      return Outcome::kForbidden;
    case ErrorKind::kUnauthenticated:
      return Outcome::kUnauthenticated;
    case ErrorKind::kRateLimited:
      return Outcome::kRateLimited;
    default:
      return Outcome::kRefused;
  }
}

}  // namespace

CallNote& CallNote::operator=(CallNote&& other) noexcept {
  if (this == &other) return *this;
  abandon();
  line = std::move(other.line);
  log_ = std::exchange(other.log_, nullptr);
  return *this;
}

void CallNote::name(access::Action action, std::string resource) {
  line.action = action;
  line.resource = std::move(resource);
}

void CallNote::name_jobs(const Submitted& jobs) {
  if (!is_open()) return;
  line.job = line.last_job = jobs.first_job;
  line.count = jobs.job_count;
  uint64_t ids = jobs.job_count;
  if (!jobs.numbers.empty()) {
    ids = 1;
    for (std::size_t i = 0; i + 1 < jobs.numbers.size(); ++i) ids += jobs.numbers[i];
  }
  if (ids > 0) line.last_job.value += ids - 1;
}

void CallNote::name_user(const SubmitRequest& jobs) {
  if (!is_open() || jobs.jobs.empty()) return;
  const auto user_of = [](const JobRequest& job) { return peek_spec(job.spec).user; };
  const std::string_view first = user_of(jobs.jobs.front());
  const bool is_one = std::all_of(jobs.jobs.begin() + 1, jobs.jobs.end(),
                                  [&](const JobRequest& job) { return user_of(job) == first; });
  line.unix_user = is_one ? first : "(several)";
}

bool CallNote::is_wanted(const ApiError* error) const {
  return is_open() && audit::is_told(line.action, outcome_of(error));
}

void CallNote::tell(const ApiError* error) {
  if (is_wanted(error)) {
    line.at = wall_now();
    line.outcome = outcome_of(error);
    line.code = error == nullptr ? std::string_view() : row_of(error->kind).code;
    log_->add(std::move(line));
  }
  drop();
}

void CallNote::abandon() {
  if (!is_open()) return;
  if (audit::is_told(line.action, Outcome::kAbandoned)) {
    line.at = wall_now();
    line.outcome = Outcome::kAbandoned;
    log_->add(std::move(line));
  }
  drop();
}

void BatchNote::tell(const std::function<std::string(std::size_t)>& name_of) {
  std::vector<char> told(refused_.size());
  for (std::size_t first = 0; first < refused_.size(); ++first) {
    if (told[first]) continue;
    CallNote one = note_.part();
    one.line.resource = name_of(first);
    one.line.count = 0;
    std::size_t last = first;
    for (std::size_t i = first; i < refused_.size(); ++i) {
      if (refused_[i] != refused_[first]) continue;
      told[i] = 1;
      one.line.count += 1;
      last = i;
    }
    if (last != first) one.line.last = name_of(last);
    if (!refused_[first]) {
      one.tell(nullptr);
    } else {
      ApiError error{.kind = refused_[first]->kind, .message = {}};
      error.hidden = refused_[first]->hidden;
      one.tell(&error);
    }
  }
  note_.drop();
}

}  // namespace gpusched::api
