#include "api/backend/services/service_keeper.h"

#include <algorithm>
#include <chrono>

#include "api/contract/errors.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "base/job_labels.h"
#include "base/limits.h"
#include "engine/messages/rejection.h"

namespace gpusched::api {
namespace {

constexpr Duration kPassing = seconds(1);   // The scheduler has no room at the moment.
constexpr Duration kRefused = seconds(10);  // A limit is reached, or the reason is a lasting one.

constexpr std::string_view kDoneId = "done", kScaleId = "scale";

std::string start_id(JobId record, const ReplicaStart& start) {
  return "gpusched.service/" + std::to_string(record.value) + "/" + std::to_string(start.mark.index) + "/" +
         std::to_string(start.before.value);
}

std::string stop_id(JobId job) { return "stop/" + std::to_string(job.value); }

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

ServiceKeeper::ServiceKeeper(Host& host, std::shared_ptr<ServiceIndex> index)
    : host_(host), index_(std::move(index)), timer_([this] { run(); }) {}

ServiceKeeper::~ServiceKeeper() { stop(); }

void ServiceKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  wake_.notify_all();
  timer_.join();
}

std::size_t ServiceKeeper::remembered() const {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [key, known] : requests_) count += known.pending.size() + known.again.size();
  return count;
}

void ServiceKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    Time first = kNever;
    for (const auto& [key, one] : requests_) first = std::min(first, one.next_look);
    if (first == kNever) {
      wake_.wait(lock);
      continue;
    }
    const Time time = now();
    if (first > time) {
      wake_.wait_for(lock, std::chrono::nanoseconds(std::min(first - time, minutes(1)).ns));
      continue;
    }
    std::set<ServiceKey> due;
    for (auto& [key, one] : requests_) {
      if (one.next_look > time) continue;
      one.next_look = kNever;
      due.insert(key);
    }
    lock.unlock();
    host_.observer().read(0, [weak = weak_from_this(), due = std::move(due)](const Observer::View& view) {
      if (const auto self = weak.lock()) self->step(view, due);
    });
    lock.lock();
  }
}

void ServiceKeeper::look_at(const ServiceKey& service, Time time) {
  {
    const std::lock_guard lock(mutex_);
    Time& next = requests_[service].next_look;
    if (time >= next) return;
    next = time;
  }
  wake_.notify_all();
}

void ServiceKeeper::step_all(const Observer::View& view) {
  for (const ServiceKey& key : index_->keys()) step(view, {key});
}

void ServiceKeeper::step(const Observer::View& view, const std::set<ServiceKey>& changed) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
  const Time time = std::max(now(), view.state.last.at);
  for (const ServiceKey& key : changed) take(view, key, time);
}

void ServiceKeeper::take(const Observer::View& view, const ServiceKey& key, Time now) {
  const std::optional<ServiceIndex::Plan> plan = index_->plan(key, now);
  if (!plan) return keep_only(key, {});
  std::set<std::string> wanted;
  for (const JobId job : plan->steps.stops) wanted.insert(stop_id(job));
  for (const ReplicaStart& start : plan->steps.starts) wanted.insert(start_id(plan->record, start));
  if (!plan->steps.done.empty()) wanted.insert(std::string(kDoneId));
  if (plan->replicas) wanted.insert(std::string(kScaleId));
  keep_only(key, wanted);
  if (!plan->steps.done.empty() && may_begin(key, std::string(kDoneId), now))
    mark_done(view, key, plan->record, plan->steps.done);
  if (plan->count) count_queue(*plan->count);
  if (plan->replicas && may_begin(key, std::string(kScaleId), now))
    set_replicas(view, key, plan->record, *plan->replicas);
  for (const JobId job : plan->steps.stops) {
    const std::string id = stop_id(job);
    if (may_begin(key, id, now)) propose(key, id, CancelJob{.job = job, .by = "service " + key.second});
  }
  for (const ReplicaStart& start : plan->steps.starts) {
    if (may_begin(key, start_id(plan->record, start), now)) submit(view, key, plan->record, start);
  }
  if (plan->steps.look_again != kNever) look_at(key, plan->steps.look_again);
}

void ServiceKeeper::keep_only(const ServiceKey& key, const std::set<std::string>& wanted) {
  const std::lock_guard lock(mutex_);
  const auto at = requests_.find(key);
  if (at == requests_.end()) return;
  Requests& known = at->second;
  std::erase_if(known.pending,
                [&](const auto& one) { return one.second != kNever && !wanted.contains(one.first); });
  std::erase_if(known.again, [&](const auto& one) { return !wanted.contains(one.first); });
  if (known.pending.empty() && known.again.empty()) requests_.erase(at);
}

