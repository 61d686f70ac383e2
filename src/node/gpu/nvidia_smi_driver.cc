#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>

#include "log/log.h"
#include "model/mig.h"
#include "node/gpu/gpu_driver.h"
#include "node/gpu/nvidia_smi_mig.h"
#include "node/gpu/nvidia_smi_text.h"

extern char** environ;

// GPUs by the text of nvidia-smi, where NVML's library cannot be loaded. The queries are those of
// `nvidia-smi --help-query-gpu` and `--help-query-compute-apps`.
namespace gpusched {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kPatience = seconds(10);
// Exit statuses of nvidia-smi(1).
constexpr int kNoDriver = 9;
constexpr int kNoLibrary = 12;
constexpr int kNoProgram = 127;
constexpr std::size_t kOutputBytesMax = 1 << 20;
/// Devices that are asked alone when the list of all fails.
constexpr uint32_t kAskedAloneMax = 16;
/// Readings of all devices within so long come from one run.
constexpr auto kFresh = std::chrono::milliseconds(500);
constexpr const char* kFormat = "--format=csv,noheader,nounits";
struct Ran {
  int status = 0;  ///< 0: well.
  bool timed_out = false;
  std::string out;
};

/// The result of a run, as one line.
std::string reason_of(const Ran& ran) {
  if (ran.timed_out) return "nvidia-smi did not answer in time; the driver may hang";
  if (const std::string line = smi::first_line(ran.out); !line.empty()) return line;
  return "nvidia-smi ended with status " + std::to_string(ran.status) + " without output";
}

/// Takes all that a descriptor gives until its end; false: the deadline came first.
bool read_until(int descriptor, Clock::time_point deadline, std::string& out) {
  std::array<char, 4096> piece;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd source{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = poll(&source, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t size = read(descriptor, piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    if (out.size() < kOutputBytesMax) out.append(piece.data(), static_cast<std::size_t>(size));
  }
}

/// Waits for a child until the deadline, then kills it. One that the kernel holds is left behind.
void reap(pid_t child, Clock::time_point deadline, Ran& ran) {
  int status = 0;
  while (!ran.timed_out) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return;
    }
    if (ended < 0 && errno != EINTR) return;
    if (Clock::now() >= deadline) break;
    poll(nullptr, 0, 5);
  }
  ran.timed_out = true;
  ran.status = -1;
  kill(child, SIGKILL);
  for (int i = 0; i < 20 && waitpid(child, &status, WNOHANG) == 0; ++i) poll(nullptr, 0, 5);
}

Ran run_program(const std::string& program, std::vector<std::string> arguments, Duration patience) {
  Ran ran;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {.status = -1, .out = std::strerror(errno)};
  arguments.insert(arguments.begin(), program);
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int failed = posix_spawnp(&child, program.c_str(), &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return {.status = failed == ENOENT ? kNoProgram : kNoProgram - 1,
            .out = program + ": " + std::strerror(failed)};
  }
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(patience.ns);
  ran.timed_out = !read_until(ends[0], deadline, ran.out);
  close(ends[0]);
  reap(child, deadline, ran);
  return ran;
}

class SmiDriver final : public GpuDriver {
 public:
  SmiDriver(std::string program, Duration patience) : program_(std::move(program)), patience_(patience) {}

  std::string_view name() const override { return "nvidia-smi"; }
  const std::vector<DeviceFacts>& inventory() const override { return facts_; }
  const DeviceTopology& topology() const override { return topology_; }
  bool may_block() const override { return true; }

