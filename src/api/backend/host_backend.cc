#include "api/backend/host_backend.h"

#include <algorithm>
#include <mutex>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/fields/job_message.h"
#include "api/fields/place_words.h"
#include "api/metrics/health_metrics.h"
#include "api/views/forecast_views.h"
#include "api/views/job_history.h"
#include "api/views/page_scan.h"
#include "api/views/state_views.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/net/webhook_url.h"
#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

Part to_engine(JobPart&& asked, const JobRequest& job) {
  Part part{.member_count = asked.members,
            .gpu_count = asked.gpu_count,
            .cpu_milli = static_cast<int32_t>(asked.cpu_milli),
            .memory_mb = asked.memory_mb,
            .gpu_model = std::move(asked.gpu_model),
            .features = job.wants_container ? kFeatureContainer : 0,
            .work = job.work};
  part.gpu_milli = asked.gpu_milli;
  part.member_max = asked.members_max;
  part.domain = job.domain;
  part.domain_required = job.domain_required;
  if (part.is_share()) part.gpu_share_mb = asked.gpu_memory_mb;
  // What is asked of all devices together is asked of each in equal shares, rounded up.
  if (part.gpu_count > 0 && !part.is_share())
    part.gpu_memory_mb =
        std::max((asked.gpu_memory_mb + part.gpu_count - 1) / part.gpu_count, job.gpu_memory_each_mb);
  part.place = job.place;
  return part;
}

std::vector<Part> parts_of(JobRequest& job) {
  std::vector<Part> parts;
  for (JobPart& part : job.parts) {
    parts.push_back(to_engine(std::move(part), job));
    parts.back().one_member_per_node = job.one_member_per_node;
  }
  if (!parts.empty()) return parts;
  JobPart whole{.members = std::max(job.nodes, 1),
                .members_max = job.nodes_max,
                .gpu_count = job.gpu_count,
                .gpu_milli = job.gpu_milli,
                .gpu_memory_mb = job.gpu_memory_mb,
                .gpu_model = std::move(job.gpu_model),
                .cpu_milli = job.cpu_milli,
                .memory_mb = job.memory_mb};
  parts.push_back(to_engine(std::move(whole), job));
  parts.back().mig_profile = std::move(job.mig_profile);
  parts.back().one_member_per_node = job.is_gang();
  parts.back().may_span_nodes = job.gpus_over_nodes && !job.is_gang();
  return parts;
}

gpusched::JobRequest to_engine(JobRequest&& job, int32_t default_priority) {
  std::vector<Part> parts = parts_of(job);
  gpusched::JobRequest out{.priority = job.priority.value_or(default_priority),
                           .max_runtime = job.max_runtime,
                           .retry = {.exit_code_retries = job.exit_code_retries,
                                     .system_retries = job.system_retries,
                                     .overlap_allowed = job.overlap_allowed,
                                     .tolerates_node_loss = job.tolerates_node_loss,
                                     .kill_after_lost_contact = job.kill_after_lost_contact,
                                     .causes = job.retry_causes,
                                     .exit_codes = Blob(job.retry_exit_codes)},
                           .require_feasible = job.require_feasible,
                           .spec = Blob(job.spec),
                           .held = job.held,
                           .flow = std::move(job.flow),
                           .preemption_mode = job.preemption_mode,
                           .booking = std::move(job.reservation),
                           .interactive = job.interactive};
  out.parts = std::move(parts);
  return out;
}

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

/// What a job needs, with what an update gives instead; of one of several members: what each needs.
std::vector<Part> changed_parts(std::vector<Part> parts, const JobUpdate& update) {
  Part& part = parts.front();
  if (update.gpu_count) {
    part.gpu_count = *update.gpu_count;
    part.gpu_milli = 0;  // Whole ones from now on.
    part.gpu_share_mb = 0;
    part.mig_profile.clear();
  }
  if (update.gpu_model) take_model(*update.gpu_model, part);
  if (update.cpu_milli) part.cpu_milli = *update.cpu_milli;
  if (update.memory_mb) part.memory_mb = *update.memory_mb;
  // Of each device as much as before, unless more or less is asked for of all together.
  if (part.gpu_count == 0) {
    part.gpu_memory_mb = 0;
    take_model("", part);
  } else if (update.gpu_memory_mb && part.is_share()) {
    part.gpu_share_mb = *update.gpu_memory_mb;
  } else if (update.gpu_memory_mb) {
    part.gpu_memory_mb = (*update.gpu_memory_mb + part.gpu_count - 1) / part.gpu_count;
  }
  return parts;
}

