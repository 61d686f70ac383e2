#pragma once

#include <functional>
#include <set>
#include <vector>

#include "node/ports/ports.h"
#include "sim/context.h"

namespace gpusched::sim {

/// One data folder's record of attempts. Flushed records survive the agent, synced ones the machine.
class Store final : public AttemptStore {
 public:
  /// `synced` is told positions, on the agent's time; `failed` that a sync failed, after which an agent ends.
  Store(Context& context, std::function<void(uint64_t position)> synced, std::function<void()> failed)
      : context_(context), synced_(std::move(synced)), failed_(std::move(failed)) {}

  /// A new agent opens the folder: what it reads is durable when it has read it.
  StoreImage open();
  /// The agent is killed: what it did not flush is gone.
  void process_dies();
  /// The machine loses power: records that were not synced are there up to some point.
  void power_fails();
  /// A new, empty folder.
  void wipe();
  /// There is no room for records, or there is again.
  void set_full(bool full) { full_ = full; }
  bool is_full() const { return full_; }
  void fail_next_sync(bool fails) { sync_fails_ = fails; }
  /// Takes over what the other one has on its disk now.
  void become_copy_of(const Store& other);

  uint64_t append(const StoreRecord& record) override;
  bool flush() override;
  void sync() override;

 private:
  void make_durable(std::size_t count);
  void fail_sync();

  Context& context_;
  std::function<void(uint64_t)> synced_;
  std::function<void()> failed_;
  std::vector<StoreRecord> pending_;
  std::vector<StoreRecord> records_;  ///< Flushed.
  std::size_t durable_ = 0;           ///< How many of them are synced.
  std::set<AttemptKey> copied_;       ///< Another machine's: what this one makes of their ends is no truth.
  uint64_t position_ = 0;
  uint64_t life_ = 0;  ///< Counts openings and ends.
  bool full_ = false;
  bool sync_fails_ = false;
};

}  // namespace gpusched::sim
