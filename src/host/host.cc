#include "host/host.h"

#include <pthread.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"
#include "base/queue_limits.h"
#include "base/storage_limits.h"
#include "host/core/data_folder.h"
#include "host/core/journal_thread.h"
#include "host/core/system_clock.h"
#include "host/readers/event_log.h"
#include "host/readers/snapshotter.h"
#include "host/shared_host.h"
#include "log/log.h"
#include "log/loop_step.h"

namespace gpusched {
namespace {

/// The exit status after a failed write: what became of the bytes is unknown, only a restart can tell.
constexpr int kExitWriteFailed = 74;
constexpr int kExitStateDiffers = 70;

/// 16 hexadecimal digits.
std::string draw_cluster_name() {
  uint64_t drawn = 0;
  CHECK(getrandom(&drawn, sizeof drawn, 0) == sizeof drawn);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(drawn));
  return text;
}

struct Input {
  struct Propose {
    Proposal proposal;
  };
  struct ProposeEdits {
    EditSet set;
    std::size_t bytes = 0;
  };
  struct Durable {
    Result<Unit> result;
  };
  struct Opened {
    SessionId outer;
    std::shared_ptr<NodeSession> session;
  };
  struct Received {
    SessionId outer;
    v1::AgentMessage message;
    std::function<void()> handled;
  };
  struct Closed {
    SessionId outer;
  };
  struct ReadLog {
    NodeId node;
    v1::ReadLog request;
    std::function<void(Result<v1::LogChunk>)> done;
  };
  struct Reboot {
    NodeId node;
    std::string reason;
    std::function<void(Result<Unit>)> done;
  };
  struct WithNodes {
    std::function<void(NodeHub*)> use;
  };
  struct AddHook {
    std::function<void()> hook;
  };
  struct Touch {
    std::function<void()> alive;
  };
  struct KeepFinished {
    int64_t count = 0;
  };
  std::variant<Propose, ProposeEdits, Durable, Opened, Received, Closed, ReadLog, Reboot, WithNodes, AddHook,
               Touch, KeepFinished>
      what;

  /// For people.
  const char* name() const {
    static constexpr std::array kNames{"a command",
                                       "edits",
                                       "a durable group",
                                       "a node that came",
                                       "a node's message",
                                       "a node that went",
                                       "a log's reading",
                                       "a reboot",
                                       "a look at nodes",
                                       "a hook",
                                       "a sign of being alive",
                                       "the shedding of history"};
    static_assert(kNames.size() == std::variant_size_v<decltype(what)>);
    return kNames[what.index()];
  }
};

std::string clock_concern(Duration gap) {
  const int64_t hours_off = (gap.ns < 0 ? -gap.ns : gap.ns) / hours(1).ns;
  return "the wall clock is " + std::to_string(hours_off) + " hours " + (gap.ns < 0 ? "behind" : "ahead of") +
         " the journal's time and is ignored: time advances without it. If the clock is wrong, set it "
         "(timedatectl set-ntp true); if it is right, stop the scheduler, run `gpu-scheduler accept-clock`, "
         "and start it again";
}

class HostImpl final : public Host {
 public:
  HostImpl(std::shared_ptr<FileJournal> journal, std::unique_ptr<SnapshotStore> snapshots,
           Recovered recovered, RecoveryReport report, const HostOptions& options,
           std::shared_ptr<SharedJournal> shared)
      : data_dir_(options.data_dir),
        segment_bytes_(static_cast<uint64_t>(options.segment_bytes)),
        journal_(std::move(journal)),
        snapshots_(std::move(snapshots)),
        report_(std::move(report)),
        observer_(recovered.take_copy(), recovered.position),
        forecasts_(observer_, clock_, options.tuning, options.forecasts),
        shared_(std::move(shared)),
        writer_(open_writer()),
        snapshotter_(*snapshots_, clock_,
                     {.every_bytes = static_cast<uint64_t>(options.snapshot_bytes),
                      .segment_bytes = static_cast<uint64_t>(options.segment_bytes),
                      .bytes_since = report_.replayed_bytes,
                      .newest_position = report_.snapshot_position},
                     snapshot_hooks()),
        core_(std::move(recovered.state), recovered.position, options.tuning, clock_, *writer_, observer_,
              [](const Error& error) { write_failed(error); }),
        watch_("host", options.tuning.step_max) {
    telemetry_ = core_.nodes().telemetry();
    forecasts_.on_moves([this](MoveJobs moves) { propose(std::move(moves), [](const Result<Decided>&) {}); });
    observer_.add_listener([this](const Observer::View& view, const Changes& changes) {
      event_log_.on_changes(view, changes);
      snapshotter_.on_changes(view, changes);
    });
    observer_.on_difference([](const std::string& what) { state_differs(what); });
    EngineConfig wanted = options.engine;
    name_cluster(core_.state(), clock_.wall(), draw_cluster_name(), wanted);
    core_.want(std::move(wanted));
  }
  ~HostImpl() override { stop(); }