/// How long the job waits by the newest forecast; nothing when that does not know, or was wrong.
std::optional<Duration> wait_of(const JobView& job, const ForecastDesk& desk, Time now) {
  if (job.state != JobState::kPending) return Duration{};
  const std::optional<Time> start = desk.known_start(job.id);
  return start && *start >= now ? std::optional(*start - now) : std::nullopt;
}

Tenants visible_to(const JobFilter& filter) { return filter.anonymous ? Tenants::kOpen : Tenants::kAll; }

bool any_container_node(const State& state) {
  return std::any_of(state.nodes.begin(), state.nodes.end(),
                     [](const Node& node) { return (node.feature_bits & kFeatureContainer) != 0; });
}

}  // namespace

std::optional<ApiError> refusal(const Result<Decided>& decided, std::size_t batch_size) {
  if (!decided) return to_api_error(decided.error());
  if (decided->applied.rejection) return to_api_error(*decided->applied.rejection, batch_size);
  return std::nullopt;
}

HostBackend::HostBackend(Host& host, HostBackendOptions options)
    : host_(host),
      options_(options),
      counts_(std::make_shared<JobCounts>()),
      feed_(std::make_shared<ChangeFeed>()) {
  host_.observer().add_listener([counts = counts_, containers = containers_](const Observer::View& view,
                                                                             const Changes& changes) {
    counts->observe(view, changes);
    const bool registered = std::any_of(changes.events.begin(), changes.events.end(), [](const Event& event) {
      return std::holds_alternative<NodeRegistered>(event);
    });
    if (registered) containers->store(any_container_node(view.state), std::memory_order_release);
  });
  host_.observer().in_order([containers = containers_](const Observer::View& view) {
    containers->store(any_container_node(view.state), std::memory_order_release);
  });
  host_.observer().add_listener(
      [feed = feed_](const Observer::View&, const Changes& changes) { feed->publish(changes); });
  host_.observer().add_listener([open = open_tenants_](const Observer::View& view, const Changes& changes) {
    open->observe(view.state, changes);
  });
  host_.observer().add_listener([nameless = nameless_](const Observer::View& view, const Changes& changes) {
    nameless->observe(view.state, changes);
  });
  host_.observer().read(0, [open = open_tenants_, nameless = nameless_](const Observer::View& view) {
    open->fill(view.state);
    nameless->fill(view.state);
  });
}

void HostBackend::propose(Command command, Decision decision) {
  host_.propose(std::move(command), [this, decision = std::move(decision)](Result<Decided> decided) {
    if (decided.ok()) {
      // Decisions come in the order of their numbers, from one thread.
      answered_.store(decided->sequence, std::memory_order_release);
    }
    decision(std::move(decided));
  });
}

void HostBackend::read(Observer::Query query) {
  host_.observer().read(answered_.load(std::memory_order_acquire), std::move(query));
}

void HostBackend::scan(Observer::Step step) {
  host_.observer().scan(answered_.load(std::memory_order_acquire), std::move(step));
}

std::optional<ApiError> HostBackend::too_many_questions(bool long_ones) const {
  const Observer& observer = host_.observer();
  const bool full = long_ones ? observer.scans_waiting() >= limits::kScansWaitingMax
                              : observer.reads_waiting() >= limits::kReadsWaitingMax;
  if (!full) return std::nullopt;
  return ApiError{.kind = ErrorKind::kUnavailable,
                  .message = "the scheduler is overloaded: too many reads are waiting; try again soon",
                  .retry_after = seconds(1)};
}

void HostBackend::with_tenant(const std::string& name, std::function<void(TenantId)> use,
                              std::function<void(ApiError)> refuse) {
  if (name.empty()) return use(kDefaultTenant);
  if (const auto id = parse_tenant_id(name)) return use(*id);
  if (sheds_read(refuse)) return;
  read([name, use = std::move(use), refuse = std::move(refuse)](const Observer::View& view) {
    const Answer<const Tenant*> tenant = find_tenant(view.state, name);
    if (!tenant) return refuse(tenant.error());
    use((*tenant)->id);
  });
}

