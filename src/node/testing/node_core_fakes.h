#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/core/node_core.h"

/// For tests only: what NodeCore sees of the world, made of values that a test sets and looks at.
namespace gpusched::testing {

class FakeClock final : public Clock {
 public:
  Time monotonic() const override { return now; }
  Time wall() const override { return now + hours(400'000); }
  Time now{1'000'000'000};
};

class FakeLink final : public NodeLink {
 public:
  void send(const v1::AgentMessage& message) override { sent.push_back(message); }
  std::vector<v1::AgentMessage> sent;
};

class FakeSpawner final : public Spawner {
 public:
  void start(SpawnRequest request) override { started.push_back(std::move(request)); }
  void stop(const AttemptKey& key, const StopOrder& order) override {
    stopped.emplace_back(key, order.grace);
    last_order = order;
  }
  StopOrder last_order;
  void go(const AttemptKey& key) override { gone.push_back(key); }
  std::vector<AttemptKey> gone;
  void adopt(const std::vector<AttemptKey>& keys) override { adopted = keys; }
  void set_max_runtime(const AttemptKey& key, Duration limit) override {
    new_limits.emplace_back(key, limit);
  }
  std::vector<std::pair<AttemptKey, Duration>> new_limits;
  void mark_contact(Duration age) override {
    contacts += 1;
    contact_age = age;
  }
  std::vector<SavedWork> saved() override { return said_saved; }
  std::vector<SavedWork> said_saved;
  bool owns(const AttemptKey& key, int64_t pid) override { return owned.contains({key, pid}); }
  std::set<std::pair<AttemptKey, int64_t>> owned;
  std::size_t tasks_beside(const AttemptKey&) override { return beside; }
  std::size_t beside = 1;
  void force_end(const AttemptKey& key) override { forced.push_back(key); }
  void replace_server() override { replaced += 1; }
  std::vector<AttemptKey> forced;
  int replaced = 0;
  std::vector<SpawnRequest> started;
  std::vector<std::pair<AttemptKey, Duration>> stopped;
  std::optional<std::vector<AttemptKey>> adopted;
  int contacts = 0;
  Duration contact_age;
};

/// Keeps its image like a disk: what was flushed is there for the next core.
class FakeStore final : public AttemptStore {
 public:
  uint64_t append(const StoreRecord& record) override {
    pending.push_back(record);
    return ++position;
  }
  bool flush() override {
    if (full) return false;
    for (const StoreRecord& record : pending) disk.apply(record);
    pending.clear();
    return true;
  }
  void sync() override {
    EXPECT_TRUE(pending.empty());
    sync_asked = position;
  }
  StoreImage disk;
  std::vector<StoreRecord> pending;
  uint64_t position = 0;
  uint64_t sync_asked = 0;
  bool full = false;
};

class FakeFiles final : public AttemptFiles {
 public:
  void read(const v1::ReadLog& order, AttemptLife life) override { reads.emplace_back(order, life); }
  Result<Unit> keep_payload(const AttemptKey& key, std::string_view payload) override {
    if (full) return Error{.code = ErrorCode::kIo, .message = "no space"};
    payloads[key] = payload;
    return Unit{};
  }
  void began(const AttemptKey& key) override { running.insert(key); }
  void ended(const AttemptKey& key) override {
    running.erase(key);
    over.push_back(key);
  }
  void forget_reads() override { reads.clear(); }
  void remove(const AttemptKey& key) override { removed.push_back(key); }
  void note_time(Time wall) override { confirmed = wall; }
  std::optional<Time> confirmed;  ///< The wall time that was confirmed last.

  bool full = false;
  std::map<AttemptKey, std::string> payloads;
  std::vector<std::pair<v1::ReadLog, AttemptLife>> reads;
  std::set<AttemptKey> running;
  std::vector<AttemptKey> over;
  std::vector<AttemptKey> removed;
};

class FakeDevices final : public DeviceReader {
 public:
  std::optional<DeviceReading> read(uint32_t index) override {
    if (slow) return std::nullopt;
    return readings[index];
  }
  bool slow = false;
  std::map<uint32_t, DeviceReading> readings;
};

/// Remembers what was asked of it; the test answers.
class FakeSlices final : public SliceMaker {
 public:
  struct Call {
    uint32_t index = 0;
    std::string profile;
    int32_t start = 0;
    friend bool operator==(const Call&, const Call&) = default;
  };
  void make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    made.push_back({index, profile, start});
  }
  void destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    destroyed.push_back({index, profile, start});
  }
  std::vector<Call> made, destroyed;
};

class FakeHost final : public HostMeter {
 public:
  HostLoad load() override { return {.cpu = 0.5, .memory = 0.25}; }
};

class FakeHooks final : public NodeHooks {
 public:
  bool has_prolog() const override { return with_prolog; }
  bool has_epilog() const override { return with_epilog; }
  bool can_reboot() const override { return true; }
  void prolog(const AttemptKey& key, const std::vector<HeldDevice>&) override { prologs.push_back(key); }
  void epilog(const AttemptKey& key, const std::vector<HeldDevice>&, const v1::Outcome&) override {
    epilogs.push_back(key);
  }
  void check() override { checks += 1; }
  void reboot(const std::string& reason) override { reboots.push_back(reason); }
  bool with_prolog = false;
  bool with_epilog = false;
  std::vector<AttemptKey> prologs;
  std::vector<AttemptKey> epilogs;
  std::vector<std::string> reboots;
  int checks = 0;
};

/// One data folder and the agents that live on it, one after the other.
class Node {
 public:
  explicit Node(std::size_t finished_kept = 100) : finished_kept_(finished_kept) { begin("boot-1"); }

