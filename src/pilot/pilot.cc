#include "pilot/pilot.h"

#include <algorithm>
#include <optional>
#include <set>

#include "anticipate/plain_text.h"
#include "anticipate/redact.h"
#include "pilot/monitors/custom_monitor.h"
#include "pilot/monitors/file_watcher.h"
#include "pilot/monitors/log_tailer.h"
#include "pilot/monitors/process_monitor.h"

namespace gpusched::pilot {
namespace {

using anticipate::Decision;
using anticipate::Lease;
using anticipate::LeaseSeen;
using anticipate::Source;

constexpr std::size_t kOriginBytesMax = 300;
constexpr Duration kPauseFirst = seconds(1), kPauseMax = seconds(30);

/// Whether the same request may succeed later.
bool is_passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutcomeUnknown ||
         error.code == ErrorCode::kTimeout || error.code == ErrorCode::kUnauthenticated;
}

std::string gpus_text(int32_t gpus) { return std::to_string(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

}  // namespace

HelperDuties duties_of(const std::vector<MonitorSettings>& settings) {
  HelperDuties duties;
  for (const MonitorSettings& one : settings) {
    duties.patterns.insert(duties.patterns.end(), one.paths.begin(), one.paths.end());
    if (one.source == Source::kCustom) duties.programs.push_back(one.command);
  }
  return duties;
}

std::map<std::string, std::unique_ptr<Monitor>> make_monitors(const std::vector<MonitorSettings>& settings,
                                                              const Helper& helper) {
  std::map<std::string, std::unique_ptr<Monitor>> monitors;
  const OpenFile open = [&helper](const std::string& path) { return helper.open_file(path); };
  std::size_t programs = 0;
  for (const MonitorSettings& one : settings) {
    switch (one.source) {
      case Source::kLog:
      case Source::kShell:
        monitors[one.name] = std::make_unique<LogTailer>(one.paths, one.source == Source::kShell, open);
        break;
      case Source::kFile:
        monitors[one.name] = std::make_unique<FileWatcher>(one.paths, one.suffixes, open);
        break;
      case Source::kProcess:
        monitors[one.name] = std::make_unique<ProcessMonitor>();
        break;
      case Source::kCustom:
        monitors[one.name] =
            std::make_unique<CustomMonitor>(helper, programs++, one.command.front(), one.weight_max);
        break;
      case Source::kModel:
        break;  // No monitor: the configuration has none of it.
    }
  }
  return monitors;
}

Pilot::Pilot(const PilotSettings& settings, const StateFolder& folder, PilotState state, const Helper& helper,
             LeaseDoor* door, ModelDoor* model, PilotWorld world)
    : settings_(settings),
      folder_(folder),
      door_(door),
      model_(model),
      world_(std::move(world)),
      anticipator_(settings.rules, settings.decide, std::move(state.memory)),
      records_(std::move(state.leases)),
      monitors_(make_monitors(settings.monitors, helper)) {
  for (const MonitorSettings& one : settings.monitors) sources_[one.name] = one.source;
}

Pilot::~Pilot() = default;

std::vector<int> Pilot::descriptors() const {
  std::vector<int> all;
  for (const auto& [name, monitor] : monitors_) {
    const std::vector<int> own = monitor->descriptors();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

void Pilot::turn() {
  for (const auto& [name, monitor] : monitors_) {
    monitor->look(world_.now(), [&](const Sighting& sighting) { see(name, sources_.at(name), sighting); });
  }
  const Time now = world_.now();
  note_use(now);
  for (const Decision& decision : anticipator_.tick(now)) act(decision);
  look_after_leases(now);
  forget_ended();
  constexpr Duration kSaveEvery = minutes(1);
  if (door_ != nullptr && now - saved_at_ >= kSaveEvery) save();
}

void Pilot::see(const std::string& monitor, Source source, const Sighting& sighting) {
  const std::size_t bytes_max =
      sighting.has_lines ? anticipate::kFileTextBytesMax : anticipate::kLineBytesMax;
  // Secrets go first: nothing behind this line ever sees one.
  const anticipate::Observation seen{
      .source = source,
      .monitor = monitor,
      .origin = anticipate::redacted(anticipate::plain_text(sighting.origin, kOriginBytesMax)),
      .text = anticipate::redacted(anticipate::plain_text(sighting.bytes, bytes_max))};
  const Time now = world_.now();
  const std::vector<Decision> decisions =
      sighting.conclusion ? anticipator_.conclude(seen, "conclusion of " + monitor,
                                                  sighting.conclusion->weight, sighting.conclusion->gpus, now)
                          : anticipator_.observe(seen, now);
  for (const Decision& decision : decisions) {
    act(decision);
    if (decision.kind == Decision::Kind::kWait && decision.lease == 0) ask_model(decision);
  }
}

/// Signs that neither suffice nor are too weak are worth a question. The answer is one more sign, whose
/// weight the user bounds: alone it never suffices.
void Pilot::ask_model(const Decision& decision) {
  if (model_ == nullptr || decision.score < model_->settings().ask_from) return;
  const ModelSettings& settings = model_->settings();
  const std::optional<Result<ModelAnswer>> answer = model_->ask(decision.reasons, world_.now());
  if (!answer) return;  // It rests, or is paid enough for today: rules decide.
  if (!answer->ok())
    return world_.say("the model is not asked for a while, rules decide: " + answer->error().message);
  const ModelAnswer& told = **answer;
  const int32_t weight = settings.weight_max * told.confidence / 100;
  const anticipate::Observation seen{
      .source = Source::kModel, .monitor = "model", .origin = settings.name, .text = told.why};
  for (const Decision& next :
       anticipator_.conclude(seen, "model", told.is_needed ? weight : -weight, told.gpus, world_.now()))
    act(next);
}

void Pilot::note(const Decision& decision) {
  folder_.note(decision_json(decision, job_of(decision.lease), door_ == nullptr, world_.now()));
  if (decision.kind == Decision::Kind::kWait) return;
  const std::string job = job_of(decision.lease);
  world_.say(std::string(door_ == nullptr ? "dry run: " : "") + std::string(to_string(decision.kind)) + " " +
             (job.empty() ? gpus_text(decision.request.gpus) : job) + ": " + decision.why);
}

void Pilot::act(const Decision& decision) {
  const Time now = world_.now();
  if (decision.kind == Decision::Kind::kExtend) {
    const auto retry = retries_.find(decision.lease);
    if (retry != retries_.end() && retry->second.at > now) return;
  }
  note(decision);
  switch (decision.kind) {
    case Decision::Kind::kAllocate:
      if (door_ == nullptr) return anticipator_.lease_failed(decision.lease);
      records_[decision.lease] = {.key = world_.new_key()};
      save();  // Before the request: a pilot that is killed now repeats it with the same key.
      return allocate(decision.lease, now);
    case Decision::Kind::kExtend:
      return extend(decision.lease, decision, now);
    case Decision::Kind::kRelease:
      save();
      return release(decision.lease, now);
    case Decision::Kind::kWait:
    case Decision::Kind::kRefuse:
      return;
  }
}

const Lease* Pilot::find(uint64_t number) const {
  const std::vector<Lease>& leases = anticipator_.leases();
  const auto found = std::ranges::find(leases, number, &Lease::number);
  return found == leases.end() ? nullptr : &*found;
}

std::string Pilot::job_of(uint64_t number) const {
  const auto record = records_.find(number);
  return record == records_.end() ? std::string() : record->second.remote.job;
}

void Pilot::put_off(uint64_t number, const Error& error, Time now) {
  Retry& retry = retries_[number];
  world_.say("the scheduler could not be asked, again in " + std::to_string(retry.pause.ns / seconds(1).ns) +
             " s: " + error.message);
  retry.at = now + retry.pause;
  retry.pause = std::min(retry.pause * 2, kPauseMax);
}

void Pilot::allocate(uint64_t number, Time now) {
  const Lease* const lease = find(number);
  LeaseRecord& record = records_[number];
  if (lease == nullptr) return;
  const Result<RemoteLease> remote = door_->allocate(lease->request, record.key);
  if (remote) {
    record.remote = *remote;
    retries_.erase(number);
    world_.say("asked for lease " + remote->job + "; use it: gpu-cli run --in-lease " + remote->job +
               " -- COMMAND");
    return save();
  }
  // Nobody extends a lease that nobody knows: whatever came of the request is over by then.
  const bool is_stale = now - lease->asked_at > settings_.decide.lease * 2;
  if (is_passing(remote.error()) && !is_stale) return put_off(number, remote.error(), now);
  note({.kind = Decision::Kind::kRefuse,
        .lease = number,
        .request = lease->request,
        .why = remote.error().message});
  anticipator_.lease_failed(number);
  forget_ended();
  save();
}

void Pilot::extend(uint64_t number, const Decision& decision, Time now) {
  const auto found = records_.find(number);
  if (found == records_.end() || door_ == nullptr) return;
  LeaseRecord& record = found->second;
  const std::string key = record.key + "-" + std::to_string(record.extensions);
  Result<LeaseSeen> seen = door_->extend(record.remote.id, decision.request.length, key);
  if (!seen) {
    put_off(number, seen.error(), now);
    return look_at_lease(number, now);
  }
  record.extensions += 1;
  retries_[number].pause = kPauseFirst;
  // Whatever the scheduler's clock says, it is not longer than was asked for.
  const Time latest = now + decision.request.length;
  seen->expires_at = seen->expires_at.valid() ? std::min(seen->expires_at, latest) : latest;
  anticipator_.lease_seen(number, *seen, now);
  save();
}

void Pilot::release(uint64_t number, Time now) {
  const auto found = records_.find(number);
  if (found == records_.end() || door_ == nullptr) return anticipator_.lease_failed(number);
  const Result<Unit> done = door_->release(found->second.remote.id, found->second.key + "-release");
  if (!done && is_passing(done.error())) return put_off(number, done.error(), now);
  if (!done && done.error().code != ErrorCode::kNotFound)
    world_.say("lease " + found->second.remote.job +
               " could not be released, it ends by itself: " + done.error().message);
  anticipator_.lease_seen(number, {.is_gone = true}, now);
  forget_ended();
  save();
}

void Pilot::look_at_lease(uint64_t number, Time now) {
  const std::string id = records_[number].remote.id;
  Retry& retry = retries_[number];
  retry.looked_at = now;
  Result<LeaseSeen> seen = door_->look(id);
  if (!seen && seen.error().code == ErrorCode::kNotFound) seen = LeaseSeen{.is_gone = true};
  if (!seen) return;  // The lease's own end is known, and asked again soon.
  retry.is_busy = seen->in_use;
  const Lease* const lease = find(number);
  const bool begins = lease != nullptr && seen->is_ready && !lease->ready_at.valid();
  const Time latest = now + settings_.decide.lease;
  const Time end = seen->expires_at.valid() ? std::min(seen->expires_at, latest) : latest;
  seen->expires_at = begins ? end : Time{};
  anticipator_.lease_seen(number, *seen, now);
  if (begins) world_.say("lease " + job_of(number) + " is ready");
  if (begins || seen->is_gone) save();
}

void Pilot::look_after_leases(Time now) {
  std::vector<std::pair<uint64_t, bool>> held;
  for (const Lease& lease : anticipator_.leases()) held.emplace_back(lease.number, lease.is_released);
  for (const auto& [number, is_released] : held) {
    if (door_ != nullptr) look_after(number, is_released, now);
  }
}

void Pilot::look_after(uint64_t number, bool is_released, Time now) {
  const Retry& retry = retries_[number];
  const bool rests = retry.at > now;
  if (records_[number].remote.id.empty()) {
    if (!rests) allocate(number, now);
    return;
  }
  if (is_released) {
    if (!rests) release(number, now);
    return;
  }
  if (!retry.looked_at.valid() || now - retry.looked_at >= settings_.poll) look_at_lease(number, now);
}

void Pilot::note_use(Time now) {
  if (anticipator_.leases().empty() || now - used_looked_at_ < seconds(1)) return;
  used_looked_at_ = now;
  const std::set<std::string> jobs = jobs_in_use(user_processes());
  std::vector<std::pair<uint64_t, bool>> uses;
  for (const Lease& lease : anticipator_.leases()) {
    const std::string job = job_of(lease.number);
    uses.emplace_back(lease.number, retries_[lease.number].is_busy || (!job.empty() && jobs.contains(job)));
  }
  for (const auto& [number, in_use] : uses) anticipator_.lease_use(number, in_use, now);
}

void Pilot::forget_ended() {
  std::erase_if(records_, [&](const auto& entry) { return find(entry.first) == nullptr; });
  std::erase_if(retries_, [&](const auto& entry) { return find(entry.first) == nullptr; });
}

void Pilot::save() {
  saved_at_ = world_.now();
  const Result<Unit> saved = folder_.save({.memory = anticipator_.memory(), .leases = records_});
  if (!saved) world_.say("the state could not be saved: " + saved.error().message);
}

void Pilot::stop() {
  if (door_ == nullptr) return;
  std::vector<uint64_t> unused;
  for (const Lease& lease : anticipator_.leases()) {
    if (!lease.in_use && !job_of(lease.number).empty()) unused.push_back(lease.number);
  }
  for (const uint64_t number : unused) {
    note({.kind = Decision::Kind::kRelease,
          .lease = number,
          .request = find(number)->request,
          .why = "the pilot stops, and nobody uses it"});
    release(number, world_.now());
  }
  save();
}

}  // namespace gpusched::pilot
