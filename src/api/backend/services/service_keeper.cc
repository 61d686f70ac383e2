#include "api/backend/services/service_keeper.h"

#include <algorithm>
#include <chrono>

#include "api/contract/errors.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "base/limits.h"
#include "engine/messages/rejection.h"

namespace gpusched::api {
namespace {

constexpr Duration kPassing = seconds(1);   // The scheduler has no room at the moment.
constexpr Duration kRefused = seconds(10);  // A limit is reached, or the reason is a lasting one.

std::string start_id(JobId record, const ReplicaStart& start) {
  return "gpusched.service/" + std::to_string(record.value) + "/" + std::to_string(start.mark.index) + "/" +
         std::to_string(start.before.value);
}

/// A submission of what the record says, for whoever owns that.
SubmitJobs replica_of(const State& state, const Job& record, const ServiceKey& key,
                      const ReplicaStart& start) {
  const std::string& service = key.second;
  SubmitJobs command{.tenant = key.first, .request_key = {}, .by = "service " + service};
  if (const JobOwner* const owner = state.owners.at(record.owner)) {
    command.owner_kind = owner->kind;
    command.owner = owner->name;
  }
  const SpecPeek peek = peek_spec(record.spec.view());
  const bool has_name =
      command.owner_kind == CallerKind::kPerson || command.owner_kind == CallerKind::kService;
  const std::string_view user = peek.submitter.empty() ? peek.user : peek.submitter;
  command.user = has_name ? command.owner : std::string(user.substr(0, limits::kNameBytesMax));
  const std::string name = service + "-" + std::to_string(start.mark.index);
  gpusched::JobRequest request{.priority = record.priority,
                               .parts = state.class_of(record).parts,
                               .max_runtime = record.max_runtime,
                               .retry = record.retry,
                               .spec = Blob(replica_spec(record.spec.view(), name, start.mark)),
                               .preemption_mode = record.preemption_mode,
                               .preemption_exempt = record.preemption_exempt,
                               .task_type = std::string(peek.task_type)};
  if (start.after > Duration{}) request.flow.push_back({.begin_after = start.after});
  command.jobs.push_back(std::move(request));
  return command;
}

}  // namespace

ServiceKeeper::ServiceKeeper(Host& host, std::shared_ptr<ServiceBook> book)
    : host_(host), book_(std::move(book)), timer_([this] { run(); }) {}

ServiceKeeper::~ServiceKeeper() { stop(); }

void ServiceKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  wake_.notify_all();
  timer_.join();
}

void ServiceKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Time at = next_look_;
    if (at == kNever) {
      wake_.wait(lock);
      continue;
    }
    const Duration left = at - now();
    if (left > Duration{}) {
      wake_.wait_for(lock, std::chrono::nanoseconds(std::min(left, minutes(1)).ns));
      continue;
    }
    next_look_ = kNever;
    lock.unlock();
    host_.observer().read(0, [weak = weak_from_this()](const Observer::View& view) {
      if (const auto self = weak.lock()) self->step(view);
    });
    lock.lock();
  }
}

void ServiceKeeper::look_at(Time time) {
  {
    const std::lock_guard lock(mutex_);
    if (time >= next_look_) return;
    next_look_ = time;
  }
  wake_.notify_all();
}

void ServiceKeeper::step(const Observer::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
  const Time time = std::max(now(), view.state.last.at);
  for (const ServiceBook::Entry& entry : book_->all()) take(view, entry, time);
}

void ServiceKeeper::take(const Observer::View& view, const ServiceBook::Entry& entry, Time now) {
  const ServiceSteps steps = plan_service(entry.row, now);
  for (const JobId job : steps.stops) {
    const std::string id = "stop/" + std::to_string(job.value);
    if (may_begin(id, now))
      propose(entry.key, id, CancelJob{.job = job, .by = "service " + entry.key.second});
  }
  for (const ReplicaStart& start : steps.starts) {
    if (may_begin(start_id(entry.row.record, start), now)) submit(view, entry, start);
  }
  if (steps.look_again != kNever) look_at(steps.look_again);
}

bool ServiceKeeper::may_begin(const std::string& id, Time now) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = pending_.try_emplace(id, kNever);
  if (is_new) return true;
  if (at->second > now) {
    // Only the earliest time is kept, and may have been another's.
    if (at->second < next_look_) {
      next_look_ = at->second;
      wake_.notify_all();
    }
    return false;
  }
  at->second = kNever;
  return true;
}

void ServiceKeeper::submit(const Observer::View& view, const ServiceBook::Entry& entry,
                           const ReplicaStart& start) {
  const std::string id = start_id(entry.row.record, start);
  const Job* const record = view.state.jobs.find(entry.row.record);
  if (record == nullptr) return retry(id, kPassing);
  SubmitJobs command = replica_of(view.state, *record, entry.key, start);
  command.request_key = id;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = again_.find(id); at != again_.end())
      command.request_key += "/" + std::to_string(at->second);
  }
  propose(entry.key, id, std::move(command));
}

void ServiceKeeper::propose(const ServiceKey& service, const std::string& id, Command command) {
  host_.propose(std::move(command), [self = shared_from_this(), service, id](const Result<Decided>& decided) {
    self->decided(service, id, decided);
  });
}

void ServiceKeeper::decided(const ServiceKey& service, const std::string& id,
                            const Result<Decided>& decided) {
  const bool is_stop = id.starts_with("stop/");
  if (!decided.ok()) {
    if (!is_stop)
      book_->note_problem(service, "a replica cannot be submitted now: " + decided.error().message);
    return retry(id, kPassing);
  }
  const std::optional<Rejection>& refused = decided->applied.rejection;
  if (refused && is_stop) return retry(id, kRefused);  // It has ended, which is seen in a moment.
  const bool is_known = refused && refused->code == RejectionCode::kRequestKeyConflict;
  if (refused && !is_known) {
    book_->note_problem(service, "a replica cannot be submitted: " + to_api_error(*refused, 1).message);
    return retry(id, kRefused);
  }
  if (!is_stop && !refused) book_->note_problem(service, "");
  const bool repeated = is_known || (!is_stop && decided->applied.repeated);
  const JobId job{decided->applied.first_id};
  host_.observer().read(decided->sequence, [self = shared_from_this(), service, id, repeated, job,
                                            sequence = decided->sequence](const Observer::View& view) {
    {
      const std::lock_guard lock(self->mutex_);
      self->pending_.erase(id);
      // The key stands for a job that ended and is forgotten: the next one needs another.
      if (repeated && !self->book_->knows_replica(service, job)) self->again_[id] = sequence;
    }
    self->step(view);
  });
}

void ServiceKeeper::retry(const std::string& id, Duration after) {
  const Time at = now() + after;
  {
    const std::lock_guard lock(mutex_);
    pending_[id] = at;
  }
  look_at(at);
}

}  // namespace gpusched::api