  void start() {
    thread_ = std::thread([this] { run(); });
    snapshotter_.start();
  }

  using Host::propose;
  void propose(Proposal proposal) override {
    proposal.bytes = encoded_bytes(proposal);
    push({Input::Propose{std::move(proposal)}});
  }
  void propose(EditSet set) override {
    const std::size_t bytes = encoded_bytes(set);
    push({Input::ProposeEdits{std::move(set), bytes}});
  }
  void on_group_done(std::function<void()> hook) override { push({Input::AddHook{std::move(hook)}}); }
  Observer& observer() override { return observer_; }
  ForecastService& forecasts() override { return forecasts_; }

  SessionId node_opened(std::shared_ptr<NodeSession> session) override {
    const SessionId outer = next_session_.fetch_add(1);
    push({Input::Opened{outer, std::move(session)}});
    return outer;
  }
  void node_received(SessionId session, v1::AgentMessage message, std::function<void()> handled) override {
    push({Input::Received{session, std::move(message), std::move(handled)}});
  }
  void node_closed(SessionId session) override { push({Input::Closed{session}}); }
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) override {
    push({Input::ReadLog{node, std::move(request), std::move(done)}});
  }
  void reboot_node(NodeId node, std::string reason, std::function<void(Result<Unit>)> done) override {
    push({Input::Reboot{node, std::move(reason), std::move(done)}});
  }
  void touch(std::function<void()> alive) override { push({Input::Touch{std::move(alive)}}); }
  void with_nodes(std::function<void(NodeHub*)> use) override { push({Input::WithNodes{std::move(use)}}); }
  std::shared_ptr<TelemetryTable> telemetry() const override { return telemetry_; }

  HostHealth health() const override;
  HostStats stats() const override {
    const std::lock_guard lock(stats_mutex_);
    return stats_;
  }
  const RecoveryReport& recovery() const override { return report_; }
  void stop() override;

 private:
  [[noreturn]] static void write_failed(const Error& error) {
    log_event(LogLevel::kError, "journal", "write_failed", {}, {{"error", error.message}});
    log_flush();
    std::fprintf(stderr,
                 "gpu-scheduler: writing the journal failed: %s; exiting, because it is unknown which "
                 "records are durable\n",
                 error.message.c_str());
    std::_Exit(kExitWriteFailed);
  }

  [[noreturn]] static void state_differs(const std::string& what) {
    log_event(LogLevel::kError, "scheduler", "state_differs", {}, {{"error", what}});
    log_flush();
    std::fprintf(stderr,
                 "gpu-scheduler: %s; exiting, because one of the two is wrong: the next start rebuilds both "
                 "from the journal. Report this, and check the machine's memory\n",
                 what.c_str());
    std::_Exit(kExitStateDiffers);
  }

