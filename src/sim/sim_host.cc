#include "sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "codec/group.h"
#include "host/readers/snapshot_image.h"

namespace gpusched::sim {
namespace {

constexpr const char* kDataDir = "/data";
constexpr const char* kJournalDir = "/data/journal";
constexpr const char* kSnapshotDir = "/data/snapshots";
constexpr uint64_t kStoreId = 0x5157'0001;
/// How often a full disk is asked again, as by the journal's own thread.
constexpr Duration kSpaceRetry = seconds(1);

std::string names_in(const JournalRecord& record) {
  std::string names;
  const Result<CommandGroup> group = decode_group(record.payload);
  if (!group.ok()) return names;
  for (const Command& command : group->commands) {
    if (!names.empty()) names += ' ';
    names += name_of(command);
  }
  return names;
}

JournalRecord record_of(const DurableGroup& group) {
  return {.position = group.position,
          .term = 1,
          .first_sequence = group.first_sequence,
          .command_count = group.command_count,
          .payload = group.payload};
}

}  // namespace

/// One scheduler process.
struct SimHost::Life final : public GroupWriter {
  explicit Life(SimHost& owner) : host(owner) {}
  void start(DurableGroup group) override { host.write(std::move(group)); }
  std::size_t payload_max() const override { return journal->payload_max(); }
  JournalSpace space() const override {
    return std::max(pace ? pace->space() : JournalSpace::kOpen, journal->space());
  }
  bool full() const { return journal->space() == JournalSpace::kReserveOnly; }

