#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/node_core.h"

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
  void start(const SpawnRequest& request) override { started.push_back(request); }
  void stop(const AttemptKey& key, const StopOrder& order) override {
    stopped.emplace_back(key, order.grace);
    last_order = order;
  }
  StopOrder last_order;
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
  void began(const AttemptKey& key) override { running.insert(key); }
  void ended(const AttemptKey& key) override {
    running.erase(key);
    over.push_back(key);
  }
  void forget_reads() override { reads.clear(); }
  void remove(const AttemptKey& key) override { removed.push_back(key); }

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

}  // namespace gpusched::testing
