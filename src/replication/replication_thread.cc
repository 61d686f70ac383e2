#include "replication/replication_thread.h"

#include <pthread.h>
#include <sys/random.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "log/log.h"

namespace gpusched {

using consensus::CoreState;
using consensus::Entry;
using consensus::MessageKind;
using consensus::PeerFrame;
using consensus::Role;
using std::chrono::steady_clock;

namespace {

/// Messages of peers that wait; more of them are dropped, and sent again by the protocol.
constexpr std::size_t kFramesWaitingMax = 4'096;
/// Room for what is written before an entry.
constexpr std::size_t kHardStateRoom = 512;
/// A peer whose messages are refused is named so often.
constexpr std::chrono::seconds kRefusedEvery(10);
/// A hand-over that led nowhere is begun again.
constexpr std::chrono::milliseconds kHandOverEvery(100);

uint64_t draw() {
  uint64_t drawn = 0;
  CHECK(getrandom(&drawn, sizeof drawn, 0) == sizeof drawn);
  return drawn | 1;
}

Error not_leader() {
  return {.code = ErrorCode::kUnavailable,
          .message = "this scheduler is not the leader, and nothing was done; send the request again"};
}

Error outcome_unknown() {
  return {.code = ErrorCode::kOutcomeUnknown,
          .message =
              "the scheduler lost its place as the leader: whether this was done is known by asking the "
              "new one"};
}

std::string snapshot_data(uint64_t position) {
  std::string data;
  ByteWriter(data).varint(position);
  return data;
}

}  // namespace

class ReplicationThread::Ear final : public consensus::ReplicaClient {
 public:
  explicit Ear(ReplicationThread& owner) : owner_(owner) {}

  void send(PeerFrame frame) override {
    if (frame.message.kind == MessageKind::kSnapshot) owner_.sent_snapshots_.push_back(frame.message.to);
    owner_.client_.send(std::move(frame));
  }
  void committed(const Entry& entry) override {
    if (owner_.fault_) return;
    const Result<Unit> taken = owner_.take(entry);
    if (!taken) owner_.fault_ = taken.error();
  }
  // Only what the ordinary journal holds can be passed over.
  Result<Unit> install(const consensus::Snapshot& snapshot) override {
    ByteReader in(snapshot.data);
    const uint64_t position = in.varint();
    if (in.ok() && owner_.lead_ == Lead::kNone && position <= owner_.journal_.last_position())
      return owner_.journal_.sync();
    return Error{.code = ErrorCode::kNotFound,
                 .message =
                     "this replica was away for longer than the others keep their log: stop it, and make "
                     "its data folder again from another one (gpu-scheduler members export, members "
                     "join)"};
  }
  void readable(uint64_t) override {}
  void read_lost(uint64_t) override {}
  void role_changed(const CoreState& state) override {
    if (state.role == Role::kCandidate) ++owner_.elections_;
    if (state.role != Role::kLeader && owner_.lead_ == Lead::kHeld) owner_.lead_ = Lead::kLost;
  }
  void members_changed(const consensus::Members&) override {}

