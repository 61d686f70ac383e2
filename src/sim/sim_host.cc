#include "sim/sim_host.h"

#include <algorithm>
#include <utility>

#include "codec/group.h"
#include "host/recovery.h"
#include "host/snapshot_image.h"

namespace gpusched::sim {
namespace {

constexpr const char* kSnapshotDir = "/data/snapshots";

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

}  // namespace

/// One scheduler process.
struct SimHost::Life final : public GroupWriter {
  explicit Life(SimHost& owner) : host(owner) {}
  void start(DurableGroup group) override { host.write(std::move(group)); }
  JournalSpace space() const override { return journal->space(); }

  SimHost& host;
  uint64_t number = 0;
  std::unique_ptr<MemoryJournal> journal;
  std::unique_ptr<SnapshotStore> snapshots;
  std::shared_ptr<SnapshotWriter> snapshot;  ///< Being written.
  uint64_t bytes_since_snapshot = 0;
  std::unique_ptr<Observer> observer;
  std::unique_ptr<HostCore> core;
  std::vector<std::function<void(Life&)>> inbox;
  std::map<uint64_t, SessionId> sessions;
  std::optional<Error> fatal;
  bool run_is_near = false;
  Time wake_at = kNever;
  Time paused_until;
};

SimHost::SimHost(Context& context, HostSettings settings)
    : context_(context),
      settings_(settings),
      clock_(context.schedule),
      disk_(std::make_unique<MemoryDisk>()) {
  CHECK(disk_->make_dir("/data").ok());
}

SimHost::~SimHost() = default;

const HostCore* SimHost::core() const { return life_ == nullptr ? nullptr : life_->core.get(); }
uint64_t SimHost::position() const { return life_->core->position(); }

void SimHost::with_observer(const Observer::Query& query) {
  if (life_ != nullptr) life_->observer->read(0, query);
}

void SimHost::feed_auditor(MemoryJournal& journal, uint64_t from) {
  const Result<Unit> read = journal.read_from(from, [this](const JournalRecord& record) -> Result<Unit> {
    context_.trace.note("durable", {record.position, record.first_sequence, record.command_count},
                        context_.trace.prints() ? names_in(record) : std::string());
    context_.auditor.on_durable(record);
    return Unit{};
  });
  if (!read) context_.auditor.fail("the journal cannot be read: " + read.error().message);
}

void SimHost::start() {
  if (life_ != nullptr) return;
  auto life = std::make_unique<Life>(*this);
  life->number = ++starts_;
  life->journal = std::make_unique<MemoryJournal>(journal_image_);
  if (full_) life->journal->set_full(*full_);
  Result<std::unique_ptr<SnapshotStore>> snapshots = SnapshotStore::open(kSnapshotDir, disk_.get());
  if (!snapshots)
    return context_.auditor.fail("the snapshots cannot be opened: " + snapshots.error().message);
  life->snapshots = std::move(*snapshots);
  RecoveryReport report;
  Result<Recovered> recovered = recover(*life->journal, *life->snapshots, report);
  if (!recovered) return context_.auditor.fail("recovery is refused: " + recovered.error().message);
  feed_auditor(*life->journal, life->journal->first_position());
  context_.auditor.on_recovered(recovered->state, recovered->position);
  context_.trace.note("host-starts", {starts_, recovered->position, recovered->state.digest.value()});
  life->observer = std::make_unique<Observer>(recovered->state.clone(), recovered->position, false);
  life->observer->add_listener(
      [this](const Observer::View& view, const Changes& changes) { take_snapshot(view, changes); });
  Life& world = *life;
  life->core = std::make_unique<HostCore>(std::move(recovered->state), recovered->position, settings_.tuning,
                                          clock_, *life, *life->observer,
                                          [&world](const Error& error) { world.fatal = error; });
  life_ = std::move(life);
  if (life_->core->state().config != settings_.engine) {
    life_->core->propose(Configure{.config = settings_.engine}, [](const Result<Decided>&) {});
  }
  run_soon(Duration{});
}

void SimHost::crash(bool power) {
  if (life_ == nullptr) return;
  context_.trace.note("host-dies", {power ? 1u : 0u});
  journal_image_ = life_->journal->crash(context_.prng);
  // What is left of the disk is taken before the process's objects tidy up behind themselves.
  std::unique_ptr<MemoryDisk> left = power ? disk_->crash(context_.prng) : disk_->killed();
  life_.reset();
  disk_ = std::move(left);
  if (power) clock_.reboot();
  if (died_) died_();
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
    if (life.fatal) return crash(false);
  }
  life.core->turn();
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
  context_.schedule.in(context_.some_us(5, 50), [this, number = life_->number, group = std::move(group)] {
    if (life_ == nullptr || life_->number != number) return;
    const Result<Unit> appended = life_->journal->append({.position = group.position,
                                                          .term = 1,
                                                          .first_sequence = group.first_sequence,
                                                          .command_count = group.command_count,
                                                          .payload = group.payload});
    if (!appended) return input([appended](Life& life) { life.core->on_durable(appended); });
    context_.schedule.in(context_.some_delay(), [this, number, position = group.position] {
      if (life_ == nullptr || life_->number != number) return;
      const Result<Unit> synced = life_->journal->sync();
      if (synced) feed_auditor(*life_->journal, position);
      input([synced](Life& life) { life.core->on_durable(synced); });
    });
  });
}

void SimHost::take_snapshot(const Observer::View& view, const Changes& changes) {
  Life& life = *life_;
  life.bytes_since_snapshot += changes.payload_bytes;
  if (life.bytes_since_snapshot < settings_.snapshot_bytes || life.snapshot != nullptr) return;
  life.bytes_since_snapshot = 0;
  const SnapshotImage image = image_of(view.state, view.position);
  Result<std::unique_ptr<SnapshotWriter>> writer = life.snapshots->begin(image.info);
  CHECK(writer.ok());
  life.snapshot = std::move(*writer);
  for (const std::string& piece : image.pieces) CHECK(life.snapshot->write(piece).ok());
  context_.schedule.in(context_.some_ms(1, 200), [this, number = life.number] {
    if (life_ == nullptr || life_->number != number) return;
    const std::shared_ptr<SnapshotWriter> written = std::exchange(life_->snapshot, nullptr);
    const Result<Unit> committed = life_->snapshots->commit(*written, prove_snapshot);
    if (!committed) return context_.auditor.fail("a snapshot cannot be proven: " + committed.error().message);
    CHECK(life_->snapshots->prune().ok());
    const Result<uint64_t> position = life_->snapshots->compactable_position();
    CHECK(position.ok());
    ++snapshots_taken_;
    context_.trace.note("snapshot", {*position});
    if (*position > 0) CHECK(life_->journal->compact_before(*position + 1).ok());
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

void SimHost::disk_is_full(uint64_t reserve_bytes) {
  full_ = reserve_bytes;
  if (life_ != nullptr) life_->journal->set_full(reserve_bytes);
}

void SimHost::disk_has_room() {
  full_.reset();
  if (life_ != nullptr) life_->journal->set_open();
}

void SimHost::fail_next_sync() {
  if (life_ != nullptr) life_->journal->fail_next_sync();
}

void SimHost::pause(Duration span) {
  if (life_ != nullptr) life_->paused_until = context_.schedule.now() + span;
}

}  // namespace gpusched::sim