  void push(Input&& input) {
    bool sleeping = false;
    bool refused = false;
    {
      const std::lock_guard lock(mutex_);
      if (!ended_ && has_room_for(input)) {
        inbox_.push_back(std::move(input));
        sleeping = std::exchange(sleeping_, false);
      } else {
        refused = true;
      }
    }
    if (refused) return refuse(input);
    if (sleeping) wake_.notify_one();
  }
  /// Counts what clients ask. Inputs of the host's own parts always have room: each gives a bounded number of
  /// them at a time.
  bool has_room_for(const Input& input) {
    const auto* propose = std::get_if<Input::Propose>(&input.what);
    const auto* edits = std::get_if<Input::ProposeEdits>(&input.what);
    const bool asks = propose != nullptr || edits != nullptr ||
                      std::holds_alternative<Input::ReadLog>(input.what) ||
                      std::holds_alternative<Input::Reboot>(input.what);
    if (!asks) return true;
    std::size_t bytes = edits != nullptr ? edits->bytes : 0;
    if (propose != nullptr) bytes = propose->proposal.bytes;
    if (asked_count_ + core_count_ >= limits::kRequestsWaitingMax ||
        asked_bytes_ + core_bytes_ + bytes > 2 * limits::kProposalBytesMax)
      return false;
    asked_count_ += 1;
    asked_bytes_ += bytes;
    return true;
  }
  void refuse(Input& input) {
    bool ended = false;
    {
      const std::lock_guard lock(mutex_);
      ended = ended_;
    }
    drop(input, ended ? shutting_down() : overloaded());
  }
  /// Nobody decides it; who asks is told so.
  static void drop(Input& input, const Error& error) {
    std::visit(Overloaded{
                   [&](Input::Propose& propose) {
                     if (propose.proposal.decision) propose.proposal.decision(error);
                   },
                   [&](Input::ProposeEdits& edits) { edits.set.decided(error); },
                   [&](Input::ReadLog& log) { log.done(error); },
                   [&](Input::Reboot& reboot) { reboot.done(error); },
                   [&](Input::WithNodes& with) { with.use(nullptr); },
                   Ignores<Input::Durable, Input::Opened, Input::Received, Input::Closed, Input::AddHook,
                           Input::Touch, Input::KeepFinished>{},
               },
               input.what);
  }

  std::unique_ptr<JournalWriter> open_writer() {
    auto done = [this](Result<Unit> result) { push({Input::Durable{std::move(result)}}); };
    if (shared_ != nullptr) return shared_->writer(std::move(done));
    return std::make_unique<JournalThread>(*journal_, std::move(done));
  }
  void run();
  void turn();
  void take(Input& input);
  void publish_stats();
  Snapshotter::Hooks snapshot_hooks();
  /// Forgets finished jobs before their time if that makes the room that is needed.
  void shed_history(const State& state, uint64_t needed, uint64_t snapshot_bytes);
  /// Why only the journal's reserve is left.
  std::string space_reason() const;
  std::optional<uint64_t> free_bytes() const;

  SystemClock clock_;
  const std::string data_dir_;
  const uint64_t segment_bytes_;
  std::shared_ptr<FileJournal> journal_;
  std::unique_ptr<SnapshotStore> snapshots_;
  RecoveryReport report_;
  EventLog event_log_;
  Observer observer_;
  ForecastService forecasts_;
  const std::shared_ptr<SharedJournal> shared_;  ///< Null: the journal is our own.
  const std::unique_ptr<JournalWriter> writer_;
  Snapshotter snapshotter_;
  HostCore core_;
  const LoopWatch watch_;
  std::shared_ptr<TelemetryTable> telemetry_;
  std::map<SessionId, SessionId> sessions_;  ///< The doors' numbers to the hub's.
  std::atomic<SessionId> next_session_{1};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Input> inbox_;
  std::size_t asked_count_ = 0;  ///< Clients' inputs in the inbox.
  std::size_t asked_bytes_ = 0;
  std::size_t core_count_ = 0;  ///< Proposals that were taken from it and are not decided.
  std::size_t core_bytes_ = 0;
  bool sleeping_ = false;
  bool stopping_ = false;
  bool ended_ = false;
  bool stopped_ = false;

  std::atomic<bool> accepts_{true};
  mutable std::mutex stats_mutex_;
  HostStats stats_;
  Duration clock_gap_;
  bool believes_clock_ = true;
  std::string config_trouble_;
  std::string hold_reason_;  ///< Why new work waits for room although the journal has some.
  std::thread thread_;
};