 private:
  ReplicationThread& owner_;
};

Result<std::unique_ptr<ReplicationThread>> ReplicationThread::start(const ReplicationOptions& options,
                                                                    FileJournal& journal,
                                                                    ReplicationClient& client) {
  std::unique_ptr<ReplicationThread> made(new ReplicationThread(options, journal, client));
  const Result<Unit> opened = made->open();
  if (!opened) return opened.error();
  made->thread_ = std::thread([thread = made.get()] { thread->run(); });
  return made;
}

ReplicationThread::ReplicationThread(const ReplicationOptions& options, FileJournal& journal,
                                     ReplicationClient& client)
    : options_(options), journal_(journal), client_(client), records_(journal) {}

ReplicationThread::~ReplicationThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Result<Unit> ReplicationThread::open() {
  Disk& disk = options_.disk != nullptr ? *options_.disk : posix_disk();
  const std::string folder = replica_log_folder(options_.data_dir);
  if (!disk.list(folder)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = options_.data_dir +
                            " is no replica's data folder yet: run `gpu-scheduler members init` on the first "
                            "scheduler, `gpu-scheduler members join` on the others"};
  }
  Result<std::unique_ptr<FileJournal>> journal =
      FileJournal::open(folder, {.segment_bytes = options_.log_segment_bytes, .disk = options_.disk});
  if (!journal) return journal.error();
  log_journal_ = std::move(*journal);
  store_ = std::make_unique<JournalLogStore>(*log_journal_);
  payload_max_ = std::min(journal_.payload_max(), store_->entry_bytes_max() - kRecordEntryBytes);
  ear_ = std::make_unique<Ear>(*this);
  Result<std::unique_ptr<consensus::Replica>> replica = consensus::Replica::start(
      {.cluster = options_.cluster,
       .core =
           {.id = options_.id, .boot = draw(), .seed = draw(), .election_ticks = options_.election_ticks}},
      *store_, *ear_);
  if (!replica) return replica.error();
  replica_ = std::move(*replica);
  Result<Unit> done = replica_->run();
  if (done && fault_) done = *fault_;
  if (done) done = records_.write_out();
  if (!done) return done;
  next_tick_ = Clock::now() + std::chrono::nanoseconds(options_.tick.ns);
  publish();
  return Unit{};
}

void ReplicationThread::received(PeerFrame frame) {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.frames.size() >= kFramesWaitingMax) return;
    inbox_.frames.push_back(std::move(frame));
  }
  wake_.notify_one();
}

void ReplicationThread::unreachable(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.unreachable.size() >= kFramesWaitingMax) return;
    inbox_.unreachable.push_back(id);
  }
  wake_.notify_one();
}

void ReplicationThread::propose(JournalRecord record, std::string payload,
                                std::function<void(Result<Unit>)> done) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(!inbox_.proposal);
    inbox_.proposal = Proposal{.record = record, .payload = std::move(payload), .done = std::move(done)};
  }
  wake_.notify_one();
}

void ReplicationThread::compact_before(uint64_t position) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.compact_before = position;
  }
  wake_.notify_one();
}

bool ReplicationThread::hand_over(Duration patience) {
  const auto deadline = Clock::now() + std::chrono::nanoseconds(patience.ns);
  std::unique_lock lock(mutex_);
  while (true) {
    if (status_.role != Role::kLeader && status_.leader != 0) return true;
    if (!status_.trouble.empty() || Clock::now() >= deadline) return false;
    inbox_.hand_over = status_.role == Role::kLeader;
    wake_.notify_one();
    changed_.wait_until(lock, std::min(deadline, Clock::now() + kHandOverEvery));
  }
}

Result<Unit> ReplicationThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  const Result<Unit> sealed = journal_.seal();
  if (!sealed) return sealed;
  return log_journal_->seal();
}

ReplicaStatus ReplicationThread::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

JournalSpace ReplicationThread::space() const { return std::max(log_journal_->space(), journal_.space()); }

std::string ReplicationThread::space_reason() const {
  const std::string reason = log_journal_->space_reason();
  return reason.empty() ? journal_.space_reason() : reason;
}

void ReplicationThread::run() {
  ::pthread_setname_np(::pthread_self(), "replica");
  Inbox taken;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto due = [this] {
        return stopping_ || !inbox_.frames.empty() || !inbox_.unreachable.empty() || inbox_.proposal ||
               inbox_.compact_before != 0 || inbox_.hand_over;
      };
      wake_.wait_until(lock, next_tick_, due);
      if (stopping_) break;
      taken = std::exchange(inbox_, Inbox{});
    }
    turn(taken);
  }
  // Whoever waits for an answer gets one.
  std::optional<Proposal> last;
  {
    const std::lock_guard lock(mutex_);
    last = std::exchange(inbox_.proposal, std::nullopt);
  }
  if (last) last->done(not_leader());
  if (in_flight_) std::exchange(in_flight_, std::nullopt)->done(outcome_unknown());
}