// All but its tenant.
SubmitJobs HostBackend::command_of(SubmitRequest& request) const {
  SubmitJobs command{.request_key = std::move(request.request_key), .by = std::move(request.by)};
  command.jobs.reserve(request.jobs.size());
  for (JobRequest& job : request.jobs) {
    const SpecPeek peek = peek_spec(job.spec);
    const std::string_view user = peek.submitter.empty() ? peek.user : peek.submitter;
    if (command.jobs.empty()) command.user = user.substr(0, limits::kNameBytesMax);
    std::string task_type(peek.task_type);
    command.jobs.push_back(to_engine(std::move(job), options_.default_priority));
    command.jobs.back().task_type = std::move(task_type);
  }
  return command;
}

std::optional<ApiError> HostBackend::check_gangs(SubmitRequest& request) const {
  if (options_.gangs) return std::nullopt;
  for (JobRequest& job : request.jobs) {
    job.gpus_over_nodes = false;
    if (!job.is_gang()) continue;
    return ApiError{ErrorKind::kPartsUnsupported,
                    "this scheduler does not place a job on several nodes (scheduler.enable_gang_scheduling "
                    "is false); request one node",
                    "nodes"};
  }
  return std::nullopt;
}

/// What a job may ask for where this scheduler has its own word.
std::optional<ApiError> HostBackend::check_handshake(const SubmitRequest& request) const {
  for (const JobRequest& job : request.jobs) {
    if (job.preempt_grace > options_.preempt_grace_max) {
      return ApiError{ErrorKind::kInvalidArgument,
                      "a job may request a grace period of at most " +
                          std::to_string(options_.preempt_grace_max.ms() / 1'000) +
                          " s before it is preempted (scheduler.preempt_grace_max_seconds); request less",
                      "preempt_grace_seconds"};
    }
    if (job.preempt_webhook.empty()) continue;
    const std::optional<WebhookUrl> url = parse_webhook_url(job.preempt_webhook);
    if (url && is_listed(*url, options_.preempt_webhook_hosts)) continue;
    return ApiError{ErrorKind::kInvalidArgument,
                    options_.preempt_webhook_hosts.empty()
                        ? "this scheduler does not allow preempt_webhook (scheduler.preempt_webhook_hosts is "
                          "empty); remove it"
                        : "the host of preempt_webhook is not one of scheduler.preempt_webhook_hosts; give a "
                          "URL of one of those hosts",
                    "preempt_webhook"};
  }
  return std::nullopt;
}

void HostBackend::submit(SubmitRequest request, Done<Submitted> done) {
  if (auto refused = check_handshake(request)) return done(std::move(*refused));
  if (auto refused = check_gangs(request)) return done(std::move(*refused));
  if (auto refused = check_users(request)) return done(std::move(*refused));
  SubmitJobs command = command_of(request);
  const std::size_t batch_size = command.jobs.size();
  std::vector<uint32_t> numbers;
  const bool arrays = std::any_of(command.jobs.begin(), command.jobs.end(),
                                  [](const gpusched::JobRequest& job) { return job.is_array(); });
  for (std::size_t i = 0; arrays && i < batch_size; ++i) numbers.push_back(command.jobs[i].sequence_count());
  const auto decide = [batch_size, numbers](const Done<Submitted>& answer, const Result<Decided>& decided) {
    if (auto refused = refusal(decided, batch_size)) return answer(std::move(*refused));
    answer(Submitted{.first_job = JobId{decided->applied.first_id},
                     .job_count = decided->applied.id_count,
                     .numbers = numbers,
                     .queue_position = decided->queue_position});
  };
  const auto id = request.tenant.empty() ? std::optional(kDefaultTenant) : parse_tenant_id(request.tenant);
  if (id) {  // The usual case goes straight to the host.
    command.tenant = *id;
    propose(std::move(command),
            [decide, done = std::move(done)](Result<Decided> decided) { decide(done, decided); });
    return;
  }
  const auto kept = std::make_shared<SubmitJobs>(std::move(command));
  with_tenant(
      request.tenant,
      [this, decide, kept, done](TenantId tenant) {
        kept->tenant = tenant;
        propose(std::move(*kept), [decide, done](Result<Decided> decided) { decide(done, decided); });
      },
      done);
}

void HostBackend::with_element(JobId job, const std::string& tenant, std::function<void(JobId)> use,
                               std::function<void(ApiError)> refuse) {
  if (sheds_read(refuse)) return;
  read([job, tenant, use = std::move(use), refuse = std::move(refuse)](const Observer::View& view) {
    const auto found = find_job(view.state, job, tenant);
    if (!found) return refuse(found.error());
    use((*found)->id);
  });
}

void HostBackend::cancel(JobId job, const std::string& tenant, const std::string& by, Done<Unit> done) {
  if (is_element_name(job)) {
    return with_element(
        job, tenant, [this, tenant, by, done](JobId element) { cancel(element, tenant, by, done); }, done);
  }
  const auto propose = [this, job, by, done](TenantId id) {
    this->propose(CancelJob{.job = job, .tenant = id, .by = by}, [done, job](Result<Decided> decided) {
      if (auto refused = refusal(decided)) {
        if (refused->kind == ErrorKind::kJobNotFound) refused->message = "no such job: " + job_name(job);
        return done(std::move(*refused));
      }
      done(Unit{});
    });
  };
  if (tenant.empty()) return propose(TenantId{});
  with_tenant(tenant, propose, done);
}

void HostBackend::propose_for_job(Command command, JobId job, Viewer viewer, Done<JobView> done) {
  propose(std::move(command), [this, job, viewer, done](Result<Decided> decided) {
    if (auto refused = refusal(decided)) return done(std::move(*refused));
    host_.observer().read(decided->sequence, [job, viewer, done](const Observer::View& view) {
      const auto found = find_job(view.state, job, "");
      if (!found) return done(found.error());
      done(view_of(view, **found, viewer));
    });
  });
}

void HostBackend::change_job(JobId job, const std::string& tenant, std::function<Command(TenantId)> make,
                             Done<JobView> done) {
  CHECK(!is_element_name(job));
  if (tenant.empty()) return propose_for_job(make(TenantId{}), job, Viewer::all(), std::move(done));
  with_tenant(
      tenant,
      [this, job, make = std::move(make), done](TenantId id) {
        propose_for_job(make(id), job, Viewer::of(id), done);
      },
      done);
}

void HostBackend::update_job(JobId job, const std::string& tenant, JobUpdate update, Done<JobView> done) {
  if (is_element_name(job)) {
    return with_element(
        job, tenant,
        [this, tenant, update, done](JobId element) { update_job(element, tenant, update, done); }, done);
  }
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
  if (update.max_runtime) {
    command.given |= kJobMaxRuntime;
    command.max_runtime = *update.max_runtime;
  }
  if (update.texts.empty() && !update.changes_parts()) {
    return change_job(
        job, tenant,
        [command](TenantId id) mutable {
          command.tenant = id;
          return Command(std::move(command));
        },
        std::move(done));
  }
  if (sheds_read(done)) return;
  // The texts stand in the specification, which is replaced whole, as what it needs is.
  read([this, job, tenant, command, update, done](const Observer::View& view) mutable {
    const auto found = find_job(view.state, job, tenant);
    if (!found) return done(found.error());
    if (!update.texts.empty()) {
      command.given |= kJobSpec;
      command.spec = Blob(with_texts((*found)->spec.view(), update.texts));
    }
    if (update.changes_parts()) {
      if (view.state.class_of(**found).parts.size() > 1) {
        return done(ApiError{
            ErrorKind::kUnprocessable,
            "the resources of a job with several parts cannot be changed; cancel it, and submit it again"});
      }
      command.given |= kJobParts;
      command.parts = changed_parts(view.state.class_of(**found).parts, update);
    }
    command.tenant = (*found)->tenant;
    propose_for_job(std::move(command), job, Viewer::of(tenant, **found), done);
  });
}

void HostBackend::hold_job(JobId job, const std::string& tenant, bool held, const std::string& by,
                           Done<JobView> done) {
  if (is_element_name(job)) {
    return with_element(
        job, tenant,
        [this, tenant, held, by, done](JobId element) { hold_job(element, tenant, held, by, done); }, done);
  }
  change_job(
      job, tenant,
      [job, held, by](TenantId id) {
        return Command(HoldJob{.job = job, .tenant = id, .held = held, .by = by});
      },
      std::move(done));
}

void HostBackend::requeue_job(JobId job, const std::string& tenant, const std::string& by,
                              Done<JobView> done) {
  if (is_element_name(job)) {
    return with_element(
        job, tenant, [this, tenant, by, done](JobId element) { requeue_job(element, tenant, by, done); },
        done);
  }
  change_job(
      job, tenant, [job, by](TenantId id) { return Command(RequeueJob{.job = job, .tenant = id, .by = by}); },
      std::move(done));
}

void HostBackend::get_job(JobId job, const std::string& tenant, Done<JobView> done) {
  if (sheds_read(done)) return;
  read(
      [this, telemetry = host_.telemetry(), job, tenant, done = std::move(done)](const Observer::View& view) {
        const auto found = find_job(view.state, job, tenant);
        if (!found) return done(found.error());
        JobView shown = view_of(view, **found, Viewer::of(tenant, **found));
        add_preparation(shown, **found, *telemetry);
        shown.estimated_wait = wait_of(shown, host_.forecasts(), view.state.last.at);
        done(std::move(shown));
      });
}

void HostBackend::get_history(JobId job, const std::string& tenant, Done<HistoryView> done) {
  if (sheds_read(done)) return;
  read([job, tenant, done = std::move(done)](const Observer::View& view) {
    const auto found = find_job(view.state, job, tenant);
    if (!found) return done(found.error());
    done(history_of(view.state, **found));
  });
}

/// Follows one job. It looks at the job whenever it may have changed, and speaks only when it has.
class HostBackend::Watch : public std::enable_shared_from_this<HostBackend::Watch> {
 public:
  Watch(HostBackend& backend, JobId job, std::string tenant, Done<JobView> changed)
      : backend_(backend), job_(job), tenant_(std::move(tenant)), changed_(std::move(changed)) {}

  /// Asks to be called at the next change, and only then looks: no change falls in between.
  void follow() {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    if (is_element_name(job_)) {  // Its own id is looked up first.
      backend_.read([self = shared_from_this()](const Observer::View& view) {
        const auto found = find_job(view.state, self->job_, self->tenant_);
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
  /// False once there is nothing more to see.
  bool look(const Observer::View& view) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return false;
    }
    const auto found = find_job(view.state, job_, tenant_);
    if (!found) {
      stop();
      changed_(found.error());
      return false;
    }
    JobView shown = view_of(view, **found, Viewer::of(tenant_, **found));
    const bool last = is_final(shown.state);
    if (last) stop();
    if (std::exchange(version_, shown.version) != shown.version || last) changed_(std::move(shown));
    return !last;
  }

  HostBackend& backend_;
  JobId job_;  ///< On the observer's thread, once it is followed.
  const std::string tenant_;
  const Done<JobView> changed_;
  std::optional<uint64_t> version_;  ///< Of what was last said. The observer's thread.
  std::mutex mutex_;                 ///< Guards the two below.
  uint64_t token_ = 0;
  bool stopped_ = false;
};

std::shared_ptr<void> HostBackend::watch_job(JobId job, const std::string& tenant, Done<JobView> changed) {
  auto watch = std::make_shared<Watch>(*this, job, tenant, std::move(changed));
  watch->follow();
  // The observer's queries hold the watch; the caller holds the right to end it.
  return {static_cast<void*>(watch.get()), [watch](void*) { watch->stop(); }};
}

void HostBackend::list_jobs(JobFilter filter, Done<JobPage> done) {
  if (sheds_scan(done)) return;
  const bool of_tenant = !filter.tenant.empty();
  scan([this, of_tenant, filter = std::move(filter), pages = std::shared_ptr<PageScan>(),
        done = std::move(done)](const Observer::View& view) mutable {
    if (pages == nullptr) {
      TenantId tenant;
      if (of_tenant) {
        const Answer<const Tenant*> found = find_tenant(view.state, filter.tenant, visible_to(filter));
        if (!found) return done(found.error()), false;
        tenant = (*found)->id;
      }
      pages = std::make_shared<PageScan>(std::move(filter), tenant);
    }
    if (pages->step(view)) return true;
    JobPage page = std::move(*pages).take();
    for (JobView& job : page.jobs) job.estimated_wait = wait_of(job, host_.forecasts(), view.state.last.at);
    done(std::move(page));
    return false;
  });
}

void HostBackend::get_jobs(std::vector<JobId> ids, JobFilter filter, Done<JobPage> done) {
  if (sheds_read(done)) return;
  read([this, open = open_tenants_, ids = std::move(ids), filter = std::move(filter),
        done = std::move(done)](const Observer::View& view) {
    const Tenant* tenant = nullptr;
    if (!filter.tenant.empty()) {
      const Answer<const Tenant*> named = find_tenant(view.state, filter.tenant, visible_to(filter));
      if (!named) return done(named.error());
      tenant = *named;
    }
    const Viewer viewer = tenant != nullptr  ? Viewer::of(tenant->id)
                          : filter.anonymous ? Viewer::anonymous()
                                             : Viewer::all();
    JobPage page;
    for (const JobId id : ids) {
      const std::optional<FoundJob> job = look_up(view.state, id);
      if (!job || (tenant != nullptr && (*job)->tenant != tenant->id)) continue;
      if (filter.anonymous && !open->contains((*job)->tenant)) continue;
      if ((filter.state && (*job)->state != *filter.state) || !matches(view.state, **job, filter)) continue;
      page.jobs.push_back(view_of(view, **job, viewer, filter.details));
      JobView& shown = page.jobs.back();
      if (filter.details.place) shown.estimated_wait = wait_of(shown, host_.forecasts(), view.state.last.at);
    }
    done(std::move(page));
  });
}

std::shared_ptr<void> HostBackend::watch_changes(std::function<void(const ChangeNotice&)> changed) {
  return feed_->subscribe(std::move(changed));
}

void HostBackend::read_log(LogRequest request, Done<LogPiece> done) {
  read([this, request = std::move(request), done = std::move(done)](const Observer::View& view) {
    const auto found = find_reachable(view.state, request.job, request.tenant, request.anonymous);
    if (!found) return done(found.error());
    const Answer<AttemptPlace> place = place_of(view.state, **found, request.attempt, request.member);
    if (!place) return done(place.error());
    const uint32_t attempt = place->attempt;
    v1::ReadLog order;
    order.mutable_key()->set_job((*found)->id.value);
    order.mutable_key()->set_attempt(attempt);
    order.mutable_key()->set_member(request.member);
    order.set_stderr(request.from_stderr);
    order.set_offset(request.offset);
    order.set_size_max(request.size_max);
    order.set_wait_ms(request.wait.ms());
    order.set_tail_lines(request.tail_lines);
    if (request.since.valid()) order.set_since_unix_ns(request.since.ns);
    order.set_grep(request.grep);
    order.set_timestamps(request.timestamps);
    host_.read_log(place->node, std::move(order), [attempt, done](Result<v1::LogChunk> chunk) {
      if (!chunk) return done(to_api_error(chunk.error()));
      if (!chunk->error().empty()) {
        return done(ApiError{kind_of_code(chunk->code()).value_or(ErrorKind::kLogNotFound), chunk->error()});
      }
      const auto size = static_cast<int64_t>(chunk->data().size());
      const int64_t next = chunk->next_offset() != 0 ? chunk->next_offset() : chunk->offset() + size;
      done(LogPiece{.data = std::move(*chunk->mutable_data()),
                    .offset = chunk->offset(),
                    .next_offset = next,
                    .skipped = chunk->skipped(),
                    .at_end = chunk->at_end(),
                    .attempt = attempt});
    });
  });
}

HealthView HostBackend::health() const {
  HostHealth host = host_.health();
  HealthView view{
      .serving = host.serving, .reason = std::move(host.reason), .concerns = std::move(host.concerns)};
  if (!view.serving) view.kind = ErrorKind::kStorageFull;
  return view;
}

}  // namespace gpusched::api
