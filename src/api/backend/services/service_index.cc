#include "api/backend/services/service_index.h"

#include <algorithm>

#include "api/contract/spec_peek.h"
#include "base/job_labels.h"

namespace gpusched::api {
namespace {

std::set<JobId> jobs_in(const Changes& changes) {
  std::set<JobId> jobs;
  for (const Event& event : changes.events) {
    if (const auto* const updated = std::get_if<JobUpdated>(&event)) {
      jobs.insert(updated->change->job);
      continue;
    }
    std::visit(
        [&jobs](const auto& what) {
          if constexpr (requires { JobId{what.job}; }) {
            if (what.job.valid()) jobs.insert(what.job);
          }
        },
        event);
    if (const auto* const element = std::get_if<ElementAdded>(&event)) jobs.insert(element->array);
  }
  return jobs;
}

}  // namespace

ApiError being_changed(const std::string& service) {
  return {.kind = ErrorKind::kConflict,
          .message = "another change of service " + service + " is under way; try again",
          .retry_after = seconds(1)};
}

void ServiceIndex::fill(const State& state, std::span<const Job* const> jobs) {
  const std::lock_guard lock(mutex_);
  for (const Job* const job : jobs) add(state, *job);
  std::vector<ServiceKey> keys;
  for (const auto& [key, service] : services_) keys.push_back(key);
  for (const ServiceKey& key : keys) tidy(key);
}

std::set<ServiceKey> ServiceIndex::observe(const State& state, const Changes& changes) {
  const std::lock_guard lock(mutex_);
  std::set<ServiceKey> touched;
  for (const Event& event : changes.events) {
    const auto* const one = std::get_if<JobSubmitted>(&event);
    if (one == nullptr || !mentions_service(one->request.spec.view())) continue;
    const Job* const job = state.jobs.find(one->job);
    if (job != nullptr && add(state, *job)) touched.insert(by_job_.at(job->id));
  }
  if (services_.empty()) return touched;
  for (const JobId id : jobs_in(changes)) {
    if (!queues_.empty()) queues_.note(state, id, touched);
    const auto at = by_job_.find(id);
    if (at == by_job_.end()) continue;
    touched.insert(at->second);
    if (const Job* const job = state.jobs.find(id)) update(state, *job);
  }
  for (const Event& event : changes.events) {
    const auto* const end = std::get_if<JobFinished>(&event);
    if (end != nullptr && by_job_.contains(end->job) && state.jobs.find(end->job) == nullptr) note_end(*end);
  }
  for (const ServiceKey& key : touched) tidy(key);
  return touched;
}

void ServiceIndex::note_end(const JobFinished& end) {
  Service& service = services_.at(by_job_.at(end.job));
  if (service.records.erase(end.job) > 0) service.count_records();
  const auto replica = service.row.replicas.find(end.job);
  if (replica == service.row.replicas.end()) return;
  replica->second.state = end.state;
  replica->second.ended_at = end.at;
}

void ServiceIndex::Service::count_records() {
  row.deleted = records.empty();
  row.older_records.clear();
  for (const JobId record : records) {
    if (record != row.record) row.older_records.push_back(record);
  }
}

bool ServiceIndex::add(const State& state, const Job& job) {
  if (job.is_array() || job.is_element() || !mentions_service(job.spec.view())) return false;
  const std::optional<std::string_view> name = spec_label(job.spec.view(), kServiceLabel);
  if (!name || name->empty()) return false;
  const bool is_replica = replica_mark(job.spec.view()).has_value();
  if (!is_replica && (!job.held || is_final(job.state) || !read_settings(job.spec.view(), {}).ok()))
    return false;
  const ServiceKey key{job.tenant, std::string(*name)};
  services_.try_emplace(key);
  by_job_.emplace(job.id, key);
  update(state, job);
  return true;
}

void ServiceIndex::update(const State& state, const Job& job) {
  Service& service = services_.at(by_job_.at(job.id));
  if (const std::optional<ReplicaMark> mark = replica_mark(job.spec.view())) {
    service.row.replicas[job.id] = {.job = job.id,
                                    .mark = *mark,
                                    .state = job.state,
                                    .ending = job.cancel_requested,
                                    .submitted_at = job.submitted_at,
                                    .started_at = job.started_at,
                                    .ended_at = job.ended_at,
                                    .node = job.node,
                                    .attempt = job.attempt_count,
                                    .probed = spec_label(job.spec.view(), kServiceProbeLabel).has_value()};
    return;
  }
  const Answer<ServiceSettings> settings = read_settings(job.spec.view(), {});
  if (is_final(job.state)) {
    service.records.erase(job.id);
  } else if (settings) {
    service.records.insert(job.id);
  }
  if (settings && job.id >= service.row.record) {
    service.row.record = job.id;
    service.row.record_at = job.submitted_at;
    service.row.settings = *settings;
    service.row.done = read_done(job.spec.view());
    follow_queue(state, by_job_.at(job.id), job);
  }
  service.count_records();
}

void ServiceIndex::follow_queue(const State& state, const ServiceKey& key, const Job& record) {
  Service& service = services_.at(key);
  std::optional<QueueKey> queue;
  if (const std::optional<ServiceScaling>& scaling = service.row.settings.scaling) {
    auto [label, value] = parse_label(scaling->queue);
    queue = {.tenant = key.first, .label = std::move(label), .value = std::move(value), .owner = {}};
    // Callers without a credential do not learn the labels of others' jobs, nor how many have one.
    const JobOwner* const owner = state.owners.at(record.owner);
    if (owner == nullptr || owner->kind == CallerKind::kAnonymous) queue->owner = record.owner;
  }
  if (queue == service.queue) return;
  if (service.queue) queues_.leave(*service.queue, key);
  if (queue) queues_.follow(*queue, key);
  service.queue = std::move(queue);
  service.lull.reset();
}

void ServiceIndex::tidy(const ServiceKey& key) {
  const auto at = services_.find(key);
  if (at == services_.end()) return;
  Service& service = at->second;
  const ServiceRow& row = service.row;
  std::map<int64_t, JobId> newest;  // Replicas of the newest generation, by index.
  for (const auto& [job, replica] : row.replicas)
    if (replica.mark.generation == row.settings.generation) newest[replica.mark.index] = job;
  std::vector<JobId> silent;
  for (const auto& [job, replica] : row.replicas) {
    const bool speaks = !row.deleted && replica.mark.generation == row.settings.generation &&
                        newest.at(replica.mark.index) == job;
    if (!replica.is_live() && !speaks) silent.push_back(job);
  }
  for (const JobId job : silent) {
    service.row.replicas.erase(job);
    by_job_.erase(job);
  }
  if (!service.records.empty() || !row.replicas.empty()) return;
  std::erase_if(by_job_, [&key](const auto& one) { return one.second == key; });
  if (service.queue) queues_.leave(*service.queue, key);
  services_.erase(at);
}

ServiceIndex::Entry ServiceIndex::entry_of(const ServiceKey& key, const Service& service) const {
  Entry entry{.key = key, .row = service.row, .problem = service.problem, .lull = service.lull};
  if (service.queue) entry.waiting = queues_.waiting(*service.queue);
  if (!endpoint_of_) return entry;
  for (auto& [job, replica] : entry.row.replicas) {
    if (replica.state != JobState::kRunning) continue;
    replica.endpoint = endpoint_of_(replica.node, {.job = job, .attempt = replica.attempt, .member = 0});
  }
  return entry;
}

std::vector<ServiceIndex::Entry> ServiceIndex::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (const auto& [key, service] : services_) out.push_back(entry_of(key, service));
  return out;
}