void ReplicationThread::turn(Inbox& inbox) {
  const Clock::time_point now = Clock::now();
  if (given_up_) {
    next_tick_ = now + std::chrono::nanoseconds(options_.tick.ns);
    if (inbox.proposal) inbox.proposal->done(not_leader());
    return;
  }
  // Messages first: what came while this thread was busy counts before the time that passed.
  for (const PeerFrame& frame : inbox.frames) receive(frame);
  for (const uint64_t id : inbox.unreachable) replica_->unreachable(id);
  if (inbox.proposal) begin(std::move(*inbox.proposal));
  if (inbox.hand_over) begin_hand_over();
  compact_before_ = std::max(compact_before_, inbox.compact_before);
  tick(now);
  advance();
  compact_journal();
}

void ReplicationThread::compact_journal() {
  if (given_up_ || compact_before_ == 0 || journal_lent_ || lead_ == Lead::kLost) return;
  // Records that the mark of a compaction calls unneeded must not be all that a loss of power leaves.
  Result<Unit> compacted = journal_.sync();
  if (compacted) compacted = journal_.compact_before(compact_before_);
  compact_before_ = 0;
  if (!compacted) {
    log_event(LogLevel::kWarning, "journal", "compaction_failed", {}, {{"error", compacted.error().message}});
  }
}

void ReplicationThread::receive(const PeerFrame& frame) {
  if (given_up_) return;
  const Result<Unit> taken = replica_->receive(frame);
  if (taken) return;
  if (taken.error().code == ErrorCode::kCorrupt) return give_up(taken.error());
  Clock::time_point& refused_at = refused_at_[frame.message.from];
  const Clock::time_point now = Clock::now();
  if (refused_at != Clock::time_point{} && now - refused_at < kRefusedEvery) return;
  refused_at = now;
  log_event(LogLevel::kWarning, "replica", "message_refused", {},
            {{"from", frame.message.from}, {"why", taken.error().message}});
}

/// A thread that could not run for long counts no more time than makes a leader look for its followers.
void ReplicationThread::tick(Clock::time_point now) {
  const std::chrono::nanoseconds every(options_.tick.ns);
  for (uint64_t count = 0; next_tick_ <= now; ++count) {
    if (count == options_.election_ticks) {
      next_tick_ = now + every;
      return;
    }
    replica_->tick();
    next_tick_ += every;
  }
}

void ReplicationThread::begin(Proposal proposal) {
  CHECK(!in_flight_);
  if (given_up_ || lead_ != Lead::kHeld) return proposal.done(not_leader());
  journal_lent_ = false;
  proposal.record.payload = proposal.payload;
  if (proposal.payload.size() > payload_max_) {
    return proposal.done(Error{.code = ErrorCode::kTooLarge,
                               .message = "a group of " + std::to_string(proposal.payload.size()) +
                                          " bytes is larger than an entry of the replicated log may be"});
  }
  const std::string data = encode_record_entry(proposal.record);
  // Behind `propose` a full disk would end the process.
  Result<Unit> room = log_journal_->check_room(data.size() + kHardStateRoom);
  if (room) room = journal_.check_room(proposal.payload.size());
  if (!room) return proposal.done(room);
  const Result<consensus::Proposed> placed = replica_->propose(data);
  in_flight_ = InFlight{.done = std::move(proposal.done), .begun = Clock::now()};
  if (placed) {
    in_flight_->place = *placed;
    return;
  }
  // A message of this turn took the lead away: the client hears of that first.
  in_flight_->refused = placed.error().code == ErrorCode::kUnavailable ? not_leader() : placed.error();
}

Result<Unit> ReplicationThread::take(const Entry& entry) {
  if (lead_ == Lead::kLost) return Unit{};
  if (lead_ == Lead::kHeld && replica_->state().role != Role::kLeader) {
    lead_ = Lead::kLost;
    return Unit{};
  }
  const uint64_t before = journal_.last_position();
  const Result<Unit> taken = records_.take(entry);
  if (!taken) return taken;
  if (lead_ == Lead::kNone && journal_.last_position() > before)
    client_.appended(*decode_record_entry(entry));
  if (in_flight_ && entry.index == in_flight_->place.index && entry.term == in_flight_->place.term)
    in_flight_->appended = true;
  kept_.push_back({.index = entry.index, .position = journal_.last_position(), .bytes = entry.data.size()});
  log_bytes_ += entry.data.size();
  return Unit{};
}

