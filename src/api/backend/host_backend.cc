#include "api/backend/host_backend.h"

#include <algorithm>
#include <future>
#include <utility>

#include "api/backend/services/service_labels.h"
#include "api/contract/names.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/queue_limits.h"
#include "base/task_labels.h"

namespace gpusched::api {
namespace {

bool any_container_node(const State& state) {
  return std::any_of(state.nodes.begin(), state.nodes.end(),
                     [](const Node& node) { return (node.feature_bits & kFeatureContainer) != 0; });
}

/// The jobs that may be tasks or of services, in the order of their ids. Found by one walk for all books: at
/// a start a million jobs take longer to read from memory than to look at.
std::vector<const Job*> jobs_with_our_labels(const State& state) {
  std::vector<const Job*> found;
  state.jobs.for_each([&](const Job& job) {
    const std::string_view spec = job.spec.view();
    if (has_our_label(spec) || spec.find(kTaskIdLabel) != std::string_view::npos) found.push_back(&job);
    return true;
  });
  return found;
}

}  // namespace

std::optional<ApiError> refusal(const Result<Decided>& decided, std::size_t batch_size) {
  if (!decided) return to_api_error(decided.error());
  if (decided->applied.rejection) return to_api_error(*decided->applied.rejection, batch_size);
  return std::nullopt;
}

std::optional<ApiError> HostBackend::refusal_to(const access::Caller& caller, const Result<Decided>& decided,
                                                std::size_t batch_size) const {
  if (!decided || !decided->applied.rejection) return refusal(decided, batch_size);
  return to_api_error(caller, *positions_, *decided->applied.rejection, batch_size);
}

namespace {

ServiceIndex::EndpointOf endpoints_of(Host& host) {
  return [telemetry = host.telemetry()](NodeId node,
                                        const AttemptKey& attempt) -> std::optional<ReplicaEndpoint> {
    std::optional<NodeTelemetry::Endpoint> told = telemetry->endpoint(node, attempt);
    if (!told) return std::nullopt;
    return ReplicaEndpoint{.port = told->port, .ready = told->ready, .detail = std::move(told->detail)};
  };
}

}  // namespace

HostBackend::HostBackend(Host& host, HostBackendOptions options)
    : host_(host),
      options_(options),
      counts_(std::make_shared<JobCounts>()),
      feed_(std::make_shared<ChangeFeed>()),
      task_uses_(options_.learn_task_use ? std::make_shared<TaskUses>() : nullptr),
      services_(std::make_shared<ServiceIndex>(endpoints_of(host))),
      keeper_(std::make_shared<ServiceKeeper>(host, services_)) {
  host_.observer().add_listener([counts = counts_, containers = containers_](const Observer::View& view,
                                                                             const Changes& changes) {
    counts->observe(view, changes);
    const bool registered = std::any_of(changes.events.begin(), changes.events.end(), [](const Event& event) {
      return std::holds_alternative<NodeRegistered>(event);
    });
    if (registered) containers->store(any_container_node(view.state), std::memory_order_release);
  });
  host_.observer().in_order([containers = containers_, feed = feed_](const Observer::View& view) {
    containers->store(any_container_node(view.state), std::memory_order_release);
    feed->fill(view.state);
  });
  host_.observer().add_listener([feed = feed_](const Observer::View& view, const Changes& changes) {
    feed->publish(view.state, changes);
  });
  host_.observer().add_listener([positions = positions_](const Observer::View& view, const Changes& changes) {
    positions->observe(view.state, changes);
  });
  host_.observer().add_listener([nameless = nameless_](const Observer::View& view, const Changes& changes) {
    nameless->observe(view.state, changes);
  });
  host_.observer().add_listener([keys = keys_](const Observer::View& view, const Changes& changes) {
    keys->observe(view.state, changes);
  });
  host_.observer().add_listener(
      [tasks = tasks_, uses = task_uses_](const Observer::View& view, const Changes& changes) {
        tasks->observe(view, changes);
        if (uses != nullptr) uses->observe(view, changes);
      });
  host_.observer().add_listener(
      [services = services_, keeper = keeper_](const Observer::View& view, const Changes& changes) {
        keeper->step(view, services->observe(view.state, changes));
      });
  // A key must work from the first call on. Where the observer has ended, the promise ends with the query.
  auto filled = std::make_shared<std::promise<void>>();
  const std::future<void> known = filled->get_future();
  host_.observer().read(
      0, [positions = positions_, nameless = nameless_, keys = keys_, tasks = tasks_, uses = task_uses_,
          services = services_, keeper = keeper_, filled = std::move(filled)](const Observer::View& view) {
        positions->fill(view.state);
        nameless->fill(view.state);
        keys->fill(view.state);
        const std::vector<const Job*> jobs = jobs_with_our_labels(view.state);
        tasks->fill(view.state, jobs);
        if (uses != nullptr) uses->fill(view.state);
        services->fill(view.state, jobs);
        keeper->step_all(view);
        filled->set_value();
      });
  known.wait();
  keys_->restore(options_.key_uses);
}

HostBackend::~HostBackend() { keeper_->stop(); }

void HostBackend::propose(const access::Caller& caller, Command command, Decision decision,
                          WaitingShares::Charge charge) {
  const auto answered = [this, charge, decision = std::move(decision)](Result<Decided> decided) {
    if (decided.ok()) {
      // Decisions come in the order of their numbers, from one thread.
      answered_.store(decided->sequence, std::memory_order_release);
    } else if (is_over_share(decided.error())) {
      shares_->count_refused();
    }
    shares_->give_back(charge);
    decision(std::move(decided));
  };
  host_.propose(Proposal{.command = std::move(command), .decision = answered, .by = proposer_of(caller)});
}

void HostBackend::propose_as(const access::Caller& caller, Command command, Decision decision) {
  const std::optional<WaitingShares::Charge> charge = shares_->charge(caller, command);
  if (!charge) return decision(WaitingShares::over_share());
  propose(caller, std::move(command), std::move(decision), *charge);
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

bool HostBackend::is_known_to_be_allowed(const access::Caller& caller, access::Action action,
                                         TenantId tenant) const {
  if (may_always(caller, action)) return true;
  const std::optional<TenantPosition> position = positions_->find(tenant);
  return position && decide_access(caller, action, position->resource()) == access::Verdict::kAllowed;
}

void HostBackend::with_tenant(const CallerPtr& caller, access::Action action, const std::string& name,
                              std::function<void(TenantId)> use, std::function<void(ApiError)> refuse) {
  const auto id = name.empty() ? std::optional(home_tenant(*caller)) : parse_tenant_id(name);
  if (id && is_known_to_be_allowed(*caller, action, *id)) return use(*id);
  if (sheds_read(refuse)) return;
  // Asked of a state that has all writes that were answered: it may be new.
  read([caller, action, name = id ? tenant_name(*id) : name, use = std::move(use),
        refuse = std::move(refuse)](const Observer::View& view) {
    const Answer<const Tenant*> tenant = find_tenant(view.state, *caller, action, name);
    if (!tenant) return refuse(tenant.error());
    use((*tenant)->id);
  });
}

void HostBackend::with_job(const CallerPtr& caller, access::Action action, JobId job,
                           const std::string& tenant, std::function<void(JobId, TenantId)> use,
                           std::function<void(ApiError)> refuse) {
  if (!is_element_name(job) && may_always(*caller, action)) {
    if (tenant.empty()) return use(job, TenantId{});
    return with_tenant(
        caller, access::Action::kSeeTenant, tenant,
        [job, use = std::move(use)](TenantId id) { use(job, id); }, std::move(refuse));
  }
  if (sheds_read(refuse)) return;
  std::shared_ptr<void> place = place_for(*caller, WaitingShares::Kind::kLookUps, refuse);
  if (place == nullptr) return;
  read([caller, action, job, tenant, place = std::move(place), use = std::move(use),
        refuse = std::move(refuse)](const Observer::View& view) {
    const auto found = find_job(view.state, *caller, action, job, tenant);
    if (!found) return refuse(found.error());
    use((*found)->id, (*found)->tenant);
  });
}

std::shared_ptr<void> HostBackend::watch_changes(const CallerPtr& caller, std::optional<uint64_t> since,
                                                 std::function<void(const ChangeNotice&)> changed,
                                                 std::function<void(const WatchBegin&)> begun) {
  // Changes between the two calls are told twice rather than never.
  std::shared_ptr<void> token = feed_->subscribe(caller, std::move(changed));
  read([feed = feed_, caller, since, begun = std::move(begun)](const Observer::View& view) {
    begun(feed->begin(*caller, view.state, since));
  });
  return token;
}

void HostBackend::read_log(const CallerPtr& caller, LogRequest request, Done<LogPiece> done) {
  read([this, caller, request = std::move(request), done = std::move(done)](const Observer::View& view) {
    const auto found =
        find_job(view.state, *caller, access::Action::kReadJobOutput, request.job, request.tenant);
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
