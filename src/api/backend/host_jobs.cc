// HostBackend: jobs, once they are submitted.
#include <algorithm>
#include <mutex>
#include <utility>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/fields/job_message.h"
#include "api/fields/place_words.h"
#include "api/views/job_history.h"
#include "api/views/page_scan.h"
#include "api/views/reader_clock.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/check.h"
#include "engine/decide/feasibility.h"

namespace gpusched::api {

using access::Action;

namespace {

/// One model, or several with commas between, in place of what was asked for.
void take_model(std::string model, Part& part) {
  Answer<std::vector<PlaceRequest>> read = read_place({}, model);
  CHECK(read.ok());
  if (part.place.empty()) {
    part.place = std::move(*read);
  } else {
    part.place.front().gpu_models =
        read->empty() ? std::vector<std::string>{} : std::move(read->front().gpu_models);
    if (part.place.front() == PlaceRequest{}) part.place.clear();
  }
  part.gpu_model = std::move(model);
}

/// The needs of a job with an update's values in their place; for several members: the needs of each.
std::vector<Part> changed_parts(std::vector<Part> parts, const JobUpdate& update) {
  Part& part = parts.front();
  const int64_t memory_before = part.is_slice()   ? 0
                                : part.is_share() ? part.gpu_share_mb
                                                  : part.gpu_memory_mb * part.gpu_count;
  if (update.gpu_count) {
    part.gpu_count = *update.gpu_count;
    part.gpu_milli = 0;  // Whole ones from now on.
    part.gpu_share_mb = 0;
    part.mig_profile.clear();
  }
  if (update.gpu_model) take_model(*update.gpu_model, part);
  if (update.cpu_milli) part.cpu_milli = *update.cpu_milli;
  if (update.memory_mb) part.memory_mb = *update.memory_mb;
  // The memory of all devices together stays as before, unless the update asks for another.
  const std::optional<int64_t> memory =
      !update.gpu_memory_mb && update.gpu_count ? memory_before : update.gpu_memory_mb;
  if (part.gpu_count == 0) {
    part.gpu_memory_mb = 0;
    take_model("", part);
  } else if (memory && part.is_share()) {
    part.gpu_share_mb = *memory;
  } else if (memory) {
    part.gpu_memory_mb = (*memory + part.gpu_count - 1) / part.gpu_count;
  }
  return parts;
}

/// The time limit of a job with an update's in its place; zero: none.
Duration changed_runtime(Duration limit, const JobUpdate& update) {
  if (!update.max_runtime_at_least) return update.max_runtime.value_or(limit);
  const bool is_without = limit.ns == 0 || update.max_runtime_at_least->ns == 0;
  return is_without ? Duration{} : std::max(limit, *update.max_runtime_at_least);
}

/// Whether whoever waits in line waits for what no registered node has: a job that holds on longer keeps
/// nobody from starting. Reservations are looked at by the engine, so where there are any it decides.
bool waits_in_vain(const State& state) {
  constexpr std::size_t kClassesLooked = 64;  // Looking is not free; of more kinds one is likely to fit.
  if (state.line.empty() || !state.bookings.empty()) return false;
  rules::Feasibility feasibility(state);
  std::size_t looked = 0;
  for (const JobClass& job_class : state.classes) {
    if (job_class.waiting.empty()) continue;
    if (++looked > kClassesLooked || !feasibility.check(job_class.parts)) return false;
  }
  return true;
}

}  // namespace

void HostBackend::cancel(const CallerPtr& caller, JobId job, const std::string& tenant, const std::string& by,
                         Done<Unit> done) {
  with_job(
      caller, Action::kCancelJob, job, tenant,
      [this, caller, by = shown_by(*caller, by), done](JobId id, TenantId its) {
        const CancelJob command{.job = id, .tenant = its, .by = by};
        propose_as(*caller, command, [done, id](const Result<Decided>& decided) {
          if (auto refused = refusal(decided)) {
            if (refused->kind == ErrorKind::kJobNotFound) refused->message = "no such job: " + job_name(id);
            return done(std::move(*refused));
          }
          done(Unit{});
        });
      },
      done);
}

void HostBackend::propose_for_job(const CallerPtr& caller, Command command, JobId job, Viewer viewer,
                                  Done<JobView> done) {
  const auto decide = [this, caller, job, viewer = std::move(viewer), done](const Result<Decided>& decided) {
    if (auto refused = refusal_to(*caller, decided)) return done(std::move(*refused));
    host_.observer().read(decided->sequence, [caller, job, viewer, done](const Observer::View& view) {
      const auto found = find_job(view.state, *caller, Action::kSeeJob, job, "");
      if (!found) return done(found.error());
      JobView shown = view_of(view, **found, viewer);
      conceal(view.state, *caller, **found, shown);
      done(std::move(shown));
    });
  };
  propose_as(*caller, std::move(command), decide);
}

void HostBackend::change_job(const CallerPtr& caller, Action action, JobId job, const std::string& tenant,
                             std::function<Command(JobId, TenantId)> make, Done<JobView> done) {
  with_job(
      caller, action, job, tenant,
      [this, caller, tenant, make = std::move(make), done](JobId id, TenantId its) {
        propose_for_job(caller, make(id, its), id, Viewer::of(caller, tenant, its), done);
      },
      done);
}

void HostBackend::update_job(const CallerPtr& caller, JobId job, const std::string& tenant, JobUpdate update,
                             Done<JobView> done) {
  if (auto refused = limit_update(*caller, options_.anonymous, update)) return done(std::move(*refused));
  UpdateJob command{.job = job, .by = update.by};
  if (update.moves_begin) {
    command.given |= kJobBegin;
    command.begin_at = update.begin_at;
    command.begin_after = update.begin_after;
  }
  if (update.moves_deadline) {
    command.given |= kJobDeadline;
    command.deadline = update.deadline;
    command.deadline_after = update.deadline_after;
  }
  if (update.priority) {
    command.given |= kJobPriority;
    command.priority = *update.priority;
  }
  // A caller that may keep nodes free may also decide that a job keeps its place for longer.
  if (update.changes_runtime()) command.may_raise = may_always(*caller, Action::kMakeReservation);
  if (update.texts.empty() && !update.changes_parts() && !update.changes_runtime()) {
    return change_job(
        caller, Action::kUpdateJob, job, tenant,
        [command](JobId id, TenantId its) mutable {
          command.job = id;
          command.tenant = its;
          return Command(std::move(command));
        },
        std::move(done));
  }
  if (sheds_read(done)) return;
  std::shared_ptr<void> place = place_for(*caller, WaitingShares::Kind::kLookUps, done);
  if (place == nullptr) return;
  // Nobody takes a turn of a job that he may not change.
  read([this, caller, job, tenant, command = std::move(command), update = std::move(update),
        place = std::move(place), done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, Action::kUpdateJob, job, tenant);
    if (!found) return done(found.error());
    const JobId turn = (*found)->array.valid() ? (*found)->array : (*found)->id;
    const Done<JobView> settled = [this, turn, done](Answer<JobView> answer) {
      job_turns_.end(turn);
      done(std::move(answer));
    };
    job_turns_.begin(turn, [this, caller, job, tenant, command, update, place, settled] {
      read([this, caller, job, tenant, command, update, place, settled](const Observer::View& then) {
        const auto now = find_job(then.state, *caller, Action::kUpdateJob, job, tenant);
        if (!now) return settled(now.error());
        change_read_job(caller, then, **now, Viewer::of(caller, tenant, (*now)->tenant), update, command,
                        settled);
      });
    });
  });
}