void ReplicationThread::advance() {
  if (given_up_) return;
  Result<Unit> done = replica_->run();
  if (done && fault_) done = *fault_;
  if (done && !journal_lent_) done = records_.write_out();
  if (done) done = compact_log();
  if (!done) return give_up(done.error());
  // A snapshot in a message counts as arrived: who could not use it asks again.
  for (const uint64_t to : std::exchange(sent_snapshots_, {})) replica_->snapshot_sent(to, true);
  settle_role();
  publish();
  settle_proposal();  // Who has the answer finds it in the status.
}

void ReplicationThread::settle_proposal() {
  if (!in_flight_) return;
  if (!in_flight_->appended && !in_flight_->refused && lead_ == Lead::kHeld) return;
  InFlight settled = *std::exchange(in_flight_, std::nullopt);
  if (settled.refused) return settled.done(*settled.refused);
  if (!settled.appended) return settled.done(outcome_unknown());
  commits_.fetch_add(1, std::memory_order_relaxed);
  const std::chrono::nanoseconds took = Clock::now() - settled.begun;
  commit_ns_.fetch_add(took.count(), std::memory_order_relaxed);
  settled.done(Unit{});
}

void ReplicationThread::settle_role() {
  const CoreState state = replica_->state();
  const bool has_all = state.committed_in_term && state.applied >= state.hard_state.commit;
  if (state.role == Role::kLeader && lead_ == Lead::kNone && has_all) {
    lead_ = Lead::kHeld;
    journal_lent_ = true;
    client_.leads();
  }
  if (lead_ == Lead::kLost && !lost_told_) {
    lost_told_ = true;
    client_.lost_lead();
  }
  if (std::exchange(leader_, state.leader) != state.leader) client_.leader_changed(state.leader);
}

Result<Unit> ReplicationThread::compact_log() {
  if (log_bytes_ <= options_.log_bytes_max || journal_lent_ || lead_ == Lead::kLost) return Unit{};
  Kept last;
  while (log_bytes_ > options_.log_bytes_max / 2) {
    last = kept_.front();
    log_bytes_ -= last.bytes;
    kept_.pop_front();
  }
  // The log is what makes the records durable until this.
  const Result<Unit> synced = journal_.sync();
  if (!synced) return synced;
  return replica_->compact(snapshot_data(last.position), last.index);
}

void ReplicationThread::begin_hand_over() {
  const CoreState state = replica_->state();
  if (state.role != Role::kLeader || state.transferring_to != 0) return;
  const consensus::Progress* best = nullptr;
  const std::vector<consensus::Progress> peers = replica_->progress();
  for (const consensus::Progress& peer : peers) {
    if (peer.id == options_.id || peer.learner || !peer.active || peer.needs_snapshot) continue;
    if (best == nullptr || peer.matched > best->matched) best = &peer;
  }
  if (best == nullptr) return;
  const Result<Unit> begun = replica_->transfer(best->id);
  if (!begun)
    log_event(LogLevel::kWarning, "replica", "hand_over_refused", {}, {{"why", begun.error().message}});
}

void ReplicationThread::give_up(const Error& error) {
  given_up_ = true;
  {
    const std::lock_guard lock(mutex_);
    status_.trouble = error.message;
    status_.role = Role::kFollower;
    status_.leader = 0;
  }
  changed_.notify_all();
  log_event(LogLevel::kError, "replica", "replica_gave_up", {}, {{"why", error.message}});
  if (in_flight_) std::exchange(in_flight_, std::nullopt)->done(outcome_unknown());
  client_.failed(error);
}

void ReplicationThread::publish() {
  const CoreState state = replica_->state();
  ReplicaStatus status{.role = state.role,
                       .leader = state.leader,
                       .term = state.hard_state.term,
                       .commit = state.hard_state.commit,
                       .applied = state.applied,
                       .last_index = state.last_index,
                       .position = journal_.last_position(),
                       .elections = elections_,
                       .log_bytes = log_bytes_,
                       .peers = replica_->progress()};
  std::erase_if(status.peers, [&](const consensus::Progress& peer) { return peer.id == options_.id; });
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  changed_.notify_all();
}

}  // namespace gpusched