void HostImpl::take(Input& input) {
  std::visit(
      Overloaded{
          [&](Input::Propose& propose) { core_.propose(std::move(propose.proposal)); },
          [&](Input::ProposeEdits& edits) { core_.propose(std::move(edits.set)); },
          [&](Input::Durable& durable) { core_.on_durable(durable.result); },
          [&](Input::Opened& opened) {
            sessions_[opened.outer] = core_.nodes().open(std::move(opened.session));
          },
          [&](Input::Received& received) {
            const auto it = sessions_.find(received.outer);
            if (it != sessions_.end()) core_.nodes().receive(it->second, received.message);
            if (received.handled) received.handled();
          },
          [&](Input::Closed& closed) {
            const auto it = sessions_.find(closed.outer);
            if (it == sessions_.end()) return;
            core_.nodes().closed(it->second);
            sessions_.erase(it);
          },
          [&](Input::ReadLog& log) {
            core_.nodes().read_log(log.node, std::move(log.request), std::move(log.done));
          },
          [&](Input::Reboot& reboot) {
            if (core_.nodes().reboot(reboot.node, reboot.reason)) return reboot.done(Unit{});
            reboot.done(Error{.code = ErrorCode::kUnavailable,
                              .message = "the node's agent is not connected; reboot the machine by hand"});
          },
          [&](Input::WithNodes& with) { with.use(&core_.nodes()); },
          [&](Input::AddHook& add) { core_.on_group_done(std::move(add.hook)); },
          [&](Input::Touch& touched) { touched.alive(); },
          [&](Input::KeepFinished& keep) { core_.keep_finished(keep.count); },
      },
      input.what);
}

void HostImpl::run() {
  ::pthread_setname_np(::pthread_self(), "host-loop");
  std::vector<Input> taken;
  turn();  // Records that a start has to write wait for nobody.
  while (true) {
    {
      std::unique_lock lock(mutex_);
      core_count_ = core_.proposals_waiting();
      core_bytes_ = core_.proposal_bytes_waiting();
      if (inbox_.empty()) {
        if (stopping_ && !core_.in_flight()) {
          ended_ = true;
          lock.unlock();
          core_.close();  // Open proposals are refused: those who are told so may ask us something else.
          return;
        }
        sleeping_ = true;
        const Time next = core_.next_wakeup();
        const auto awake = [this] { return !inbox_.empty() || (stopping_ && !core_.in_flight()); };
        if (next == kNever) {
          wake_.wait(lock, awake);
        } else {
          const std::chrono::nanoseconds wait(std::max<int64_t>((next - clock_.monotonic()).ns, 0));
          wake_.wait_for(lock, wait, awake);
        }
        sleeping_ = false;
      }
      taken.swap(inbox_);
      core_count_ += std::exchange(asked_count_, 0);
      core_bytes_ += std::exchange(asked_bytes_, 0);
    }
    for (Input& input : taken) {
      const LoopStep step(watch_, input.name());
      take(input);
    }
    taken.clear();
    turn();
  }
}

void HostImpl::turn() {
  const LoopStep step(watch_, "a turn");
  core_.turn();
  publish_stats();
}

