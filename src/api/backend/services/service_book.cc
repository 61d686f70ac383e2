#include "api/backend/services/service_book.h"

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
  }
  return jobs;
}

}  // namespace

void ServiceBook::fill(const State& state) {
  const std::lock_guard lock(mutex_);
  state.jobs.for_each([&](const Job& job) {
    add(job);
    return true;
  });
  std::vector<ServiceKey> keys;
  for (const auto& [key, service] : services_) keys.push_back(key);
  for (const ServiceKey& key : keys) tidy(key);
}

bool ServiceBook::observe(const State& state, const Changes& changes) {
  const std::lock_guard lock(mutex_);
  bool changed = false;
  for (const Event& event : changes.events) {
    const auto* const one = std::get_if<JobSubmitted>(&event);
    if (one == nullptr || !mentions_service(one->request.spec.view())) continue;
    if (const Job* const job = state.jobs.find(one->job)) changed |= add(*job);
  }
  if (services_.empty()) return changed;
  std::set<ServiceKey> touched;
  for (const JobId id : jobs_in(changes)) {
    const auto at = by_job_.find(id);
    if (at == by_job_.end()) continue;
    touched.insert(at->second);
    if (const Job* const job = state.jobs.find(id)) update(*job);
  }
  for (const Event& event : changes.events) {
    const auto* const end = std::get_if<JobFinished>(&event);
    if (end != nullptr && by_job_.contains(end->job) && state.jobs.find(end->job) == nullptr) note_end(*end);
  }
  for (const ServiceKey& key : touched) tidy(key);
  return changed || !touched.empty();
}

void ServiceBook::note_end(const JobFinished& end) {
  Service& service = services_.at(by_job_.at(end.job));
  service.records.erase(end.job);
  const auto replica = service.replicas.find(end.job);
  if (replica == service.replicas.end()) return;
  replica->second.state = end.state;
  replica->second.ended_at = end.at;
}

bool ServiceBook::add(const Job& job) {
  if (job.is_array() || job.is_element() || !mentions_service(job.spec.view())) return false;
  const std::optional<std::string_view> name = spec_label(job.spec.view(), kServiceLabel);
  if (!name || name->empty()) return false;
  const bool is_replica = replica_mark(job.spec.view()).has_value();
  if (!is_replica && (!job.held || is_final(job.state) || !read_settings(job.spec.view(), {}).ok()))
    return false;
  const ServiceKey key{job.tenant, std::string(*name)};
  services_.try_emplace(key);
  by_job_.emplace(job.id, key);
  update(job);
  return true;
}

void ServiceBook::update(const Job& job) {
  Service& service = services_.at(by_job_.at(job.id));
  if (const std::optional<ReplicaMark> mark = replica_mark(job.spec.view())) {
    service.replicas[job.id] = {.job = job.id,
                                .mark = *mark,
                                .state = job.state,
                                .ending = job.cancel_requested,
                                .started_at = job.started_at,
                                .ended_at = job.ended_at};
    return;
  }
  const Answer<ServiceSettings> settings = read_settings(job.spec.view(), {});
  if (is_final(job.state)) {
    service.records.erase(job.id);
  } else if (settings) {
    service.records[job.id] = *settings;
  }
  if (settings && job.id >= service.last_record) {
    service.last_record = job.id;
    service.last_settings = *settings;
  }
}

void ServiceBook::tidy(const ServiceKey& key) {
  const auto at = services_.find(key);
  if (at == services_.end()) return;
  Service& service = at->second;
  const ServiceRow row = entry_of(key, service).row;
  std::map<int64_t, JobId> newest;  // Of the newest generation, by index.
  for (const auto& [job, replica] : row.replicas)
    if (replica.mark.generation == row.settings.generation) newest[replica.mark.index] = job;
  for (const auto& [job, replica] : row.replicas) {
    const bool speaks = !row.deleted && replica.mark.generation == row.settings.generation &&
                        newest.at(replica.mark.index) == job;
    if (replica.is_live() || speaks) continue;
    service.replicas.erase(job);
    by_job_.erase(job);
  }
  if (!service.records.empty() || !service.replicas.empty()) return;
  std::erase_if(by_job_, [&key](const auto& one) { return one.second == key; });
  services_.erase(at);
}

ServiceBook::Entry ServiceBook::entry_of(const ServiceKey& key, const Service& service) {
  Entry entry{.key = key, .row = {}, .problem = service.problem};
  entry.row.record = service.last_record;
  entry.row.settings = service.last_settings;
  entry.row.deleted = service.records.empty();
  for (const auto& [record, settings] : service.records) {
    if (record != service.last_record) entry.row.older_records.push_back(record);
  }
  entry.row.replicas = service.replicas;
  return entry;
}

std::vector<ServiceBook::Entry> ServiceBook::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> out;
  for (const auto& [key, service] : services_) out.push_back(entry_of(key, service));
  return out;
}

std::optional<ServiceBook::Entry> ServiceBook::find(const ServiceKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto at = services_.find(key);
  return at == services_.end() ? std::nullopt : std::optional(entry_of(key, at->second));
}

std::optional<ServiceKey> ServiceBook::recorded_by(JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = by_job_.find(job);
  if (at == by_job_.end() || !services_.at(at->second).records.contains(job)) return std::nullopt;
  return at->second;
}

bool ServiceBook::knows_replica(const ServiceKey& key, JobId job) const {
  const std::lock_guard lock(mutex_);
  const auto at = services_.find(key);
  return at != services_.end() && at->second.replicas.contains(job);
}

bool ServiceBook::begin(const ServiceKey& key) {
  const std::lock_guard lock(mutex_);
  return changing_.insert(key).second;
}

void ServiceBook::end(const ServiceKey& key) {
  const std::lock_guard lock(mutex_);
  changing_.erase(key);
}

void ServiceBook::note_problem(const ServiceKey& key, std::string problem) {
  const std::lock_guard lock(mutex_);
  if (const auto at = services_.find(key); at != services_.end()) at->second.problem = std::move(problem);
}

}  // namespace gpusched::api
