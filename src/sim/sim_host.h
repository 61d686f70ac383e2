#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "host/core/host_core.h"
#include "host/core/recovery.h"
#include "host/readers/observer.h"
#include "journal/file_journal.h"
#include "journal/snapshot_store.h"
#include "sim/context.h"
#include "sim/network.h"
#include "sim/sim_disk.h"

namespace gpusched::sim {

struct HostSettings {
  EngineConfig engine;
  HostTuning tuning;
  uint64_t snapshot_bytes = 8'000;  ///< A snapshot after so much journal.
  uint64_t disk_seed = 1;
  uint64_t segment_bytes = 65'536;
  uint64_t volume_bytes = UINT64_MAX;
};

/// Story of the schedulers of one run.
struct HostStory {
  uint64_t kills = 0;
  uint64_t power_losses = 0;
  uint64_t deaths_in_calls = 0;  ///< Kills and power losses in the middle of a call on the disk.
  uint64_t refused_starts = 0;   ///< Because of what the disk did.
  uint64_t repairs = 0;          ///< Refused starts for damage, which an operator then put right.
  uint64_t failed_snapshots = 0;
  uint64_t unprovable_snapshots = 0;  ///< An encoder spoilt them, and nobody ever saw it.
  uint64_t clean_stops = 0;
  uint64_t second_hosts = 0;  ///< Second hosts that were refused.
  uint64_t older_hosts = 0;   ///< Older programs that were refused.
  uint64_t clock_jumps = 0;
  uint64_t sheddings = 0;  ///< History was shed, so that there was room.
  DiskCounts disk;
  bool lied = false;  ///< A loss that only a lying device explains ended the run.
};

/// The scheduler's machine and the schedulers that run on it one after the other: the real HostCore,
/// Observer, FileJournal and SnapshotStore, over a disk that breaks. It stands where Host and its threads
/// stand.
class SimHost final : public HostEnd {
 public:
  SimHost(Context& context, HostSettings settings);
  ~SimHost() override;

  /// Recovers and serves. A recovery that is refused, and not because of what the disk did, is a broken
  /// promise.
  void start();
  /// The process ends, or with `power` the machine; `died` is called. Now or in the middle of some call on
  /// the disk, a little later.
  void crash(bool power);
  /// It ends as soon as nothing is on its way to the disk, and everybody has an answer.
  void stop();
  void on_died(std::function<void()> died) { died_ = std::move(died); }

  bool up() const override { return life_ != nullptr; }
  /// New work has room on its volume.
  bool has_room() const;
  void opened(uint64_t link, std::shared_ptr<NodeSession> session) override;
  void received(uint64_t link, std::shared_ptr<const v1::AgentMessage> message) override;
  void closed(uint64_t link) override;
  uint64_t position() const override;

  /// To be called while it is up.
  void propose(Command command, Decision decision);
  void read(uint64_t sequence, Observer::Query query);

  SimDisk& disk() { return disk_; }
  const HostSettings& settings() const { return settings_; }
  /// As when the configuration is edited and read again; a scheduler that is down reads it when it starts.
  void reload(const EngineConfig& engine);
  /// The power goes once more, and what is left must be what was said to be durable.
  void check_folder();
  void pause(Duration span);
  void step_clock(Duration by) { clock_.step_wall(by); }
  Duration wall_offset() const { return clock_.wall_offset(); }
  /// The wall clock is off by so much, from the end of this process on or at once, until `right_clock`.
  void wrong_clock(Duration by, bool when_down);
  void right_clock();
  bool clock_is_wrong() const { return clock_off_.ns != 0; }
  /// Another scheduler tries to have the folder, after somebody removed the lock's file, or not.
  void try_second(bool without_lock);
  /// Before the next start an older program is started.
  void start_older_next() { older_next_ = true; }
  /// Spoils so many of the next snapshots before they are written.
  void spoil_snapshots(int count) { spoilt_ = count; }
  /// The disk has become fuller or emptier.
  void watch_volume();

  /// The core that the auditor looks at after every step; null while it is down.
  const HostCore* core() const;
  void with_observer(const Observer::Query& query);
  uint64_t starts() const { return starts_; }
  uint64_t snapshots_taken() const { return snapshots_taken_; }
  HostStory story() const;
  /// Nothing can be promised any more: the device lied.
  bool lied_to() const { return story_.lied; }

 private:
  struct Life;

  void input(std::function<void(Life&)> given);
  void run_soon(Duration delay);
  void run();
  void end_cleanly();
  void wake_at(Time when);
  Result<Recovered> open_folder(Life& life, int64_t level = kFeatureLevel);
  /// An older program is refused, and changes nothing.
  void try_older();
  Result<Unit> feed_auditor(Journal& journal);
  void begin(std::unique_ptr<Life> life, Recovered recovered);
  /// A start came to nothing.
  void refused(const Error& error);
  /// Less is on the disk than it said, and it is known to lie: nothing can be promised of it.
  void give_up();
  /// The process ends here and now.
  void die(bool power);
  /// It has ended.
  void gone();
  /// True: the process died in the call on the disk that was just made.
  bool died_in_call();
  void write(DurableGroup group);
  void sync(const DurableGroup& group);
  void tell_auditor(const JournalRecord& record);
  void take_snapshot(const Observer::View& view, const Changes& changes);
  void take_snapshot(const Observer::View& view);
  void commit_snapshot(uint64_t position);
  Result<Unit> forget_older();
  void snapshot_failed(const Error& error);
  void look_at_volume();
  void shed(uint64_t missing);
  /// As the journal's own thread would: a full disk is asked again until it has room.
  void watch_space();

  Context& context_;
  HostSettings settings_;
  MachineClock clock_;
  std::function<void()> died_;
  SimDisk disk_;
  std::unique_ptr<Life> life_;
  bool power_goes_ = false;     ///< With the death that is armed.
  Duration clock_off_;          ///< Error of the wall clock.
  bool off_when_down_ = false;  ///< The error begins with the end of this process.
  bool older_next_ = false;
  bool stops_ = false;  ///< The process ends in order.
  int spoilt_ = 0;
  HostStory story_;
  uint64_t starts_ = 0;
  uint64_t snapshots_taken_ = 0;
};

}  // namespace gpusched::sim
