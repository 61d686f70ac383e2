#pragma once

#include <functional>
#include <vector>

#include "node/ports.h"
#include "sim/context.h"

namespace gpusched::sim {

/// One data folder's record of attempts. What was flushed survives the agent, what was synced the machine.
class Store final : public AttemptStore {
 public:
  /// `synced` is told positions, on the agent's time.
  Store(Context& context, std::function<void(uint64_t position)> synced)
      : context_(context), synced_(std::move(synced)) {}

  /// A new agent opens the folder: what it reads is durable when it has read it.
  StoreImage open();
  /// The agent is killed: what it did not flush is gone.
  void process_dies();
  /// The machine loses power: records that were not synced are there up to some point.
  void power_fails();
  /// A new, empty folder.
  void wipe();

  uint64_t append(const StoreRecord& record) override;
  bool flush() override;
  void sync() override;

 private:
  void make_durable(std::size_t count);

  Context& context_;
  std::function<void(uint64_t)> synced_;
  std::vector<StoreRecord> pending_;
  std::vector<StoreRecord> records_;  ///< Flushed.
  std::size_t durable_ = 0;           ///< How many of them are synced.
  uint64_t position_ = 0;
  uint64_t life_ = 0;  ///< Counts openings and ends.
};

}  // namespace gpusched::sim
