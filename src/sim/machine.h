#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "node/core/node_core.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"
#include "sim/context.h"

namespace gpusched::sim {

/// Plan of an attempt's command; packed into its arguments, so that the node's own code carries it.
struct Behaviour {
  std::string tag;
  int64_t runtime_ms = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;                    ///< Not 0: it ends itself by this signal.
  int32_t failing_attempts = 1'000'000;  ///< Attempts that end badly before one ends well.
  bool ignores_term = false;
  int64_t busy_after_ms = 0;  ///< Time that its devices stay busy after its end.
};
std::vector<std::string> to_arguments(const Behaviour& behaviour);
Behaviour from_arguments(const std::vector<std::string>& arguments);

/// One machine with its devices and its shims, which outlive agents: what really happens. NodeCore starts
/// and stops attempts here and reads devices.
class Machine final : public Spawner, public DeviceReader, public SliceMaker {
 public:
  using Input = std::function<void(NodeCore&)>;
  static constexpr int32_t kIdleCelsius = 40;
  /// A MIG slice that is there.
  struct Slice {
    std::string profile;
    MadeSlice made;
    int64_t busy_pid = 0;  ///< Process left in it after a job's end; 0: none.
    uint64_t busy_number = 0;
  };
  struct Gpu {
    DeviceFacts facts;
    v1::DeviceCondition condition = v1::DEVICE_CONDITION_OK;
    std::string detail;
    int32_t celsius = kIdleCelsius;
    std::vector<uint32_t> xids;  ///< Codes that came up and were not read.
    int64_t ecc_uncorrected = 0;
    int64_t busy_pid = 0;  ///< Process left on it after a job's end; 0: none, -1: memory only.
    uint64_t busy_number = 0;
    std::map<int32_t, Slice> slices;  ///< Slices in MIG mode, by their first slots.
  };

  /// `to_agent` hands something to the running agent; it is dropped when there is none or another one.
  Machine(Context& context, std::vector<DeviceFacts> devices, std::function<void(Input)> to_agent);

  void start(SpawnRequest request) override;
  void go(const AttemptKey& key) override;
  void stop(const AttemptKey& key, const StopOrder& order) override;
  void adopt(const std::vector<AttemptKey>& keys) override;
  void set_max_runtime(const AttemptKey& key, Duration limit) override;
  void force_end(const AttemptKey& key) override;
  bool owns(const AttemptKey& key, int64_t pid) override {
    const Process* process = running(key);
    return process != nullptr && process->pid == pid;
  }
  void mark_contact(Duration age) override { contact_at_ = context_.schedule.now() - age; }
  std::optional<DeviceReading> read(uint32_t index) override;
  void make_slice(uint32_t index, const std::string& profile, int32_t start) override;
  void destroy_slice(uint32_t index, const std::string& profile, int32_t start) override;

  /// The driver counts the devices otherwise: `order` has the device of each of the agent's numbers.
  void set_order(std::vector<uint32_t> order) { order_ = std::move(order); }
  uint32_t gpu_of(uint32_t index) const { return order_.at(index); }

  /// Requests on their way to the process that forks shims are done or lost with the agent.
  void agent_dies();
  /// Every process ends; outcomes that were not synced are there or not.
  void power_fails();
  /// Kills one running attempt's shim, if any runs.
  void kill_a_shim();
  /// Stops one: it does nothing that it is told, until the agent ends it or the world heals.
  void stop_a_shim();
  void set_condition(uint32_t index, v1::DeviceCondition condition, const std::string& detail);
  void set_temperature(uint32_t index, int32_t celsius) { gpus_.at(index).celsius = celsius; }
  void note_xid(uint32_t index, uint32_t xid) { gpus_.at(index).xids.push_back(xid); }
  void note_memory_error(uint32_t index) { gpus_.at(index).ecc_uncorrected += 1; }
  /// So many of a thousand starts are refused, as by a system that has rules of its own.
  void set_refusals(uint32_t per_mille) { refusals_ = per_mille; }
  uint64_t refused() const { return refused_; }
  /// Every job dies here soon after its start, or no longer.
  void set_black_hole(bool is) { black_hole_ = is; }
  /// While it is off: MIG mode of this device is switched, if its model has one. Whether it was.
  bool switch_mig(uint32_t index);
  /// While it is off: other GPUs of the same kinds are in the places of all that nothing is left on.
  void replace_gpus();
  /// Nothing is left on any device, all are healthy, and every start is accepted.
  void heal();