  void begin(const std::string& boot_id) {
    link.sent.clear();
    store.pending.clear();
    store.position = 0;
    NodeOptions options{.node_name = "n1", .instance = "i1", .boot_id = boot_id, .version = "test"};
    options.devices = {{.uuid = "GPU-0", .model = "A100", .memory_mb = 1000},
                       {.uuid = "GPU-1", .model = "A100", .memory_mb = 1000, .mig = use_slices}};
    if (swapped) std::swap(options.devices[0], options.devices[1]);
    options.finished_kept = finished_kept_;
    core.emplace(options,
                 NodePorts{.clock = clock,
                           .link = link,
                           .spawner = spawner,
                           .store = store,
                           .files = files,
                           .devices = devices,
                           .host = host,
                           .hooks = use_hooks ? &hooks : nullptr,
                           .slices = use_slices ? &slices : nullptr},
                 StoreImage(store.disk));
    core->settle();
    core->on_tick();
    core->settle();
  }

  void connect() {
    core->on_link_up();
    v1::SchedulerMessage message;
    message.mutable_registered()->set_heartbeat_ms(1000);
    receive(message);
  }
  void receive(const v1::SchedulerMessage& message) {
    core->on_message(message);
    core->settle();
  }
  void order_start(const AttemptKey& key, std::vector<HeldDevice> held = {}) {
    v1::JobSpec spec;
    spec.add_command("/bin/true");
    order_start(key, spec, std::move(held));
  }
  void order_start(const AttemptKey& key, const v1::JobSpec& spec, const std::vector<HeldDevice>& held,
                   const std::string& payload = {}) {
    v1::SchedulerMessage message;
    v1::StartAttempt& start = *message.mutable_start();
    start.set_payload(payload);
    *start.mutable_key() = to_wire(key);
    start.set_spec(spec.SerializeAsString());
    for (const HeldDevice& device : held) {
      v1::GrantedDevice& granted = *start.add_devices();
      granted.set_index(device.index);
      granted.set_generation(device.generation);
      granted.set_uuid("GPU-" + std::to_string(device.index));
      granted.set_share_milli(device.milli);
      granted.set_share_memory_mb(device.memory_mb);
      granted.set_mig_profile(device.mig_profile);
      granted.set_mig_start(device.mig_start);
    }
    receive(message);
  }
  void order_stop(const AttemptKey& key, uint32_t signal = 0) {
    v1::SchedulerMessage message;
    *message.mutable_stop()->mutable_key() = to_wire(key);
    message.mutable_stop()->set_grace_ms(3000);
    message.mutable_stop()->set_signal(signal);
    message.mutable_stop()->set_until_saved(signal != 0);
    receive(message);
  }
  void end(const AttemptKey& key, int exit_code = 0) {
    v1::Outcome outcome;
    outcome.set_cause(v1::Outcome::EXITED);
    outcome.set_exit_code(exit_code);
    core->on_shim_ended(key, outcome);
    core->settle();
  }
  void sync() {
    core->on_synced(store.sync_asked);
    core->settle();
  }
  void pass(Duration span) {
    const Time until = clock.now + span;
    while (core->next_deadline() <= until) {
      clock.now = std::max(clock.now, core->next_deadline());
      core->on_tick();
      core->settle();
    }
    clock.now = until;
  }

  std::vector<v1::Report> reports(v1::Report::WhatCase what) const {
    std::vector<v1::Report> found;
    for (const v1::AgentMessage& message : link.sent) {
      if (message.has_report() && message.report().what_case() == what) found.push_back(message.report());
    }
    return found;
  }
  std::size_t count(v1::Report::WhatCase what) const { return reports(what).size(); }
  void acknowledge_all() {
    v1::SchedulerMessage message;
    for (const v1::AgentMessage& sent : link.sent) {
      if (sent.has_report()) message.mutable_ack()->add_report_ids(sent.report().id());
    }
    receive(message);
  }
  v1::Outcome last_outcome() const { return reports(v1::Report::kEnded).back().ended().outcome(); }

  FakeClock clock;
  FakeLink link;
  FakeSpawner spawner;
  FakeStore store;
  FakeFiles files;
  FakeDevices devices;
  FakeHost host;
  FakeHooks hooks;
  bool use_hooks = false;
  FakeSlices slices;
  bool use_slices = false;
  bool swapped = false;  ///< The next agent finds its devices in another order.
  std::optional<NodeCore> core;

 private:
  std::size_t finished_kept_;
};

}  // namespace gpusched::testing