// The texts stand in the specification, which is replaced whole, as what the job needs is.
void HostBackend::change_read_job(const CallerPtr& caller, const Observer::View& view, const Job& job,
                                  Viewer viewer, const JobUpdate& update, UpdateJob command,
                                  const Done<JobView>& done) {
  command.job = job.id;
  command.tenant = job.tenant;
  Done<JobView> settled = done;
  if (const auto service = update.texts.empty() ? std::nullopt : services_->recorded_by(job.id)) {
    // The record must not change between its reading here and its writing.
    if (!services_->begin(*service)) return done(being_changed(service->second));
    settled = settling(*service, done);
  }
  if (!update.texts.empty()) {
    command.given |= kJobSpec;
    command.spec = Blob(with_texts(job.spec.view(), update.texts));
  }
  if (update.changes_parts()) {
    if (view.state.class_of(job).parts.size() > 1) {
      return settled(ApiError{
          ErrorKind::kUnprocessable,
          "the resources of a job with several parts cannot be changed; cancel it, and submit it again"});
    }
    command.given |= kJobParts;
    command.parts = changed_parts(as_requested(view.state.class_of(job).parts), update);
  }
  if (update.changes_runtime()) {
    command.given |= kJobMaxRuntime;
    command.max_runtime = changed_runtime(job.max_runtime, update);
    // An interactive job stays within its own bounds, whoever waits.
    const bool only_times = update.texts.empty() && !update.changes_parts();
    if (only_times && !command.may_raise) command.may_raise = !job.interactive && waits_in_vain(view.state);
  }
  propose_for_job(caller, std::move(command), job.id, std::move(viewer), settled);
}

