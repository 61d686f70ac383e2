#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/time.h"
#include "node/ports/ports.h"

namespace gpusched {

/// Programs of the operator that run around attempts and judge the node. Paths; empty: none.
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

/// In the environment of all that an agent's hooks start: those of one that was killed are ended by the next,
/// which runs them again.
inline constexpr std::string_view kHookMark = "GPU_SCHEDULER_HOOK_OF=";

/// How a program that was run with a time limit ended.
struct ScriptResult {
  std::string problem;  ///< Empty: it exited with 0. Else one sentence with the end of what it printed.
};

/// Whether to give a program up before its time; asked now and then. May be empty.
using GiveUp = std::function<bool()>;

/// Runs `arguments` in a process group of its own with exactly this environment, and kills the group at the
/// time limit. Its output is read and the end of it kept for the problem's sentence. A program that the
/// kernel does not let go is left behind after a second. Blocks; thread-safe.
ScriptResult run_script(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment, Duration timeout,
                        const GiveUp& give_up = {});

/// Why this agent does not run `program` as a hook: it is root's, and others can change the program. One
/// sentence with what repairs it; empty: it does.
std::string untrusted_hook(const std::string& program);

/// Hooks as programs of this machine, run by threads that exist while there is work: none waits behind
/// another one's. `fault` is what the built-in checks of the caller found, one sentence or empty; called on
/// those threads.
class ScriptHooks final : public NodeHooks {
 public:
  struct Facts {
    std::string node_name;
    std::string data_folder;
    std::vector<std::string> device_uuids;
    std::function<std::string()> fault;
    std::string instance = {};  ///< Instance of the data folder: marks this agent's hooks.
  };
  ScriptHooks(HookOptions options, Facts facts);
  /// Ends what runs; the next agent does it again. A hook that does not end within a second is left behind.
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
    uint32_t device = 0;  ///< Device of kReset.
  };
  /// Readable when something finished.
  int finished_event() const { return shared_->event; }
  std::vector<Finished> take_finished();

 private:
  struct Work {
    Finished::Kind kind = Finished::Kind::kCheck;
    AttemptKey key;
    std::string program;
    std::vector<std::string> environment;
    uint32_t device = 0;
  };
  /// Data of the threads; it outlives the hooks when one of them hangs.
  struct Shared {
    Shared(HookOptions hook_options, Facts hook_facts);
    ~Shared();

    const HookOptions options;
    const Facts facts;
    int event = -1;
    std::atomic<bool> stopping{false};
    std::mutex mutex;  ///< Guards what follows.
    std::condition_variable idle;
    std::deque<Work> queue;
    std::vector<Finished> finished;
    std::size_t workers = 0;
  };
  std::vector<std::string> environment_of(const AttemptKey& key, const std::vector<HeldDevice>& devices,
                                          const char* hook) const;
  void enqueue(Work work);
  static void run_worker(Shared& shared);
  static std::string carry_out(const Shared& shared, const Work& work);
  static std::string check_machine(const Shared& shared);

  const std::shared_ptr<Shared> shared_;
  const HookOptions& options_;
  const Facts& facts_;
};

}  // namespace gpusched
