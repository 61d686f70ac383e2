// The auditor's view of the world, the wire and the clients.
#include "sim/audit/auditor.h"

#include <algorithm>
#include <bit>

#include "codec/group.h"
#include "node/ports/ports.h"

namespace gpusched::sim {
namespace {

AttemptKey key_of(const v1::AttemptKey& wire) { return from_wire(wire); }

}  // namespace

void Auditor::fail(const std::string& sentence) {
  if (failure_.empty()) failure_ = sentence;
}

// The world.

void Auditor::on_process_started(const AttemptKey& key, const std::vector<std::string>& devices) {
  if (!ordered_.contains(key)) fail(name_of(key) + " runs and was never ordered");
  Truth& truth = truths_[key];
  if (truth.started) fail(name_of(key) + " runs twice");
  truth.started = true;
  truth.started_at = schedule_.now();
  truth.alive = true;
  truth.devices = devices;
  const auto attempt = attempts_.find({key.job, key.attempt});
  if (attempt == attempts_.end()) {
    fail(name_of(key) + " runs and is in no journal");
  } else if (!attempt->second.live) {
    fail(name_of(key) + " starts after its end was recorded");
  } else if (attempt->second.members.size() > 1 &&
             attempt->second.prepared.size() != attempt->second.members.size()) {
    fail(name_of(key) + " starts and its gang is not prepared");
  }
  for (const std::string& uuid : devices) {
    std::set<AttemptKey>& users = users_[uuid];
    const bool shares = has_share(key);
    for (const AttemptKey& other : users) {
      if (!shares || !has_share(other))
        fail("device " + uuid + " is used by " + name_of(other) + " and " + name_of(key));
    }
    // Processes left by an ended share are held against that share, not against others beside it.
    const Member* member = attempt == attempts_.end() ? nullptr : &attempt->second.members.at(key.member);
    const bool slice = member != nullptr && !member->mig_profile.empty();
    if (slice && !slices_.contains({uuid, member->mig_start}))
      fail(name_of(key) + " starts on " + uuid + " and has no slice there");
    if (slice && busy_slices_.contains({uuid, member->mig_start}))
      fail(name_of(key) + " starts in a slice of " + uuid + " that is still busy");
    if (busy_.contains(uuid) && !shares)
      fail("device " + uuid + " is still busy, and " + name_of(key) + " starts on it");
    users.insert(key);
  }
  const auto job = jobs_.find(key.job);
  if (job == jobs_.end() || job->second.retry.overlap_allowed) return;
  for (const auto& [other, other_truth] : truths_) {
    if (other.job == key.job && other != key && other_truth.alive && other.member == key.member) {
      fail(name_of(other) + " still runs while " + name_of(key) + " starts, and the job allows no overlap");
    }
  }
}

void Auditor::on_process_ended(const AttemptKey& key, const Outcome& outcome) {
  Truth& truth = truths_[key];
  if (!truth.alive) return;
  truth.alive = false;
  truth.outcome = outcome;
  for (const std::string& uuid : truth.devices) users_[uuid].erase(key);
}

void Auditor::on_process_forced(const AttemptKey& key) {
  truths_[key].forced = true;
  on_process_ended(key, {.cause = EndCause::kStopped});
}

void Auditor::on_start_failed(const AttemptKey& key) {
  Truth& truth = truths_[key];
  if (truth.started) fail(name_of(key) + " runs twice");
  truth.started = true;
  truth.outcome = {.cause = EndCause::kStartFailed};
}

void Auditor::on_start_refused(const AttemptKey& key) {
  on_start_failed(key);
  truths_[key].outcome = {.cause = EndCause::kNotStarted};
}

void Auditor::on_outcome_kept(const AttemptKey& key, EndCause cause) {
  Truth& truth = truths_[key];
  if (!truth.alive && truth.outcome.cause == cause) truth.outcome_kept = true;
}

void Auditor::on_device_busy(const std::string& uuid, bool busy) {
  if (busy) {
    busy_.insert(uuid);
  } else {
    busy_.erase(uuid);
  }
}

void Auditor::on_slice(const std::string& uuid, int32_t start, bool there) {
  if (there) {
    slices_.insert({uuid, start});
  } else {
    slices_.erase({uuid, start});
  }
}

void Auditor::on_slice_busy(const std::string& uuid, int32_t start, bool busy) {
  if (busy) {
    busy_slices_.insert({uuid, start});
  } else {
    busy_slices_.erase({uuid, start});
  }
}

bool Auditor::has_share(const AttemptKey& key) const {
  const auto attempt = attempts_.find({key.job, key.attempt});
  return attempt != attempts_.end() && key.member < attempt->second.members.size() &&
         attempt->second.members[key.member].gpu_milli > 0;
}

bool Auditor::device_in_use(const std::string& uuid) const {
  const auto users = users_.find(uuid);
  return busy_.contains(uuid) || (users != users_.end() && !users->second.empty());
}

// The wire.

const Auditor::ReferenceNode* Auditor::node_named(const std::string& name) const {
  for (const auto& [id, node] : nodes_) {
    if (node.name == name && !node.removed) return &node;
  }
  return nullptr;
}

void Auditor::on_sent(uint64_t link, const std::string& node, uint64_t position,
                      const v1::SchedulerMessage& message) {
  if (message.has_start()) return check_order(node, position, message.start());
  for (const v1::StartAttempt& own : message.start_members().members()) {
    v1::StartAttempt whole = message.start_members().common();
    whole.MergeFrom(own);
    check_order(node, position, whole);
  }
  if (message.has_start_members()) return;
  if (!message.has_ack()) return;
  const Link& known = links_[link];
  for (const uint64_t id : message.ack().report_ids()) {
    const auto report = known.reports.find(id);
    if (report == known.reports.end()) {
      fail("node " + node + " gets an acknowledgement of report " + std::to_string(id) +
           ", which never arrived");
    } else {
      check_acknowledged(known, report->second);
    }
  }
}

void Auditor::check_order(const std::string& node, uint64_t position, const v1::StartAttempt& order) {
  const AttemptKey key = key_of(order.key());
  const auto attempt = attempts_.find({key.job, key.attempt});
  if (attempt == attempts_.end()) return fail(name_of(key) + " is ordered before its placement is durable");
  const ReferenceJob& job = jobs_.at(key.job);
  if (!attempt->second.live && attempt->second.over_at < position)
    fail(name_of(key) + " is ordered after its end");
  if (job.cancel_answered) fail(name_of(key) + " is ordered after its job's cancellation was answered");
  const Member& member = attempt->second.members.at(key.member);
  const ReferenceNode& reference = nodes_.at(member.node);
  if (reference.name != node)
    fail(name_of(key) + " is ordered from node " + node + ", placed on " + reference.name);
  uint64_t mask = 0;
  for (const v1::GrantedDevice& granted : order.devices()) {
    uint32_t slot = 0;
    while (slot < reference.devices.size() && reference.devices[slot].uuid != granted.uuid()) ++slot;
    if (slot == reference.devices.size())
      return fail(name_of(key) + " is granted the unknown device " + granted.uuid());
    mask |= uint64_t{1} << slot;
    if (granted.mig_profile() != member.mig_profile || granted.mig_start() != member.mig_start)
      fail(name_of(key) + " is granted another slice than it was placed on");
    // In the group at hand the attempt may have ended and the device be free in a new generation.
    if (attempt->second.live && reference.devices[slot].generation != granted.generation()) {
      fail(name_of(key) + " is granted an old generation of " + granted.uuid());
    }
  }
  if (mask != member.device_mask) fail(name_of(key) + " is granted other devices than it was placed on");
  ordered_.insert(key);
}

void Auditor::on_received(uint64_t link, const v1::AgentMessage& message) {
  if (message.has_register_()) {
    Link& known = links_[link];
    known.node = message.register_().node_name();
    known.devices.clear();
    for (const v1::Device& device : message.register_().devices()) known.devices.push_back(device.uuid());
  } else if (message.has_report()) {
    links_[link].reports[message.report().id()] = message.report();
  }
}

// A report must be in the journal before it is acknowledged, unless its attempt or device needs none.
void Auditor::check_acknowledged(const Link& link, const v1::Report& report) {
  if (report.has_started() || report.has_ended()) {
    const AttemptKey key = key_of(report.has_ended() ? report.ended().key() : report.started().key());
    if (!live_.contains({key.job, key.attempt})) return;
    const Member& member = attempts_.at({key.job, key.attempt}).members.at(key.member);
    if (report.has_ended() ? member.state != MemberState::kEnded : !has_begun(member.state)) {
      fail("a report about " + name_of(key) + " is acknowledged before it is durable");
    }
    return;
  }
  if (!report.has_released() || report.released().index() >= link.devices.size()) return;
  const ReferenceNode* node = node_named(link.node);
  if (node == nullptr) return;
  const std::string& uuid = link.devices[report.released().index()];
  for (const ReferenceDevice& device : node->devices) {
    if (device.uuid != uuid || device.generation != report.released().generation()) continue;
    const AttemptKey share_of = key_of(report.released().share_of());
    const auto share = device.shares.find(share_of);
    const bool whole = device.state == DeviceState::kDraining || device.state == DeviceState::kQuarantined;
    const bool open = share_of.job.valid() ? share != device.shares.end() && share->second.draining : whole;
    if (open) fail("the release of " + uuid + " is acknowledged before it is durable");
  }
}

// Clients.

void Auditor::on_submit_try(uint64_t submission, const std::vector<std::string>& tags,
                            const JobOwner& owner) {
  Submission& entry = submissions_[submission];
  entry.tags = tags;
  entry.owner = owner;
  entry.open_tries += 1;
  for (const std::string& tag : tags) submission_of_tag_[tag] = submission;
}

void Auditor::on_answer(uint64_t sequence) {
  if (sequence > replica_.last.sequence) {
    fail("a client is answered about command " + std::to_string(sequence) + ", which is not durable");
  }
}

void Auditor::on_submit_accepted(uint64_t submission, const Decided& decided) {
  on_answer(decided.sequence);
  Submission& entry = submissions_[submission];
  entry.open_tries -= 1;
  const Applied& applied = decided.applied;
  if (entry.first_id != 0 && entry.first_id != applied.first_id) {
    fail("submission " + std::to_string(submission) + " was answered " + name_of(JobId{entry.first_id}) +
         " and then " + name_of(JobId{applied.first_id}));
  }
  entry.first_id = applied.first_id;
  if (applied.id_count != entry.tags.size()) fail("a submission is answered with another number of jobs");
  for (std::size_t i = 0; i < entry.tags.size(); ++i) {
    const auto job = jobs_.find(JobId{applied.first_id + i});
    if (job == jobs_.end()) {
      fail(name_of(JobId{applied.first_id + i}) + " was acknowledged and is not there");
    } else if (job->second.tag != entry.tags[i]) {
      fail(name_of(job->first) + " was acknowledged for " + entry.tags[i] + " and is " + job->second.tag);
    }
  }
}

void Auditor::on_submit_refused(uint64_t submission, std::string_view why) {
  Submission& entry = submissions_[submission];
  entry.open_tries -= 1;
  if (entry.first_id != 0 || entry.open_tries > 0) return;  // An earlier try was or may have been taken.
  check_not_taken(submission, why);
}

void Auditor::on_submit_rejected(uint64_t submission, std::string_view why) {
  submissions_[submission].open_tries -= 1;
  check_not_taken(submission, why);  // Had an earlier try been taken, its answer would be this one's.
}

void Auditor::check_not_taken(uint64_t submission, std::string_view why) {
  for (const std::string& tag : submissions_[submission].tags) {
    const auto taken = job_by_tag_.find(tag);
    if (taken == job_by_tag_.end()) continue;
    fail("submission " + std::to_string(submission) + " was refused (" + std::string(why) + ") and is " +
         name_of(taken->second));
  }
}

void Auditor::on_cancel_accepted(JobId job, uint64_t sequence) {
  on_answer(sequence);
  const auto known = jobs_.find(job);
  if (known == jobs_.end()) return fail("the cancellation of an unknown job was accepted");
  known->second.cancel_answered = true;
}

void Auditor::on_job_told(JobId job, const Job* told) {
  const auto known = jobs_.find(job);
  if (known == jobs_.end()) {
    if (told != nullptr) fail("a client is told of " + name_of(job) + ", which is not durable");
    return;
  }
  if (told == nullptr) {
    if (!known->second.forgotten) fail("a client is told that " + name_of(job) + " does not exist");
    return;
  }
  if (is_final(told->state) && !known->second.final) {
    fail("a client is told that " + name_of(job) + " is final, and that is not durable");
  }
}

std::vector<JobId> Auditor::unfinished() const {
  std::vector<JobId> jobs;
  for (const auto& [id, job] : jobs_) {
    if (!job.final) jobs.push_back(id);
  }
  return jobs;
}

}  // namespace gpusched::sim
