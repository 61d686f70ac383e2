#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "host/host_core.h"
#include "host/observer.h"
#include "journal/memory_disk.h"
#include "journal/memory_journal.h"
#include "journal/snapshot_store.h"
#include "sim/context.h"
#include "sim/network.h"

namespace gpusched::sim {

struct HostSettings {
  EngineConfig engine;
  HostTuning tuning;
  uint64_t snapshot_bytes = 8'000;  ///< A snapshot after so much journal.
};

/// The scheduler's machine and the schedulers that run on it one after the other: the real HostCore and
/// Observer over a journal and snapshots in memory. It stands where Host and its threads stand.
class SimHost final : public HostEnd {
 public:
  SimHost(Context& context, HostSettings settings);
  ~SimHost() override;

  /// Recovers and serves. A recovery that is refused is a broken promise.
  void start();
  /// The process ends, or with `power` the machine; `died` is called.
  void crash(bool power);
  void on_died(std::function<void()> died) { died_ = std::move(died); }

  bool up() const override { return life_ != nullptr; }
  void opened(uint64_t link, std::shared_ptr<NodeSession> session) override;
  void received(uint64_t link, std::shared_ptr<const v1::AgentMessage> message) override;
  void closed(uint64_t link) override;
  uint64_t position() const override;

  /// To be called while it is up.
  void propose(Command command, Decision decision);
  void read(uint64_t sequence, Observer::Query query);

  void disk_is_full(uint64_t reserve_bytes);
  void disk_has_room();
  void fail_next_sync();
  void pause(Duration span);
  void step_clock(Duration by) { clock_.step_wall(by); }
  Duration wall_offset() const { return clock_.wall_offset(); }

  /// What the auditor looks at after every step; null while it is down.
  const HostCore* core() const;
  void with_observer(const Observer::Query& query);
  uint64_t starts() const { return starts_; }
  uint64_t snapshots_taken() const { return snapshots_taken_; }

 private:
  struct Life;

  void input(std::function<void(Life&)> given);
  void run_soon(Duration delay);
  void run();
  void wake_at(Time when);
  void write(DurableGroup group);
  void take_snapshot(const Observer::View& view, const Changes& changes);
  void feed_auditor(MemoryJournal& journal, uint64_t from);

  Context& context_;
  const HostSettings settings_;
  MachineClock clock_;
  std::function<void()> died_;
  MemoryJournal::Image journal_image_;
  std::unique_ptr<MemoryDisk> disk_;
  std::unique_ptr<Life> life_;
  uint64_t starts_ = 0;
  uint64_t snapshots_taken_ = 0;
  std::optional<uint64_t> full_;  ///< The reserve that is left, while the disk is full.
};

}  // namespace gpusched::sim