void HostBackend::hold_job(const CallerPtr& caller, JobId job, const std::string& tenant, bool held,
                           const std::string& by, Done<JobView> done) {
  const auto make = [held, by = shown_by(*caller, by)](JobId id, TenantId its) {
    return Command(HoldJob{.job = id, .tenant = its, .held = held, .by = by});
  };
  if (held) return change_job(caller, Action::kHoldJob, job, tenant, make, std::move(done));
  if (sheds_read(done)) return;
  std::shared_ptr<void> place = place_for(*caller, WaitingShares::Kind::kLookUps, done);
  if (place == nullptr) return;
  // Whether it is a record is asked of the state in which it was found: what is one stays one.
  read([this, caller, job, tenant, make, place = std::move(place),
        done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, Action::kHoldJob, job, tenant);
    if (!found) return done(found.error());
    const JobId id = (*found)->id;
    if (services_->recorded_by(id)) {
      return done(ApiError{ErrorKind::kUnprocessable,
                           job_name(job) + " is the record of a service and never starts; its replicas do"});
    }
    propose_for_job(caller, make(id, (*found)->tenant), id, Viewer::of(caller, tenant, (*found)->tenant),
                    done);
  });
}

void HostBackend::requeue_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                              const std::string& by, Done<JobView> done) {
  change_job(
      caller, Action::kRequeueJob, job, tenant,
      [by = shown_by(*caller, by)](JobId id, TenantId its) {
        return Command(RequeueJob{.job = id, .tenant = its, .by = by});
      },
      std::move(done));
}

void HostBackend::get_job(const CallerPtr& caller, JobId job, const std::string& tenant, Done<JobView> done) {
  if (sheds_read(done)) return;
  read([this, caller, telemetry = host_.telemetry(), job, tenant,
        done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, Action::kSeeJob, job, tenant);
    if (!found) return done(found.error());
    JobView shown = view_of(view, **found, Viewer::of(caller, tenant, (*found)->tenant));
    add_preparation(shown, **found, *telemetry);
    add_silence(view.state, shown, **found, *telemetry);
    shown.estimated_wait = waits_.of(view, **found, host_.forecasts(), reader_now(view.state));
    conceal(view.state, *caller, **found, shown);
    done(std::move(shown));
  });
}

void HostBackend::get_history(const CallerPtr& caller, JobId job, const std::string& tenant,
                              Done<HistoryView> done) {
  if (sheds_read(done)) return;
  read([caller, job, tenant, done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, Action::kDescribeJob, job, tenant);
    if (!found) return done(found.error());
    done(history_of(view.state, **found));
  });
}

/// Follows one job. It looks at the job whenever it may have changed, and speaks only when it has.
class HostBackend::Watch : public std::enable_shared_from_this<HostBackend::Watch> {
 public:
  Watch(HostBackend& backend, CallerPtr caller, JobId job, std::string tenant, Done<JobView> changed)
      : backend_(backend),
        caller_(std::move(caller)),
        job_(job),
        tenant_(std::move(tenant)),
        changed_(std::move(changed)) {}

  /// Asks to be called at the next change, and only then looks: no change falls in between.
  void follow() {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (is_element_name(job_)) {  // Its own id is looked up first.
      backend_.read([self = shared_from_this()](const Observer::View& view) {
        const auto found = self->find(view.state);
        if (!found) return self->changed_(found.error());
        {
          const std::lock_guard inner(self->mutex_);
          self->job_ = (*found)->id;
        }
        self->follow();
      });
      return;
    }
    token_ =
        backend_.host_.observer().on_change(job_, [self = shared_from_this()](const Observer::View& view) {
          if (self->look(view)) self->follow();
        });
    backend_.read([self = shared_from_this()](const Observer::View& view) { self->look(view); });
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    backend_.host_.observer().cancel(token_);
  }