  SimHost& host;
  uint64_t number = 0;
  std::unique_ptr<FileJournal> journal;
  std::unique_ptr<SnapshotStore> snapshots;
  std::shared_ptr<SnapshotWriter> snapshot;  ///< Being written.
  bool spoilt = false;                       ///< The snapshot being written is spoilt.
  RecoveryReport report;
  std::optional<SnapshotPace> pace;
  bool watches_volume = false;
  std::unique_ptr<Observer> observer;
  std::unique_ptr<HostCore> core;
  std::vector<std::function<void(Life&)>> inbox;
  std::map<uint64_t, SessionId> sessions;
  std::optional<Error> fatal;
  uint64_t unanswered = 0;  ///< Proposals.
  bool stopping = false;
  bool run_is_near = false;
  bool retries_space = false;
  Time wake_at = kNever;
  Time paused_until;
};

SimHost::SimHost(Context& context, HostSettings settings)
    : context_(context),
      settings_(settings),
      clock_(context.schedule),
      disk_(context, settings.disk_seed, settings.volume_bytes) {}

SimHost::~SimHost() = default;

bool SimHost::has_room() const { return life_ != nullptr && life_->space() == JournalSpace::kOpen; }
const HostCore* SimHost::core() const { return life_ == nullptr ? nullptr : life_->core.get(); }
HostStory SimHost::story() const {
  HostStory story = story_;
  story.disk = disk_.counts();
  return story;
}
uint64_t SimHost::position() const { return life_->core->position(); }

void SimHost::with_observer(const Observer::Query& query) {
  if (life_ != nullptr) life_->observer->read(0, query);
}

void SimHost::tell_auditor(const JournalRecord& record) {
  context_.trace.note("durable", {record.position, record.first_sequence, record.command_count},
                      context_.trace.prints() ? names_in(record) : std::string());
  context_.auditor.on_durable(record);
}

Result<Unit> SimHost::feed_auditor(Journal& journal) {
  return journal.read_from(journal.first_position(), [this](const JournalRecord& record) -> Result<Unit> {
    tell_auditor(record);
    return Unit{};
  });
}

/// Does the same as Host::open, in its order.
Result<Recovered> SimHost::open_folder(Life& life, int64_t level) {
  Disk& disk = disk_.process();
  Result<Unit> made = disk.make_dir(kDataDir);
  if (made) made = disk.sync_dir(folder_above(kDataDir));
  if (!made) return made.error();
  Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(kJournalDir, {.segment_bytes = settings_.segment_bytes,
                                      .reserve_bytes = 1,
                                      .background = false,
                                      .disk = &disk,
                                      .store_id = kStoreId,
                                      .needed_from = SnapshotStore::needed_from(disk, kSnapshotDir)});
  if (!journal) return journal.error();
  life.journal = std::move(*journal);
  Result<std::unique_ptr<SnapshotStore>> snapshots =
      SnapshotStore::open(kSnapshotDir, &disk, life.journal->store_id());
  if (!snapshots) return snapshots.error();
  life.snapshots = std::move(*snapshots);
  return recover(*life.journal, *life.snapshots, life.report, level);
}

void SimHost::start() {
  if (life_ != nullptr || story_.lied) return;
  if (std::exchange(older_next_, false)) try_older();
  if (story_.lied) return;
  auto life = std::make_unique<Life>(*this);
  life->number = ++starts_;
  disk_.begin_process();
  if (context_.on(Fault::kHostKill) && disk_.prng().chance(150)) disk_.arm_death();
  const LossByLies loss = disk_.loss_by_lies(kJournalDir, kStoreId);
  Result<Recovered> recovered = open_folder(*life);
  if (recovered && !disk_.process_is_dead()) {
    const bool less = recovered->position < context_.auditor.position();
    if (less && loss.explains_an_end_at(recovered->position)) return give_up();
    const Result<Unit> fed = feed_auditor(*life->journal);
    if (!fed) recovered = fed.error();
  }
  if (disk_.process_is_dead()) {
    story_.deaths_in_calls += 1;
    life.reset();
    return gone();
  }
  if (!recovered) {
    disk_.kill();
    life.reset();
    return refused(recovered.error());
  }
  disk_.note_durable(recovered->position);
  context_.auditor.on_recovered(recovered->state, recovered->position);
  context_.trace.note("host-starts", {starts_, recovered->position, recovered->state.digest.value()});
  begin(std::move(life), std::move(*recovered));
}

void SimHost::begin(std::unique_ptr<Life> life, Recovered recovered) {
  life->observer = std::make_unique<Observer>(recovered.state.clone(), recovered.position, false);
  life->observer->add_listener(
      [this](const Observer::View& view, const Changes& changes) { take_snapshot(view, changes); });
  life->observer->on_difference([this](const std::string& what) { context_.auditor.fail(what); });
  Life& world = *life;
  life->core = std::make_unique<HostCore>(std::move(recovered.state), recovered.position, settings_.tuning,
                                          clock_, *life, *life->observer,
                                          [&world](const Error& error) { world.fatal = error; });
  EngineConfig wanted = settings_.engine;
  if (wanted.feature_level >= 6)
    name_cluster(life->core->state(), clock_.wall(), "cluster-" + std::to_string(starts_), wanted);
  life->core->want(std::move(wanted));
  life->pace.emplace(SnapshotPace::Options{.every_bytes = settings_.snapshot_bytes,
                                           .segment_bytes = settings_.segment_bytes,
                                           .bytes_since = life->report.replayed_bytes,
                                           .newest_position = life->report.snapshot_position});
  life_ = std::move(life);
  watch_space();
  watch_volume();
  run_soon(Duration{});
}

void SimHost::refused(const Error& error) {
  context_.trace.note("start-refused", {static_cast<uint64_t>(error.code)}, error.message);
  story_.refused_starts += 1;
  if (!disk_.broke_in_this_life() && !disk_.may_be_full(error)) {
    if (disk_.only_decayed_in(kSnapshotDir)) {
      return context_.auditor.fail("a start is refused although a snapshot and the journal are whole: " +
                                   error.message);
    }
    if (disk_.is_damaged()) {
      disk_.repair();
      story_.repairs += 1;
    } else if (disk_.lied_from()) {
      return give_up();
    } else {
      return context_.auditor.fail("a start is refused: " + error.message);
    }
  }
  disk_.bury(/*power=*/false);
  if (died_) died_();
}

void SimHost::give_up() {
  context_.trace.note("device-lied", {});
  disk_.kill();
  story_.lied = true;
}

void SimHost::crash(bool power) {
  if (life_ == nullptr) return;
  if (disk_.prng().chance(500)) return die(power);
  disk_.arm_death();
  power_goes_ = power;
  constexpr Duration kAtLast = seconds(2);  // When the disk is not used any more.
  context_.schedule.in(kAtLast, [this, number = life_->number, power] {
    if (life_ != nullptr && life_->number == number) die(power);
  });
}

void SimHost::stop() {
  if (life_ == nullptr || life_->stopping) return;
  life_->stopping = true;
  run_soon(Duration{});
}

// Does the same as Host::stop.
void SimHost::end_cleanly() {
  context_.trace.note("host-stops", {});
  life_->core->close();
  if (life_->unanswered > 0)
    context_.auditor.fail(std::to_string(life_->unanswered) + " proposals have no answer when it stopped");
  life_->observer->read(0, [this](const Observer::View& view) {
    if (life_->pace->has_news()) take_snapshot(view);
  });
  if (life_->snapshot != nullptr) commit_snapshot(life_->core->position());
  if (life_ == nullptr || died_in_call()) return;
  (void)life_->journal->seal().ok();  // A start needs none.
  if (died_in_call()) return;
  stops_ = true;
  die(false);
}

void SimHost::die(bool power) {
  context_.trace.note("host-dies", {power ? 1u : 0u});
  power_goes_ = power;
  // The disk is settled before the process's objects tidy up behind themselves.
  disk_.kill();
  life_.reset();
  gone();
}

void SimHost::gone() {
  const bool power = std::exchange(power_goes_, false);
  const bool in_order = std::exchange(stops_, false);
  (power ? story_.power_losses : in_order ? story_.clean_stops : story_.kills) += 1;
  disk_.bury(power);
  if (power) clock_.reboot();
  if (std::exchange(off_when_down_, false)) clock_.step_wall(clock_off_);
  if (died_) died_();
  // Files that a killed process left are put to the test while they are young.
  if (power || !context_.on(Fault::kHostPower) || !disk_.prng().chance(250)) return;
  context_.schedule.in(milliseconds(disk_.prng().between(100, 15'000)), [this] {
    if (context_.on(Fault::kHostPower)) crash(true);
  });
}

bool SimHost::died_in_call() {
  if (!disk_.process_is_dead()) return false;
  story_.deaths_in_calls += 1;
  die(power_goes_);
  return true;
}

void SimHost::check_folder() {
  if (story_.lied) return;
  const uint64_t told = context_.auditor.position();
  disk_.kill();
  life_.reset();
  disk_.bury(/*power=*/true);
  disk_.begin_process();
  {
    Life life(*this);
    const Result<Recovered> recovered = open_folder(life);
    if (!recovered) {
      context_.auditor.fail("the last start is refused: " + recovered.error().message);
    } else if (recovered->position != told) {
      context_.auditor.fail("the journal ends at record " + std::to_string(recovered->position) +
                            ", and record " + std::to_string(told) + " was durable");
    } else {
      context_.auditor.on_recovered(recovered->state, recovered->position);
    }
  }
  disk_.kill();
}

// The loop: what came meanwhile is taken at once.

void SimHost::input(std::function<void(Life&)> given) {
  if (life_ == nullptr) return;
  life_->inbox.push_back(std::move(given));
  run_soon(context_.some_us(1, 200));
}

void SimHost::run_soon(Duration delay) {
  if (std::exchange(life_->run_is_near, true)) return;
  context_.schedule.in(delay, [this, number = life_->number] {
    if (life_ != nullptr && life_->number == number) run();
  });
}

void SimHost::run() {
  Life& life = *life_;
  life.run_is_near = false;
  if (life.paused_until > context_.schedule.now())
    return run_soon(life.paused_until - context_.schedule.now());
  for (const auto& given : std::exchange(life.inbox, {})) {
    given(life);
    if (life.fatal) {
      // Only a disk that failed may end a scheduler.
      if (life.fatal->code != ErrorCode::kOutcomeUnknown && life.fatal->code != ErrorCode::kIo)
        context_.auditor.fail("the scheduler ended itself: " + life.fatal->message);
      return die(power_goes_);
    }
    if (died_in_call()) return;
  }
  life.core->turn();
  if (died_in_call()) return;
  context_.trace.mix(life.core->state().digest.value());
  if (life.stopping && life.inbox.empty() && !life.core->in_flight()) return end_cleanly();
  wake_at(
      std::max(clock_.to_schedule(life.core->next_wakeup()), context_.schedule.now() + microseconds(100)));
}

void SimHost::wake_at(Time when) {
  Life& life = *life_;
  if (when >= life.wake_at && life.wake_at > context_.schedule.now()) return;
  life.wake_at = when;
  context_.schedule.at(when, [this, number = life.number, when] {
    if (life_ == nullptr || life_->number != number || life_->wake_at != when) return;
    life_->wake_at = kNever;
    run_soon(Duration{});
  });
}

void SimHost::write(DurableGroup group) {
  auto shared = std::make_shared<const DurableGroup>(std::move(group));
  context_.schedule.in(context_.some_us(5, 50), [this, number = life_->number, shared] {
    if (life_ == nullptr || life_->number != number) return;
    const Result<Unit> appended = life_->journal->append(record_of(*shared));
    if (died_in_call()) return;
    if (!appended) return input([appended](Life& life) { life.core->on_durable(appended); });
    context_.schedule.in(context_.some_delay(), [this, number, shared] {
      if (life_ != nullptr && life_->number == number) sync(*shared);
    });
  });
}

void SimHost::sync(const DurableGroup& group) {
  const Result<Unit> synced = life_->journal->sync();
  if (died_in_call()) return;
  if (synced) {
    disk_.note_durable(group.position);
    tell_auditor(record_of(group));
  }
  input([synced](Life& life) { life.core->on_durable(synced); });
  watch_space();
}

void SimHost::take_snapshot(const Observer::View& view, const Changes& changes) {
  life_->pace->note(changes.payload_bytes);
  if (life_->pace->wants_sight()) {
    life_->pace->see(disk_.free_bytes());
    watch_volume();
  }
  if (life_->pace->is_due(context_.schedule.now(), life_->full())) take_snapshot(view);
}

void SimHost::take_snapshot(const Observer::View& view) {
  Life& life = *life_;
  if (life.snapshot != nullptr) return;
  SnapshotImage image = image_of(view.state, view.position);
  life.pace->begun(image.bytes);
  life.spoilt = spoilt_ > 0;
  if (life.spoilt) {
    spoilt_ -= 1;
    std::string& piece = image.pieces[disk_.prng().below(image.pieces.size())];
    piece[disk_.prng().below(piece.size())] ^= static_cast<char>(1 << disk_.prng().below(8));
  }
  Result<std::unique_ptr<SnapshotWriter>> writer = life.snapshots->begin(image.info);
  if (!writer) return snapshot_failed(writer.error());
  for (const std::string& piece : image.pieces) {
    const Result<Unit> written = (*writer)->write(piece);
    if (!written) return snapshot_failed(written.error());
  }
  life.snapshot = std::move(*writer);
  context_.schedule.in(context_.some_ms(1, 200), [this, number = life.number, position = view.position] {
    if (life_ != nullptr && life_->number == number) commit_snapshot(position);
  });
}

void SimHost::commit_snapshot(uint64_t position) {
  std::shared_ptr<SnapshotWriter> written = std::exchange(life_->snapshot, nullptr);
  const Result<Unit> committed = life_->snapshots->commit(*written, prove_snapshot);
  written.reset();  // It uses the process's disk.
  if (died_in_call()) return;
  if (!committed) return snapshot_failed(committed.error());
  ++snapshots_taken_;
  const Result<Unit> forgotten = forget_older();
  if (died_in_call()) return;
  life_->pace->proven(context_.schedule.now(), life_->full(), position);
  if (forgotten) return;
  context_.trace.note("not-forgotten", {}, forgotten.error().message);
  if (!disk_.broke_in_this_life() && !disk_.is_damaged())
    context_.auditor.fail("the journal is not shortened without reason: " + forgotten.error().message);
}

Result<Unit> SimHost::forget_older() {
  const Result<Unit> pruned = life_->snapshots->prune();
  if (!pruned) return pruned;
  const Result<uint64_t> position = life_->snapshots->compactable_position();
  if (!position) return position.error();
  context_.trace.note("snapshot", {*position});
  if (*position == 0) return Unit{};
  life_->pace->compacted(*position);
  return life_->journal->compact_before(*position + 1);
}

void SimHost::snapshot_failed(const Error& error) {
  context_.trace.note("snapshot-fails", {static_cast<uint64_t>(error.code)}, error.message);
  (life_->spoilt ? story_.unprovable_snapshots : story_.failed_snapshots) += 1;
  life_->pace->failed(context_.schedule.now(), error.code == ErrorCode::kStorageFull);
  watch_volume();
  const bool explained = life_->spoilt || disk_.broke_in_this_life() || disk_.may_be_full(error);
  if (!explained && !disk_.is_damaged() && !disk_.process_is_dead()) {
    context_.auditor.fail("a snapshot fails without reason: " + error.message);
  }
}

// Does the work of the snapshotter's own thread each second, as long as it can matter.
void SimHost::watch_volume() {
  if (life_ == nullptr || life_->watches_volume) return;
  if (!disk_.is_bounded() && !life_->pace->holds() && life_->pace->failures() == 0) return;
  life_->watches_volume = true;
  context_.schedule.in(kSpaceRetry, [this, number = life_->number] {
    if (life_ == nullptr || life_->number != number) return;
    life_->watches_volume = false;
    look_at_volume();
    if (life_ != nullptr) watch_volume();
  });
}

void SimHost::look_at_volume() {
  Life& life = *life_;
  if (life.snapshot != nullptr) return;
  const SnapshotPace::Advice advice =
      life.pace->look(context_.schedule.now(), life.full(), disk_.free_bytes());
  run_soon(Duration{});  // It looks at the space in its turn.
  if (advice.press) life.core->propose(AdvanceTime{}, [](const Result<Decided>&) {});
  if (advice.missing_bytes > 0) shed(advice.missing_bytes);
  if (!advice.take) return;
  life.observer->read(0, [this](const Observer::View& view) { take_snapshot(view); });
  (void)died_in_call();
}

void SimHost::shed(uint64_t missing) {
  const State& state = life_->core->state();
  const uint64_t finished = state.finished.size();
  if (finished == 0 || 3 * life_->pace->last_bytes() * finished < missing * state.jobs.size()) return;
  context_.trace.note("history-shed", {finished / 2});
  story_.sheddings += 1;
  life_->core->keep_finished(static_cast<int64_t>(finished / 2));
}

void SimHost::watch_space() {
  if (life_->journal->space() == JournalSpace::kOpen || std::exchange(life_->retries_space, true)) return;
  context_.schedule.in(kSpaceRetry, [this, number = life_->number] {
    if (life_ == nullptr || life_->number != number) return;
    life_->retries_space = false;
    life_->journal->retry_space();
    if (died_in_call()) return;
    watch_space();
  });
}

// The doors.

void SimHost::opened(uint64_t link, std::shared_ptr<NodeSession> session) {
  input([link, session = std::move(session)](Life& life) {
    life.sessions[link] = life.core->nodes().open(session);
  });
}

void SimHost::received(uint64_t link, std::shared_ptr<const v1::AgentMessage> message) {
  input([this, link, message = std::move(message)](Life& life) {
    const auto session = life.sessions.find(link);
    if (session == life.sessions.end()) return;
    context_.auditor.on_received(link, *message);
    life.core->nodes().receive(session->second, *message);
  });
}

void SimHost::closed(uint64_t link) {
  input([link](Life& life) {
    const auto session = life.sessions.find(link);
    if (session == life.sessions.end()) return;
    life.core->nodes().closed(session->second);
    life.sessions.erase(session);
  });
}

void SimHost::propose(Command command, Decision decision) {
  input([command = std::move(command), decision = std::move(decision)](Life& life) {
    // Some by a caller. Not drawn, so that no draw moves.
    std::optional<Proposer> by;
    if (life.unanswered % 3 != 0) by = {.kind = CallerKind::kService, .name = "ci", .key_id = "key-3"};
    const auto answered = [&life, decision](const Result<Decided>& decided) {
      life.unanswered -= 1;
      decision(decided);
    };
    life.unanswered += 1;
    life.core->propose(Proposal{.command = command, .decision = answered, .by = std::move(by)});
  });
}

void SimHost::read(uint64_t sequence, Observer::Query query) {
  life_->observer->read(sequence, std::move(query));
}

// Failures.

void SimHost::wrong_clock(Duration by, bool when_down) {
  CHECK(!clock_is_wrong());
  context_.trace.note("clock-is-wrong", {static_cast<uint64_t>(by.ms())});
  story_.clock_jumps += 1;
  clock_off_ = by;
  off_when_down_ = when_down;
  if (!when_down) clock_.step_wall(by);
}

void SimHost::right_clock() {
  if (!clock_is_wrong()) return;
  if (!std::exchange(off_when_down_, false)) clock_.step_wall(Duration{} - clock_off_);
  clock_off_ = {};
}

void SimHost::try_second(bool without_lock) {
  if (life_ == nullptr) return;
  const std::unique_ptr<ProcessDisk> disk = disk_.another_process();
  if (without_lock) (void)disk->remove(std::string(kJournalDir) + "/" + kLockName).ok();
  const Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(kJournalDir, {.segment_bytes = settings_.segment_bytes,
                                      .reserve_bytes = 1,
                                      .background = false,
                                      .disk = disk.get(),
                                      .store_id = kStoreId,
                                      .needed_from = 0});
  if (journal) return context_.auditor.fail("two schedulers have the same folder");
  if (journal.error().code == ErrorCode::kLocked) story_.second_hosts += 1;
}

void SimHost::try_older() {
  const int64_t used = context_.auditor.replica().config.feature_level;
  // Before its configuration is in the journal any program may take the folder.
  if (context_.auditor.position() == 0 || used == 0) return;
  disk_.begin_process();
  const LossByLies loss = disk_.loss_by_lies(kJournalDir, kStoreId);
  {
    Life life(*this);
    const Result<Recovered> recovered = open_folder(life, used - 1);
    const bool less = recovered && recovered->position < context_.auditor.position();
    if (less && loss.explains_an_end_at(recovered->position)) return give_up();
    if (recovered) {
      context_.auditor.fail("an older program takes a folder of feature level " + std::to_string(used));
    } else if (recovered.error().code == ErrorCode::kVersion) {
      story_.older_hosts += 1;
    }
    context_.trace.note("older-program", {static_cast<uint64_t>(used)},
                        recovered ? "" : recovered.error().message);
    disk_.kill();
  }
  disk_.bury(/*power=*/false);
}

void SimHost::pause(Duration span) {
  if (life_ != nullptr) life_->paused_until = context_.schedule.now() + span;
}

void SimHost::reload(const EngineConfig& engine) {
  settings_.engine = engine;
  if (!up()) return;
  propose(Configure{.config = engine}, [this](const Result<Decided>& decided) {
    if (!decided.ok()) context_.schedule.in(seconds(1), [this] { reload(settings_.engine); });
  });
}

}  // namespace gpusched::sim