bool ServiceKeeper::may_begin(const ServiceKey& service, const std::string& id, Time now) {
  const std::lock_guard lock(mutex_);
  Requests& known = requests_[service];
  const auto [at, is_new] = known.pending.try_emplace(id, kNever);
  if (is_new) return true;
  if (at->second > now) {
    // Only the earliest time is kept, and may have been another's.
    if (at->second < known.next_look) {
      known.next_look = at->second;
      wake_.notify_all();
    }
    return false;
  }
  at->second = kNever;
  return true;
}

void ServiceKeeper::mark_done(const Observer::View& view, const ServiceKey& key, JobId of,
                              const DoneIndexes& done) {
  relabel(view, key, of, std::string(kDoneId),
          [&done](std::string_view spec) { return with_done(spec, done); });
}

void ServiceKeeper::set_replicas(const Observer::View& view, const ServiceKey& key, JobId of,
                                 int64_t replicas) {
  relabel(view, key, of, std::string(kScaleId), [replicas](std::string_view spec) {
    return with_labels(spec, {{std::string(kServiceReplicasLabel), std::to_string(replicas)}});
  });
}

void ServiceKeeper::relabel(const Observer::View& view, const ServiceKey& key, JobId of,
                            const std::string& id,
                            const std::function<std::string(std::string_view spec)>& change) {
  const Job* const record = view.state.jobs.find(of);
  if (record == nullptr || is_final(record->state) || !index_->begin(key)) return retry(key, id, kPassing);
  host_.propose(UpdateJob{.job = of,
                          .given = kJobSpec,
                          .spec = Blob(change(record->spec.view())),
                          .by = "service " + key.second},
                [self = shared_from_this(), key, id](const Result<Decided>& decided) {
                  const bool is_made = decided.ok() && !decided->applied.rejection;
                  if (!is_made) self->index_->end(key);
                  if (!is_made) return self->retry(key, id, decided.ok() ? kRefused : kPassing);
                  self->host_.observer().read(decided->sequence, [self, key, id](const Observer::View& then) {
                    self->index_->end(key);
                    {
                      const std::lock_guard lock(self->mutex_);
                      self->requests_[key].pending.erase(id);
                    }
                    self->step(then, {key});
                  });
                });
}

void ServiceKeeper::count_queue(uint64_t count) {
  host_.observer().scan(0, [weak = weak_from_this(), count](const Observer::View& view) {
    const auto self = weak.lock();
    if (self == nullptr) return false;
    std::set<ServiceKey> touched;
    const bool more = self->index_->count_some(view.state, count, touched);
    self->step(view, touched);
    return more;
  });
}

void ServiceKeeper::submit(const Observer::View& view, const ServiceKey& key, JobId of,
                           const ReplicaStart& start) {
  const std::string id = start_id(of, start);
  const Job* const record = view.state.jobs.find(of);
  if (record == nullptr) return retry(key, id, kPassing);
  SubmitJobs command = replica_of(view.state, *record, key, start);
  command.request_key = id;
  {
    const std::lock_guard lock(mutex_);
    const std::map<std::string, uint64_t>& again = requests_[key].again;
    if (const auto at = again.find(id); at != again.end())
      command.request_key += "/" + std::to_string(at->second);
  }
  propose(key, id, std::move(command));
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
      index_->note_problem(service, "a replica cannot be submitted now: " + decided.error().message);
    return retry(service, id, kPassing);
  }
  const std::optional<Rejection>& refused = decided->applied.rejection;
  if (refused && is_stop) return retry(service, id, kRefused);  // It has ended, which is seen in a moment.
  const bool is_known = refused && refused->code == RejectionCode::kRequestKeyConflict;
  if (refused && !is_known) {
    index_->note_problem(service, "a replica cannot be submitted: " + to_api_error(*refused, 1).message);
    return retry(service, id, kRefused);
  }
  if (!is_stop && !refused) index_->note_problem(service, "");
  const bool repeated = is_known || (!is_stop && decided->applied.repeated);
  const JobId job{decided->applied.first_id};
  host_.observer().read(decided->sequence, [self = shared_from_this(), service, id, repeated, job,
                                            sequence = decided->sequence](const Observer::View& view) {
    {
      const std::lock_guard lock(self->mutex_);
      Requests& known = self->requests_[service];
      known.pending.erase(id);
      // The key stands for a job that ended and is forgotten: the next one needs another.
      if (repeated && !self->index_->knows_replica(service, job)) known.again[id] = sequence;
    }
    self->step(view, {service});
  });
}

void ServiceKeeper::retry(const ServiceKey& service, const std::string& id, Duration after) {
  const Time at = now() + after;
  {
    const std::lock_guard lock(mutex_);
    requests_[service].pending[id] = at;
  }
  look_at(service, at);
}

}  // namespace gpusched::api
