#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/time.h"
#include "node/ports.h"

namespace gpusched {

/// What an operator lets run around attempts and to judge the node. Paths of programs; empty: none.
struct HookOptions {
  std::string prolog;          ///< Before each attempt's start; not zero: the node is held.
  std::string epilog;          ///< After each attempt's end, before its devices are released.
  std::string health_script;   ///< With the built-in checks.
  std::string reboot_command;  ///< Run by /bin/sh -c when the scheduler asks for a reboot.
  /// Run by /bin/sh -c with GPU_SCHEDULER_GPU_UUID to reset a device that nothing uses.
  std::string gpu_reset_command = {};
  Duration timeout = seconds(60);
  Duration check_every = minutes(5);  ///< Between checks that pass; failing ones are repeated sooner.
  int64_t disk_free_mb_min = -1;      ///< On the data folder's disk; -1: 512, or 5 % of a small disk.
  Duration clock_skew_max = seconds(60);
};

/// How a program that was run with a time limit ended.
struct ScriptResult {
  std::string problem;  ///< Empty: it exited with 0. Else one sentence with the end of what it printed.
};

/// Runs `arguments` in a process group of its own with exactly this environment, and kills the group at the
/// time limit. What it prints is read and its end kept for the problem's sentence. Blocks; thread-safe.
ScriptResult run_script(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, Duration timeout);

/// Hooks as programs of this machine, run by a few threads that exist while there is work. `fault` is what
/// the built-in checks of the caller found, one sentence or empty; called on those threads.
class ScriptHooks final : public NodeHooks {
 public:
  struct Facts {
    std::string node_name;
    std::string data_folder;
    std::vector<std::string> device_uuids;
    std::function<std::string()> fault;
  };
  ScriptHooks(HookOptions options, Facts facts);
  /// Waits for what runs; each has its time limit.
  ~ScriptHooks() override;

  bool has_prolog() const override { return !options_.prolog.empty(); }
  bool has_epilog() const override { return !options_.epilog.empty(); }
  bool can_reboot() const override { return !options_.reboot_command.empty(); }
  void prolog(const AttemptKey& key, const std::vector<HeldDevice>& devices) override;
  void epilog(const AttemptKey& key, const std::vector<HeldDevice>& devices,
              const v1::Outcome& outcome) override;
  void check() override;
  void reboot(const std::string& reason) override;
  bool can_reset_devices() const override { return !options_.gpu_reset_command.empty(); }
  void reset_device(uint32_t index) override;

  struct Finished {
    enum class Kind : uint8_t { kProlog, kEpilog, kCheck, kReset };
    Kind kind = Kind::kCheck;
    AttemptKey key;
    std::string problem;  ///< Empty: passed.
    uint32_t device = 0;  ///< Of kReset.
  };
  /// Readable when something finished.
  int finished_event() const { return event_; }
  std::vector<Finished> take_finished();

 private:
  struct Work {
    Finished::Kind kind = Finished::Kind::kCheck;
    AttemptKey key;
    std::string program;
    std::vector<std::string> environment;
    uint32_t device = 0;
  };
  std::vector<std::string> environment_of(const AttemptKey& key, const std::vector<HeldDevice>& devices,
                                          const char* hook) const;
  void enqueue(Work work);
  void run_worker();
  std::string carry_out(const Work& work) const;
  std::string check_machine() const;

  const HookOptions options_;
  const Facts facts_;
  int event_ = -1;
  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable idle_;
  std::deque<Work> queue_;
  std::vector<Finished> finished_;
  std::size_t workers_ = 0;
  bool stopping_ = false;
};

}  // namespace gpusched