  Result<Unit> take_inventory() {
    const Ran ran = query(smi::kGpuQuery);
    if (ran.status == kNoProgram)
      return Error{.code = ErrorCode::kNotFound, .message = "there is no " + program_};
    if (ran.status == kNoDriver || ran.status == kNoLibrary)
      return Error{.code = ErrorCode::kNotFound, .message = reason_of(ran)};
    const bool none = ran.out.find("No devices were found") != std::string::npos;
    if (none) return Error{.code = ErrorCode::kNotFound, .message = "nvidia-smi does not find any device"};
    Result<std::vector<DeviceFacts>> facts = smi::devices_of(ran.status == 0 ? ran.out : each_alone(ran));
    if (ran.status != 0 && !facts.ok())
      return Error{.code = ErrorCode::kUnavailable, .message = reason_of(ran)};
    if (!facts) return facts.error();
    facts_ = std::move(*facts);
    if (const Ran slots = query(smi::kSlotQuery); slots.status == 0) {
      const std::map<std::string, std::string> known = smi::slots_by_uuid(slots.out);
      for (DeviceFacts& device : facts_) {
        if (const auto found = known.find(device.uuid); found != known.end()) device.pci_slot = found->second;
      }
    }
    take_mig_modes();
    take_topology();
    return Unit{};
  }

  DeviceReading read(uint32_t index) override {
    const std::string& uuid = facts_.at(index).uuid;
    if (rows_.empty() || Clock::now() - read_at_ > kFresh || asked_.contains(index)) look();
    asked_.insert({index, true});
    const auto row = rows_.find(uuid);
    if (row != rows_.end()) return with_slices(index, reading_of(row->second, uuid));
    if (trouble_.empty()) return missing("nvidia-smi no longer lists it");
    // One lost device may spoil the list of all: this one is asked alone.
    const Ran alone = query(smi::kGpuQuery, "--id=" + uuid);
    if (alone.status != 0) return missing(reason_of(alone));
    const std::map<std::string, smi::Row> rows = smi::rows_by_uuid(alone.out);
    if (const auto own = rows.find(uuid); own != rows.end())
      return with_slices(index, reading_of(own->second, uuid));
    return missing("nvidia-smi no longer lists it");
  }

  Result<std::vector<SliceReading>> slices(uint32_t index) override {
    look_at_slices();
    return slices_seen(index);
  }

  Result<MadeSlice> make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    const DeviceFacts& facts = facts_.at(index);
    const mig::Table* const table = mig::table_of(facts.model, facts.memory_mb);
    const mig::Profile* const wanted = table == nullptr ? nullptr : table->profile(profile);
    if (wanted == nullptr || !facts.mig)
      return trouble("a " + facts.model + " has no such profile, or is not in MIG mode");
    const std::string what = std::to_string(wanted->id) + ':' + std::to_string(start);
    const Ran ran = run_mig(index, {"-cgi", what, "-C"});
    const Result<std::vector<SliceReading>> now = slices(index);
    if (!now) return now.error();
    const auto made = std::find_if(now->begin(), now->end(), [&](const SliceReading& slice) {
      return slice.start == start && slice.profile == profile;
    });
    if (ran.status == 0 && made != now->end() && !made->made.uuid.empty()) return made->made;
    // An instance without a compute instance is of no use.
    if (made != now->end() && made->made.uuid.empty()) {
      [[maybe_unused]] const Result<Unit> gone = destroy_slice(index, profile, start);
    }
    return ran.status == 0 ? trouble("nvidia-smi does not list the MIG instance that it created")
                           : trouble(why_not(ran));
  }

