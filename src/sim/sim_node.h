#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "node/core/node_core.h"
#include "sim/context.h"
#include "sim/machine.h"
#include "sim/network.h"
#include "sim/store.h"

namespace gpusched::sim {

/// One node: a machine that may lose power, its data folder, and the agents that run on it one after the
/// other, each of them the real NodeCore.
class SimNode final : public AgentEnd, private NodeLink, private AttemptFiles, private HostMeter {
 public:
  SimNode(Context& context, Network& network, std::size_t index, std::vector<DeviceFacts> devices,
          int64_t cpu_milli, int64_t memory_mb);

  void power_on();
  void power_off();
  bool powered() const { return powered_; }
  std::string boot_id() const { return "boot-" + std::to_string(index_) + "-" + std::to_string(boot_); }
  /// `as`: under another node's name; empty: its own.
  void start_agent(const std::string& as = {});
  void kill_agent();
  bool agent_runs() const { return core_ != nullptr; }
  /// The machine, off, gets an empty data folder.
  void reinstall();
  /// The disk under its data folder is full for a while, or fails the next sync.
  void break_disk(Prng& prng);
  void heal_disk();
  /// From its next registration on it is external, and refuses so many of a thousand starts.
  void make_external(uint32_t refusals);
  /// The machine, off, gets the other one's disk as it is now.
  void become_copy_of(const SimNode& other);
  void pause(Duration span) { paused_until_ = context_.schedule.now() + span; }

  /// MIG mode of one of its GPUs was switched once: what could run may have become impossible.
  bool switched() const { return switched_; }
  Machine& machine() { return machine_; }
  const Machine& machine() const { return machine_; }
  const NodeCore* core() const { return core_.get(); }
  /// Reports that agents of this node sent, repeated ones too.
  uint64_t reports_sent() const { return reports_sent_; }

  const std::string& node_name() const { return name_; }
  /// Name of the agent that runs or ran last.
  const std::string& name() const override { return agent_name_; }
  void link_up() override;
  void link_down() override;
  void receive(std::shared_ptr<const v1::SchedulerMessage> message) override;
  bool wants_link() const override { return core_ != nullptr; }

 private:
  void send(const v1::AgentMessage& message) override;
  // Nobody in the simulated world reads output.
  void read(const v1::ReadLog&, AttemptLife) override {}
  void began(const AttemptKey&) override {}
  void ended(const AttemptKey&) override {}
  void forget_reads() override {}
  void remove(const AttemptKey&) override {}
  HostLoad load() override { return {.cpu = 0.5, .memory = 0.25}; }

  struct Memory final : FaultMemory {
    std::string load() override { return text; }
    void save(const std::string& now) override { text = now; }
    std::string text;
  };

  /// The node's own checks, which find nothing wrong: what else took it out of service is over by then.
  struct Checks final : NodeHooks {
    explicit Checks(SimNode& owner) : node(owner) {}
    bool has_prolog() const override { return false; }
    bool has_epilog() const override { return false; }
    bool can_reboot() const override { return false; }
    void prolog(const AttemptKey&, const std::vector<HeldDevice>&) override { UNREACHABLE(); }
    void epilog(const AttemptKey&, const std::vector<HeldDevice>&, const v1::Outcome&) override {
      UNREACHABLE();
    }
    void check() override;
    void reboot(const std::string&) override { UNREACHABLE(); }
    SimNode& node;
  };

  void input(const Machine::Input& input);
  void run_soon(Duration delay);
  void run();
  void wake_at(Time when);

  Context& context_;
  Network& network_;
  const std::size_t index_;
  std::string name_;
  std::string agent_name_;
  std::string instance_;
  const int64_t cpu_milli_;
  const int64_t memory_mb_;
  MachineClock clock_;
  Machine machine_;
  Store store_;
  Memory faults_;
  Checks checks_{*this};
  const bool
      has_checks_;  ///< Where disks are full for a while: a new agent cannot know what an older one said.
  std::unique_ptr<NodeCore> core_;
  std::vector<Machine::Input> inbox_;
  bool powered_ = false;
  bool switched_ = false;
  bool external_ = false;
  uint64_t agent_ = 0;
  uint64_t boot_ = 0;
  uint64_t installation_ = 0;
  bool run_is_near_ = false;
  Time wake_at_ = kNever;
  Time paused_until_;
  uint64_t reports_sent_ = 0;
};

}  // namespace gpusched::sim
