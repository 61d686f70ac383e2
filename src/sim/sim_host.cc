#include "sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "codec/group.h"
#include "host/snapshot_image.h"

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
  JournalSpace space() const override { return journal->space(); }
  std::size_t payload_max() const override { return journal->payload_max(); }

  SimHost& host;
  uint64_t number = 0;
  std::unique_ptr<FileJournal> journal;
  std::unique_ptr<SnapshotStore> snapshots;
  std::shared_ptr<SnapshotWriter> snapshot;  ///< Being written.
  uint64_t bytes_since_snapshot = 0;
  std::unique_ptr<Observer> observer;
  std::unique_ptr<HostCore> core;
  std::vector<std::function<void(Life&)>> inbox;
  std::map<uint64_t, SessionId> sessions;
  std::optional<Error> fatal;
  bool run_is_near = false;
  bool retries_space = false;
  Time wake_at = kNever;
  Time paused_until;
};

SimHost::SimHost(Context& context, HostSettings settings)
    : context_(context), settings_(settings), clock_(context.schedule), disk_(context, settings.disk_seed) {}

SimHost::~SimHost() = default;

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

/// What Host::open does, in its order.
Result<Recovered> SimHost::open_folder(Life& life) {
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
  RecoveryReport report;
  return recover(*life.journal, *life.snapshots, report);
}

void SimHost::start() {
  if (life_ != nullptr || story_.lied) return;
  auto life = std::make_unique<Life>(*this);
  life->number = ++starts_;
  disk_.begin_process();
  if (context_.on(Fault::kHostKill) && disk_.prng().chance(150)) disk_.arm_death();
  Result<Recovered> recovered = open_folder(*life);
  if (recovered && !disk_.process_is_dead()) {
    const bool less = recovered->position < context_.auditor.position();
    if (less && disk_.lied_from().value_or(UINT64_MAX) <= recovered->position + 1) return give_up();
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
  Life& world = *life;
  life->core = std::make_unique<HostCore>(std::move(recovered.state), recovered.position, settings_.tuning,
                                          clock_, *life, *life->observer,
                                          [&world](const Error& error) { world.fatal = error; });
  life_ = std::move(life);
  EngineConfig wanted = settings_.engine;
  if (wanted.feature_level >= 6)
    name_cluster(life_->core->state(), clock_.wall(), "cluster-" + std::to_string(starts_), wanted);
  if (life_->core->state().config != wanted) {
    life_->core->propose(Configure{.config = std::move(wanted)}, [](const Result<Decided>&) {});
  }
  watch_space();
  run_soon(Duration{});
}

void SimHost::refused(const Error& error) {
  context_.trace.note("start-refused", {static_cast<uint64_t>(error.code)}, error.message);
  story_.refused_starts += 1;
  if (!disk_.broke_in_this_life()) {
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

void SimHost::die(bool power) {
  context_.trace.note("host-dies", {power ? 1u : 0u});
  power_goes_ = power;
  // What is left of the disk is settled before the process's objects tidy up behind themselves.
  disk_.kill();
  life_.reset();
  gone();
}

void SimHost::gone() {
  const bool power = std::exchange(power_goes_, false);
  (power ? story_.power_losses : story_.kills) += 1;
  disk_.bury(power);
  if (power) clock_.reboot();
  if (died_) died_();
  // What a killed process left is put to the test while it is young.
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
  Life& life = *life_;
  life.bytes_since_snapshot += changes.payload_bytes;
  if (life.bytes_since_snapshot < settings_.snapshot_bytes || life.snapshot != nullptr) return;
  life.bytes_since_snapshot = 0;
  const SnapshotImage image = image_of(view.state, view.position);
  Result<std::unique_ptr<SnapshotWriter>> writer = life.snapshots->begin(image.info);
  if (!writer) return snapshot_failed(writer.error());
  for (const std::string& piece : image.pieces) {
    const Result<Unit> written = (*writer)->write(piece);
    if (!written) return snapshot_failed(written.error());
  }
  life.snapshot = std::move(*writer);
  context_.schedule.in(context_.some_ms(1, 200), [this, number = life.number] {
    if (life_ != nullptr && life_->number == number) commit_snapshot();
  });
}

void SimHost::commit_snapshot() {
  std::shared_ptr<SnapshotWriter> written = std::exchange(life_->snapshot, nullptr);
  const Result<Unit> done = finish_snapshot(*written);
  written.reset();  // It uses the process's disk.
  if (died_in_call()) return;
  if (!done) snapshot_failed(done.error());
}

Result<Unit> SimHost::finish_snapshot(SnapshotWriter& written) {
  const Result<Unit> committed = life_->snapshots->commit(written, prove_snapshot);
  if (!committed) return committed;
  ++snapshots_taken_;
  const Result<Unit> pruned = life_->snapshots->prune();
  if (!pruned) return pruned;
  const Result<uint64_t> position = life_->snapshots->compactable_position();
  if (!position) return position.error();
  context_.trace.note("snapshot", {*position});
  return *position > 0 ? life_->journal->compact_before(*position + 1) : Result<Unit>(Unit{});
}

void SimHost::snapshot_failed(const Error& error) {
  context_.trace.note("snapshot-fails", {static_cast<uint64_t>(error.code)}, error.message);
  story_.failed_snapshots += 1;
  if (!disk_.broke_in_this_life() && !disk_.is_damaged() && !disk_.process_is_dead()) {
    context_.auditor.fail("a snapshot fails without reason: " + error.message);
  }
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
    life.core->propose(command, decision);
  });
}

void SimHost::read(uint64_t sequence, Observer::Query query) {
  life_->observer->read(sequence, std::move(query));
}

// What breaks.

void SimHost::pause(Duration span) {
  if (life_ != nullptr) life_->paused_until = context_.schedule.now() + span;
}

}  // namespace gpusched::sim