 private:
  Answer<FoundJob> find(const State& state) const {
    return find_job(state, *caller_, Action::kSeeJob, job_, tenant_);
  }
  /// False once there is nothing more to see.
  bool look(const Observer::View& view) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return false;
    }
    const auto found = find(view.state);
    if (!found) {
      stop();
      changed_(found.error());
      return false;
    }
    JobView shown = view_of(view, **found, Viewer::of(caller_, tenant_, (*found)->tenant));
    conceal(view.state, *caller_, **found, shown);
    const bool last = is_final(shown.state);
    if (last) stop();
    if (std::exchange(version_, shown.version) != shown.version || last) changed_(std::move(shown));
    return !last;
  }

  HostBackend& backend_;
  const CallerPtr caller_;
  JobId job_;  ///< On the observer's thread, once it is followed.
  const std::string tenant_;
  const Done<JobView> changed_;
  std::optional<uint64_t> version_;  ///< Version that was told last. The observer's thread.
  std::mutex mutex_;                 ///< Guards the two below.
  uint64_t token_ = 0;
  bool stopped_ = false;
};

std::shared_ptr<void> HostBackend::watch_job(const CallerPtr& caller, JobId job, const std::string& tenant,
                                             Done<JobView> changed) {
  auto watch = std::make_shared<Watch>(*this, caller, job, tenant, std::move(changed));
  watch->follow();
  // The observer's queries hold the watch; the caller holds the right to end it.
  return {static_cast<void*>(watch.get()), [watch](void*) { watch->stop(); }};
}

void HostBackend::list_jobs(const CallerPtr& caller, JobFilter filter, Done<JobPage> done) {
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  const bool of_tenant = !filter.tenant.empty();
  scan([this, caller, place = std::move(place), of_tenant, filter = std::move(filter),
        pages = std::shared_ptr<PageScan>(), done = std::move(done)](const Observer::View& view) mutable {
    if (pages == nullptr) {
      TenantId tenant;
      if (of_tenant) {
        const Answer<const Tenant*> found = find_tenant(view.state, *caller, filter.tenant);
        if (!found) return done(found.error()), false;
        tenant = (*found)->id;
      }
      pages = std::make_shared<PageScan>(caller, std::move(filter), tenant);
    }
    if (pages->step(view)) return true;
    JobPage page = std::move(*pages).take();
    for (JobView& shown : page.jobs) {
      const std::optional<FoundJob> job = look_up(view.state, shown.id);
      if (job) shown.estimated_wait = waits_.of(view, **job, host_.forecasts(), reader_now(view.state));
    }
    done(std::move(page));
    return false;
  });
}

void HostBackend::get_jobs(const CallerPtr& caller, std::vector<JobId> ids, JobFilter filter,
                           Done<JobPage> done) {
  if (sheds_read(done)) return;
  read([this, caller, ids = std::move(ids), filter = std::move(filter),
        done = std::move(done)](const Observer::View& view) {
    const Tenant* tenant = nullptr;
    if (!filter.tenant.empty()) {
      const Answer<const Tenant*> named = find_tenant(view.state, *caller, filter.tenant);
      if (!named) return done(named.error());
      tenant = *named;
    }
    const Viewer viewer = Viewer::of(caller, tenant != nullptr ? tenant->id : TenantId{});
    const bool sees_all = Viewer::of(caller).sees_all();
    JobPage page;
    for (const JobId id : ids) {
      const std::optional<FoundJob> job = look_up(view.state, id);
      if (!job) page.unknown.push_back(id);
      if (!job || (tenant != nullptr && (*job)->tenant != tenant->id)) continue;
      if (!sees_all && !sees_jobs_of(view.state, *caller, (*job)->tenant)) continue;
      if (!matches(view.state, **job, filter)) continue;
      if (!sees_all && filter.asks_for_description() && !may_describe(view.state, *caller, **job)) continue;
      if (filter.state && (*job)->state != *filter.state) {
        page.left.emplace_back((*job)->id, (*job)->state);
        continue;
      }
      page.jobs.push_back(view_of(view, **job, viewer, filter.details));
      JobView& shown = page.jobs.back();
      if (filter.details.place)
        shown.estimated_wait = waits_.of(view, **job, host_.forecasts(), reader_now(view.state));
      conceal(view.state, *caller, **job, shown);
    }
    done(std::move(page));
  });
}

}  // namespace gpusched::api