  std::size_t gpu_count() const { return gpus_.size(); }
  const Gpu& gpu(uint32_t index) const { return gpus_[index]; }
  bool has(const std::string& uuid) const {
    return std::any_of(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) { return gpu.facts.uuid == uuid; });
  }
  bool is_empty() const;
  /// No reading is under way.
  bool is_read() const { return open_readings_ == 0; }
  /// A device without process, left-over or fault.
  bool is_clean(const std::string& uuid) const;

 private:
  struct Process {
    SpawnRequest request;
    Behaviour behaviour;
    int64_t pid = 0;
    int64_t started_unix_ns = 0;
    Time contact_at;  ///< Since when it is silent, as its shim knows.
    bool alive = false;
    bool stopped = false;  ///< Its shim, and with it everything that a shim does.
    bool deaf = false;     ///< It was told to end meanwhile: only the agent's own hand ends it.
    bool waits = false;    ///< Its shim lives and holds everything; its command waits for its gang.
    v1::Outcome::Cause stopping = v1::Outcome::CAUSE_UNSPECIFIED;
    uint64_t stop_number = 0;  ///< Number of the newest kill timer.
    std::optional<v1::Outcome> outcome;
  };

  void launch(const SpawnRequest& request);
  /// Its command runs.
  void begin(const AttemptKey& key);
  void end_by_itself(const AttemptKey& key);
  void begin_stop(const AttemptKey& key, v1::Outcome::Cause cause, Duration grace);
  void finish(const AttemptKey& key, v1::Outcome outcome);
  void watch_contact(const AttemptKey& key);
  void watch_runtime(const AttemptKey& key, Time started, Duration limit);
  void leave_busy(const Process& process);
  void clear_busy(Gpu& gpu);
  void clear_busy(const Gpu& gpu, int32_t start, Slice& slice);
  void leave_busy(const Process& process, const HeldDevice& device);
  /// Does what the agent asked of a device's slices, in the order in which it asks, and hands on the answer.
  void cut(std::function<Input()> work);
  /// Why there cannot be such a slice; empty: it is there now, or was.
  std::string make(uint32_t index, const std::string& profile, int32_t start);
  std::string destroy(uint32_t index, const std::string& profile, int32_t start);
  std::vector<int64_t> in_slice(uint32_t index, int32_t start) const;
  DeviceReading reading_of(uint32_t index) const;
  static void add_daemons(DeviceReading& reading);
  /// The reading, with codes that the driver tells once.
  DeviceReading take_reading(uint32_t index);
  Process* running(const AttemptKey& key);
  std::optional<AttemptKey> some_running() const;
  /// A word about an attempt to the agent; those about one attempt arrive in order.
  void tell(const AttemptKey& key, Input input);
  /// Runs `action` after `delay` unless power failed meanwhile.
  void later(Duration delay, std::function<void()> action);

  Context& context_;
  std::function<void(Input)> to_agent_;
  std::vector<Gpu> gpus_;
  std::vector<uint32_t> order_;  ///< By the agent's numbers.
  std::map<AttemptKey, Process> processes_;
  std::map<AttemptKey, SpawnRequest> unlaunched_;
  std::map<AttemptKey, Duration> stop_at_launch_;
  std::map<AttemptKey, Time> told_at_;
  int open_readings_ = 0;
  Time cut_at_;  ///< When the newest call about slices is done.
  int32_t next_slice_ = 1;
  bool black_hole_ = false;
  uint32_t refusals_ = 0;  ///< Starts of a thousand.
  uint64_t refused_ = 0;
  bool has_daemons_;
  Time contact_at_;
  uint64_t boot_ = 0;
  uint64_t agent_ = 0;  ///< Counts agents: none hears what was said to the one before.
  int64_t next_pid_ = 100;
  int replaced_ = 0;  ///< How often its GPUs were.
};

}  // namespace gpusched::sim