  Result<Unit> destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    const Result<std::vector<SliceReading>> now = slices(index);
    if (!now) return now.error();
    for (const SliceReading& slice : *now) {
      if (slice.start != start || slice.profile != profile) continue;
      const std::string instance = std::to_string(slice.made.gpu_instance);
      if (slice.made.compute_instance >= 0) {
        const Ran compute = run_mig(index, {"-dci", "-gi", instance});
        if (compute.status != 0) return trouble(why_not(compute));
      }
      const Ran ran = run_mig(index, {"-dgi", "-gi", instance});
      if (ran.status != 0) return trouble(why_not(ran));
    }
    return Unit{};
  }

 private:
  static Error trouble(const std::string& why) {
    return Error{.code = ErrorCode::kUnavailable, .message = why};
  }

  /// The last line says what it comes to.
  static std::string why_not(const Ran& ran) {
    std::string why = reason_of(ran);
    for (std::size_t from = 0; !ran.timed_out && from < ran.out.size();) {
      const std::string line = smi::first_line(std::string_view(ran.out).substr(from));
      if (line.starts_with("Failed to") || line.starts_with("Unable to")) why = line;
      from = std::min(ran.out.find('\n', from), ran.out.size() - 1) + 1;
    }
    if (why.find("Insufficient Permissions") != std::string::npos) why += ": run gpu-agent as root";
    return why;
  }

  /// One lost device may spoil the list of all: the rows of those that answer when they are asked alone.
  std::string each_alone(const Ran& all) const {
    std::string rows;
    for (uint32_t number = 0; !all.timed_out && number < kAskedAloneMax; ++number) {
      const Ran ran = query(smi::kGpuQuery, "--id=" + std::to_string(number));
      if (ran.timed_out || ran.out.find("No devices were found") != std::string::npos) break;
      if (ran.status == 0) {
        rows += ran.out;
        continue;
      }
      log_event(LogLevel::kError, "agent", "gpu_not_readable", {},
                {{"number", number}, {"why", reason_of(ran)}});
    }
    return rows;
  }

  Ran run_mig(uint32_t index, std::vector<std::string> what) const {
    what.insert(what.begin(), "mig");
    what.insert(what.end(), {"-i", std::to_string(modes_.at(facts_.at(index).uuid).index)});
    return run_program(program_, std::move(what), patience_);
  }

  /// Drivers that do not know the question have no GPU in MIG mode.
  void take_mig_modes() {
    const Ran ran = query(smi::kMigQuery);
    if (ran.status != 0) return;
    modes_ = smi::mig_modes(ran.out);
    for (DeviceFacts& device : facts_) {
      const auto mode = modes_.find(device.uuid);
      if (mode == modes_.end()) continue;
      device.mig = mode->second.on;
      device.mig_pending = mode->second.changes;
      any_mig_ = any_mig_ || device.mig;
    }
  }

  void look_at_slices() {
    slices_trouble_.clear();
    const Ran instances = run_program(program_, {"mig", "-lgi"}, patience_);
    const bool none = smi::says_none(instances.out);
    if (instances.status != 0 && !none) {
      slices_trouble_ = "its MIG instances cannot be listed: " + why_not(instances);
      return;
    }
    instances_text_ = none ? std::string() : instances.out;
    const Ran tables = run_program(program_, {}, patience_);
    const Ran list = tables.status == 0 ? run_program(program_, {"-L"}, patience_) : tables;
    if (list.status != 0) slices_trouble_ = "its MIG instances cannot be listed: " + reason_of(list);
    tables_text_ = tables.out;
    list_text_ = list.out;
  }

  Result<std::vector<SliceReading>> slices_seen(uint32_t index) const {
    const DeviceFacts& facts = facts_.at(index);
    if (!slices_trouble_.empty()) return trouble(slices_trouble_);
    if (!facts.mig) return std::vector<SliceReading>{};
    return smi::slices_of(modes_.at(facts.uuid).index, facts.model, facts.memory_mb, instances_text_,
                          tables_text_, list_text_);
  }

  /// Without them nobody knows whether one is empty.
  DeviceReading with_slices(uint32_t index, DeviceReading reading) const {
    if (!facts_[index].mig || reading.condition != v1::DEVICE_CONDITION_OK) return reading;
    Result<std::vector<SliceReading>> found = slices_seen(index);
    if (found) {
      reading.slices = std::move(*found);
    } else {
      reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      reading.detail = found.error().message;
    }
    return reading;
  }

  /// Reads the topology; jobs do without what it cannot tell.
  void take_topology() {
    const Ran ran = run_program(program_, {"topo", "-m"}, patience_);
    if (ran.status != 0) {
      topology_.note = "the links between the GPUs are unknown: " + reason_of(ran);
      return;
    }
    Result<DeviceTopology> read = smi::topology_of(ran.out, facts_.size(), facts_.front().model);
    if (!read) {
      topology_.note = "the links between the GPUs are unknown: " + read.error().message;
      return;
    }
    topology_ = std::move(*read);
    for (std::size_t i = 0; i < facts_.size(); ++i) facts_[i].numa_node = topology_.numa_nodes[i];
  }

  Ran query(const std::string& what, const std::string& which = {}) const {
    std::vector<std::string> arguments = {what, kFormat};
    if (!which.empty()) arguments.push_back(which);
    return run_program(program_, std::move(arguments), patience_);
  }

  static DeviceReading missing(const std::string& why) {
    return {.condition = v1::DEVICE_CONDITION_MISSING, .detail = why};
  }

  /// Asks for all devices and all that computes on them.
  void look() {
    rows_.clear();
    processes_.clear();
    asked_.clear();
    trouble_.clear();
    processes_trouble_.clear();
    const Ran gpus = query(smi::kGpuQuery);
    read_at_ = Clock::now();
    if (gpus.status != 0) {
      trouble_ = reason_of(gpus);
    } else {
      rows_ = smi::rows_by_uuid(gpus.out);
    }
    // A driver that hangs is not asked a second time.
    const Ran apps = gpus.timed_out ? gpus : query(smi::kAppsQuery);
    if (apps.status != 0) processes_trouble_ = reason_of(apps);
    process_memory_.clear();
    if (apps.status == 0) {
      processes_ = smi::processes_by_uuid(apps.out);
      process_memory_ = smi::process_memory_by_uuid(apps.out);
    }
    if (any_mig_ && !gpus.timed_out) look_at_slices();
    read_at_ = Clock::now();
  }

  DeviceReading reading_of(const smi::Row& row, const std::string& uuid) const {
    const auto found = processes_.find(uuid);
    DeviceReading reading = smi::reading_of(
        row, found == processes_.end() ? std::vector<int64_t>{} : found->second, processes_trouble_);
    if (const auto memory = process_memory_.find(uuid); memory != process_memory_.end())
      reading.process_memory_mb = memory->second;
    return reading;
  }

  const std::string program_;
  const Duration patience_;
  std::vector<DeviceFacts> facts_;
  DeviceTopology topology_;
  std::map<std::string, smi::Row> rows_;  ///< By uuid, of the last look.
  std::map<std::string, std::vector<int64_t>> processes_;
  std::map<std::string, std::vector<int64_t>> process_memory_;
  std::map<uint32_t, bool> asked_;             ///< Devices that got the last look: none gets it twice.
  std::map<std::string, smi::MigMode> modes_;  ///< By uuid.
  bool any_mig_ = false;
  std::string instances_text_, tables_text_, list_text_;  ///< Its last output about slices.
  std::string slices_trouble_;
  std::string trouble_;  ///< Why the last look failed.
  std::string processes_trouble_;
  Clock::time_point read_at_{};
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> open_nvidia_smi_driver(const std::string& program, Duration patience) {
  auto driver = std::make_unique<SmiDriver>(program.empty() ? "nvidia-smi" : program, patience);
  if (const Result<Unit> taken = driver->take_inventory(); !taken) return taken.error();
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

Result<std::unique_ptr<GpuDriver>> open_real_driver(const std::string& nvml_library,
                                                    const std::string& nvidia_smi) {
  Result<std::unique_ptr<GpuDriver>> nvml = open_nvml_driver(nvml_library);
  if (nvml.ok() || nvml.error().code != ErrorCode::kNotFound) return nvml;
  Result<std::unique_ptr<GpuDriver>> smi = open_nvidia_smi_driver(nvidia_smi, kPatience);
  if (smi.ok() || smi.error().code != ErrorCode::kNotFound) return smi;
  return nvml;
}

}  // namespace gpusched