void HostImpl::publish_stats() {
  const bool accepts = core_.accepts_new_work();
  if (accepts != accepts_.load(std::memory_order_relaxed)) {
    accepts_.store(accepts, std::memory_order_relaxed);
    log_event(accepts ? LogLevel::kInfo : LogLevel::kError, "journal", accepts ? "space_open" : "space_full",
              {}, {{"reason", space_reason()}});
  }
  const bool believes = core_.stamps().believes();
  const std::lock_guard lock(stats_mutex_);
  stats_ = core_.stats();
  clock_gap_ = core_.stamps().gap();
  config_trouble_ = core_.config_trouble();
  if (std::exchange(believes_clock_, believes) == believes) return;
  log_event(
      believes ? LogLevel::kInfo : LogLevel::kError, "scheduler",
      believes ? "clock_believed" : "clock_not_believed", {},
      {{"ahead_seconds", clock_gap_.ms() / 1'000}, {"means", believes ? "" : clock_concern(clock_gap_)}});
}

std::string HostImpl::space_reason() const {
  const std::string reason = writer_->space_reason();
  if (!reason.empty()) return reason;
  const std::lock_guard lock(stats_mutex_);
  return hold_reason_;
}

std::optional<uint64_t> HostImpl::free_bytes() const {
  const std::optional<DiskRoom> room = posix_disk().room(data_dir_);
  return room ? std::optional<uint64_t>(room->free_bytes) : std::nullopt;
}

Snapshotter::Hooks HostImpl::snapshot_hooks() {
  return {
      .committed = [this](uint64_t position) { writer_->compact_before(position); },
      .ask = [this] { observer_.read(0, [this](const Observer::View& view) { snapshotter_.look(view); }); },
      .full = [this] { return journal_->space() == JournalSpace::kReserveOnly; },
      .free_bytes = [this] { return free_bytes().value_or(SnapshotPace::kUnknown); },
      .hold =
          [this](JournalSpace space, const std::string& reason) {
            {
              const std::lock_guard lock(stats_mutex_);
              hold_reason_ = space == JournalSpace::kOpen ? "" : reason;
            }
            writer_->hold(space);
            touch([] {});  // The loop looks at the space in its turn.
          },
      .press = [this] { propose(AdvanceTime{}, [](const Result<Decided>&) {}); },
      .shed =
          [this](uint64_t needed, uint64_t bytes) {
            observer_.read(0, [this, needed, bytes](const Observer::View& view) {
              shed_history(view.state, needed, bytes);
            });
          }};
}

// Two snapshots are kept, and room for a third.
void HostImpl::shed_history(const State& state, uint64_t needed, uint64_t snapshot_bytes) {
  const auto finished = static_cast<double>(state.finished.size());
  const double to_gain = 3.0 * static_cast<double>(snapshot_bytes) * finished;
  if (finished == 0 || to_gain < static_cast<double>(needed) * static_cast<double>(state.jobs.size())) return;
  const auto kept = static_cast<int64_t>(state.finished.size() / 2);
  log_event(LogLevel::kWarning, "journal", "history_shed", {},
            {{"finished_jobs_kept", kept},
             {"bytes_needed", needed},
             {"means",
              "the volume is too small for the state: the older half of the finished jobs is removed early, "
              "so that new work can be accepted"}});
  push({Input::KeepFinished{kept}});
}

HostHealth HostImpl::health() const {
  HostHealth health{.serving = accepts_.load(std::memory_order_relaxed),
                    .snapshots = snapshotter_.stats(),
                    .refused_snapshots = report_.refused_snapshots.size(),
                    .free_bytes = free_bytes()};
  if (shared_ != nullptr) health.concerns = shared_->concerns();
  health.journal_syncs = writer_->sync_count();
  health.journal_sync_time = writer_->sync_time();
  if (health.snapshots.last_at.valid()) health.snapshot_age = clock_.monotonic() - health.snapshots.last_at;
  {
    const std::lock_guard lock(stats_mutex_);
    health.clock_gap = clock_gap_;
    if (!config_trouble_.empty())
      health.concerns.push_back("the configuration is not in effect, because the engine rejected it: " +
                                config_trouble_);
    if (!believes_clock_) health.concerns.push_back(clock_concern(clock_gap_));
  }
  if (!health.serving) health.reason = "the disk is full: " + space_reason();
  if (!health.snapshots.trouble.empty())
    health.concerns.push_back("the latest snapshot could not be written: " + health.snapshots.trouble);
  if (health.free_bytes && *health.free_bytes < 4 * segment_bytes_) {
    health.concerns.push_back("the volume of " + data_dir_ + " has " +
                              std::to_string(*health.free_bytes >> 20) +
                              " MB left; free space before new work has to be refused");
  }
  return health;
}

void HostImpl::stop() {
  if (stopped_) return;
  stopped_ = true;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  writer_->hand_over();  // Before the snapshot, which may take long.
  // Inputs that came while the loop ended are refused, not forgotten.
  for (Input& input : inbox_) drop(input, shutting_down());
  inbox_.clear();
  forecasts_.stop();
  observer_.read(0, [this](const Observer::View& view) { snapshotter_.take(view); });
  observer_.stop();
  snapshotter_.stop();
  const Result<Unit> sealed = writer_->stop(true);
  if (!sealed.ok())
    log_event(LogLevel::kError, "journal", "seal_failed", {}, {{"error", sealed.error().message}});
}

}  // namespace

Result<std::unique_ptr<Host>> Host::open(const HostOptions& options) {
  return open_shared_host(options, nullptr);
}

Result<std::unique_ptr<Host>> open_shared_host(const HostOptions& options,
                                               std::shared_ptr<SharedJournal> journal) {
  Result<DataFolder> folder = open_data_folder(options, journal.get());
  if (!folder.ok()) return folder.error();
  auto host = std::make_unique<HostImpl>(std::move(folder->journal), std::move(folder->snapshots),
                                         std::move(folder->recovered), std::move(folder->report), options,
                                         std::move(journal));
  host->start();
  return std::unique_ptr<Host>(std::move(host));
}

}  // namespace gpusched