std::optional<ServiceIndex::Entry> ServiceIndex::find(const ServiceKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = services_.find(key);
  return at == services_.end() ? std::nullopt : std::optional(entry_of(key, at->second));
}

std::vector<ServiceKey> ServiceIndex::keys() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServiceKey> out;
  for (const auto& [key, service] : services_) out.push_back(key);
  return out;
}

std::vector<ServiceKey> ServiceIndex::named(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::vector<ServiceKey> out;
  for (const auto& [key, service] : services_) {
    if (key.second == name) out.push_back(key);
  }
  return out;
}

std::optional<ServiceKey> ServiceIndex::with_record(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_job_.find(job);
  if (at == by_job_.end() || services_.at(at->second).row.replicas.contains(job)) return std::nullopt;
  return at->second;
}

std::optional<ServiceIndex::Plan> ServiceIndex::plan(const ServiceKey& key, Time now) {
  const std::lock_guard lock(mutex_);
  const auto at = services_.find(key);
  if (at == services_.end()) return std::nullopt;
  Service& service = at->second;
  const Entry entry = entry_of(key, service);
  Plan plan{.record = entry.row.record, .steps = plan_service(entry.row, now)};
  const ServiceSettings& settings = entry.row.settings;
  if (!service.queue || entry.row.deleted) return plan;
  if (!entry.waiting) {
    plan.count = queues_.begin_count(*service.queue);
    return plan;
  }
  const ScaleStep step = plan_scale(*settings.scaling, settings.replicas, *entry.waiting, service.lull, now);
  service.lull = step.lull;
  plan.replicas = step.replicas;
  plan.steps.look_again = std::min(plan.steps.look_again, step.look_again);
  return plan;
}

bool ServiceIndex::count_some(const State& state, uint64_t count, std::set<ServiceKey>& touched) {
  const std::lock_guard lock(mutex_);
  return queues_.count_some(state, count, touched);
}

std::optional<ServiceKey> ServiceIndex::recorded_by(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_job_.find(job);
  if (at == by_job_.end() || !services_.at(at->second).records.contains(job)) return std::nullopt;
  return at->second;
}

bool ServiceIndex::knows_replica(const ServiceKey& key, JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = services_.find(key);
  return at != services_.end() && at->second.row.replicas.contains(job);
}

bool ServiceIndex::begin(const ServiceKey& key) {
  const std::lock_guard lock(mutex_);
  return changing_.insert(key).second;
}

void ServiceIndex::end(const ServiceKey& key) {
  const std::lock_guard lock(mutex_);
  changing_.erase(key);
}

void ServiceIndex::note_problem(const ServiceKey& key, std::string problem) {
  const std::lock_guard lock(mutex_);
  if (const auto at = services_.find(key); at != services_.end()) at->second.problem = std::move(problem);
}

}  // namespace gpusched::api
