#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "base/result.h"
#include "base/time.h"
#include "engine/messages/commands.h"
#include "engine/planner/wait_reason.h"
#include "machines/calls.h"
#include "machines/drivers/provider.h"
#include "machines/record/machine_record.h"
#include "machines/view.h"
#include "model/state.h"
#include "provision/decide.h"
#include "provision/retry.h"

namespace gpusched::machines {

/// A configured pool and who gives its machines.
struct PoolSetup {
  provision::Pool pool;
  std::string driver;  ///< Its name, for people.
  std::shared_ptr<Provider> provider;
  Duration poll = seconds(10);   ///< Between two looks at a machine that is coming or going.
  Duration sweep = seconds(60);  ///< Between two lists of what the provider has.
  int64_t calls_per_minute = 60;
};

struct MachinesOptions {
  std::vector<PoolSetup> pools;
  std::string record_file;
  Duration every = seconds(1);  ///< Between two decisions.
  Duration pause = seconds(1);  ///< Before a failed call's second try; doubled up to `pause_most`.
  Duration pause_most = seconds(60);
  Duration pool_pause = seconds(30);  ///< A pool that failed to give a machine is left alone for so long,
  Duration pool_pause_most = minutes(15);  ///< doubled up to that.
  /// A node may report for so long after its provider said that the machine is gone.
  Duration echo_most = seconds(90);
  uint64_t seed = 1;  ///< Seed of the chance in pauses.
};

/// The scheduler as machines need it. Functions are called on the thread of Machines and must not block.
struct SchedulerAccess {
  /// Runs `look` on some thread once the state has seen `sequence`; dropped after the scheduler's stop.
  std::function<void(uint64_t sequence,
                     std::function<void(const State&, const std::vector<WaitReason>&)> look)>
      read;
  /// Proposes a command; `done` is told whether it was accepted, and its number.
  std::function<void(Command command, std::function<void(bool accepted, uint64_t sequence)> done)> propose;
};

/// Keeps pools of machines: asks providers for machines when jobs wait that no node can start, drains idle
/// ones and gives them back. All decisions are `provision::decide`'s.
///
/// The record is written before a provider is called for a change, calls are keyed by the machine's name and
/// repeated until their effect is seen; so a scheduler that is killed at any moment leaks no machine and asks
/// for none twice, as far as its providers keep to their contract. A machine whose node has work is not
/// ended: it is drained, the drain is durable and nobody can resume the node (see `is_returning`) when it is
/// looked at for the last time.
///
/// Decisions are made on a thread of its own, calls of providers on further ones; the engine's thread and
/// doors wait for neither. Public members are thread-safe.
class Machines {
 public:
  /// Reads the record. kCorrupt, kVersion, kIo as `load_records`.
  static Result<std::unique_ptr<Machines>> open(MachinesOptions options);
  ~Machines() { stop(); }

  /// Begins to act. Once.
  void start(SchedulerAccess access);
  /// Ends the threads; calls under way are ended. Before the scheduler's stop. May be called twice.
  void stop();

  MachinesView view() const;
  /// Outlook for waiting jobs of the class; nothing: no pool could help.
  std::optional<JobOutlook> outlook_of(uint32_t job_class) const;
  /// Whether the machine is being given back: its node must not be put back into service.
  bool is_returning(const std::string& node) const;

 private:
  enum class Call : uint8_t { kEnsure, kLook, kFinish, kList };
  struct PoolState {
    PoolSetup setup;
    provision::RateLimit rate;
    provision::Breaker breaker;
    int64_t refusals = 0;  ///< Machines in a row that it did not give.
    Time closed_until;
    int64_t failures = 0;
    bool listing = false;
    Time list_due;
    std::set<std::string> orphans;
    std::string trouble;
  };
  /// Knowledge of a machine beyond its record. Times are monotonic.
  struct Live {
    bool calling = false;
    int64_t failures = 0;  ///< Calls in a row.
    Time due;              ///< Time of the next call.
    Time asked_at;
    Time quiet_since;
    bool seen = false;         ///< Its provider has had it since this start.
    bool absent_once = false;  ///< Its provider did not know it at the last look, though it was not ended.
    Time gone_at;              ///< Its provider said that it is gone.
    std::optional<provision::MachineNode> node;
    std::string trouble;
  };
  struct Done {
    Call call = Call::kEnsure;
    std::string pool, machine;
    ProviderAnswer answer;
  };
  struct Facts {
    std::map<std::string, provision::MachineNode> nodes;
    std::vector<provision::Demand> demand;
    std::vector<provision::Capacity> free;
    std::set<std::string>
        node_names;  ///< Names of all nodes whose names begin as those of a pool's machines.
  };

  Machines(MachinesOptions options, Records records);
  void run();
  void turn();
  void follow(const Facts& facts);
  provision::Situation situation_of(Facts facts) const;
  void act(const provision::Decisions& decisions, const std::set<std::string>& node_names);
  void ask_for(const std::string& pool, const std::set<std::string>& node_names);
  void end(const std::string& machine, const std::string& why);
  void drain(const std::string& machine, bool on);
  /// Drains it again, so that this is durable, and looks once more; true: nothing is on it, nor will be.
  bool is_free(const std::string& machine);
  void drop_gone();
  void drop(const std::string& machine);
  void save();
  void begin_calls();
  void begin(Call call, const std::string& pool, const std::string& machine);
  void take_results();
  void take(const Done& done);
  void take_fault(const Done& done, PoolState& pool, Live& live);
  void take_list(const Done& done, PoolState& pool);
  void refuse(PoolState& pool, const std::string& why);
  void publish(const provision::Decisions& decisions);
  /// Waits for what the callback of `begin` gives; nothing: stopped meanwhile.
  template <typename T>
  std::optional<T> wait_for(std::function<void(std::function<void(T)>)> begin);
  Time wall_of(Time monotonic) const;

  const MachinesOptions options_;
  SchedulerAccess access_;
  Records records_;
  std::map<std::string, PoolState> pools_;
  std::map<std::string, Live> live_;
  Prng random_;
  bool unsaved_ = false;  ///< The record on the disk is older than `records_`.
  bool save_failed_ = false;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::vector<Done> results_;
  MachinesView view_;
  std::map<uint32_t, provision::ClassOutlook> outlooks_;
  std::set<std::string> returning_;

  std::unique_ptr<Calls> calls_;
  std::thread thread_;
};

}  // namespace gpusched::machines
