#include <dlfcn.h>
#include <sys/timex.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "ops/checks.h"
#include "ops/machine.h"

namespace gpusched::ops {
namespace {

constexpr Duration kSkewWarn = milliseconds(500);
constexpr Duration kSkewFail = seconds(5);
constexpr std::string_view kNvidiaVendor = "0x10de";

bool systemd_runs(const Patient& patient) { return exists(patient.root + "/run/systemd/system"); }

/// As the unit does it.
std::string start_command(const Patient& patient) {
  return patient.runs_jobs ? "gpu-agent --config /etc/gpu-scheduler/agent.yaml"
                           : "gpu-scheduler --config /etc/gpu-scheduler/scheduler.yaml --data-dir "
                             "/var/lib/gpu-scheduler";
}

int count_nvidia_gpus(const std::string& root) {
  int count = 0;
  for (const std::string& name : names_in(root + "/sys/bus/pci/devices")) {
    const std::string device = root + "/sys/bus/pci/devices/" + name;
    // Display (VGA) and 3D controllers; a card's audio function is none.
    const std::string kind = read_line(device + "/class").value_or("");
    if (read_line(device + "/vendor").value_or("") == kNvidiaVendor && kind.starts_with("0x03")) ++count;
  }
  return count;
}

/// "535.104.05" out of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ...".
std::string first_version(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t from = text.find_first_of("0123456789", at);
    if (from == std::string::npos) return {};
    const std::size_t end = std::min(text.find_first_not_of("0123456789.", from), text.size());
    const std::string word = text.substr(from, end - from);
    const bool stands_alone = from == 0 || text[from - 1] == ' ';
    if (stands_alone && word.find('.') != std::string::npos) return word;
    at = end;
  }
  return {};
}

/// The version of the NVML library, by its own word or its file's name; `problem` when it cannot be loaded.
std::string library_version(const std::string& library, std::string& problem) {
  void* const handle =
      dlopen(library.empty() ? "libnvidia-ml.so.1" : library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    problem = why == nullptr ? "unknown error" : why;
    return {};
  }
  Dl_info facts{};
  std::string version;
  void* const symbol = dlsym(handle, "nvmlInit_v2");
  if (symbol != nullptr && dladdr(symbol, &facts) != 0 && facts.dli_fname != nullptr) {
    std::error_code failed;
    const std::string name = std::filesystem::canonical(facts.dli_fname, failed).filename().string();
    const std::size_t so = name.find(".so.");
    if (so != std::string::npos && name.find('.', so + 4) != std::string::npos) version = name.substr(so + 4);
  }
  dlclose(handle);
  return version;
}

}  // namespace

Finding check_clock_synchronised() {
  timex state{};
  const int answer = ::adjtimex(&state);
  if (answer < 0)
    return {.check = "clock", .detail = "whether the clock is synchronized cannot be determined here"};
  if (answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0)
    return {.check = "clock", .detail = "synchronised"};
  return {.check = "clock",
          .verdict = Verdict::kWarn,
          .detail = "not synchronized, according to the kernel; times of nodes and logs drift apart",
          .fix = "timedatectl set-ntp true    # or: apt-get install chrony"};
}

Finding check_clock_skew(Duration ahead, Duration uncertainty, const std::string& peer) {
  const int64_t size = std::abs(ahead.ns);
  Finding finding{.check = "skew",
                  .detail = "this clock is " + std::to_string(size / 1'000'000) + " ms " +
                            (ahead.ns < 0 ? "behind " : "ahead of ") + peer + "'s (accurate to " +
                            std::to_string(uncertainty.ms() + 1) + " ms)"};
  if (size <= kSkewWarn.ns + uncertainty.ns) return finding;
  finding.verdict = size > kSkewFail.ns + uncertainty.ns ? Verdict::kFail : Verdict::kWarn;
  finding.fix = "chronyc makestep    # or: timedatectl set-ntp true; on the machine that is wrong";
  return finding;
}

Finding check_port(const Patient& patient, const std::string& key, uint16_t port, int64_t own_pid) {
  Finding finding{.check = "port", .detail = key + " " + std::to_string(port)};
  if (port == 0) {
    finding.detail += ": any free one";
    return finding;
  }
  const std::vector<Listener> found = listeners(patient.root, port);
  if (found.empty()) {
    finding.detail += " is free";
    return finding;
  }
  const std::optional<Holder> holder = holder_of(patient.root, found.front().inode);
  if (holder && own_pid != 0 && holder->pid == own_pid) {
    finding.detail += " is served by this scheduler, process " + std::to_string(own_pid);
    return finding;
  }
  finding.verdict = Verdict::kFail;
  finding.detail += " is held by " +
                    (holder ? "process " + std::to_string(holder->pid) + " (" + holder->name + ")"
                            : std::string("a process that this user cannot see")) +
                    " on " + found.front().address;
  finding.fix = "ss -ltnp 'sport = :" + std::to_string(port) + "'    # stop it, or set another " + key;
  return finding;
}

Finding check_unit(const Patient& patient) {
  const std::string unit = patient.unit + ".service";
  std::string found;
  for (const char* const folder : {"/etc/systemd/system", "/usr/local/lib/systemd/system",
                                   "/usr/lib/systemd/system", "/lib/systemd/system"}) {
    const std::string path = std::string(folder) + "/" + unit;
    if (found.empty() && exists(patient.root + path)) found = path;
  }
  if (!systemd_runs(patient)) {
    return {.check = "systemd",
            .verdict = Verdict::kWarn,
            .detail = "systemd is not running here" +
                      (found.empty() ? std::string() : "; " + found + " depends on it") +
                      ": nothing starts " + patient.unit + " again after a reboot",
            .fix = "nohup " + start_command(patient) + " >> /var/log/" + patient.unit + ".log 2>&1 &"};
  }
  if (found.empty()) {
    return {.check = "systemd",
            .verdict = Verdict::kWarn,
            .detail = unit + " is not installed: nothing starts " + patient.unit + " again after a reboot",
            .fix = "make install && systemctl enable --now " + patient.unit};
  }
  if (exists(patient.root + "/etc/systemd/system/multi-user.target.wants/" + unit))
    return {.check = "systemd", .detail = found + " is enabled"};
  return {.check = "systemd",
          .verdict = Verdict::kWarn,
          .detail = found + " is not enabled: nothing starts it after a reboot",
          .fix = "systemctl enable --now " + patient.unit};
}

std::vector<Finding> check_nvidia(const Patient& patient, const std::string& library) {
  const int gpus = count_nvidia_gpus(patient.root);
  const std::optional<std::string> module = read_text(patient.root + "/proc/driver/nvidia/version");
  std::string problem;
  const std::string of_library = library_version(library, problem);
  if (!module && gpus == 0 && !problem.empty())
    return {{.check = "driver",
             .detail = "no NVIDIA GPU on the PCI bus and no driver: this node offers no GPUs"}};
  if (!module) {
    return {{.check = "driver",
             .verdict = gpus > 0 ? Verdict::kFail : Verdict::kWarn,
             .detail = gpus > 0
                           ? std::to_string(gpus) + " NVIDIA GPUs on the PCI bus, but no driver is loaded"
                           : "NVIDIA's library is installed, but no driver is loaded",
             .fix = "modprobe nvidia; dmesg | grep -i -e nvidia -e NVRM | tail"}};
  }
  const std::string of_module = first_version(*module);
  if (!problem.empty()) {
    return {{.check = "driver",
             .verdict = Verdict::kFail,
             .detail = "driver " + of_module + " is loaded, but its library cannot be loaded: " + problem,
             .fix = "apt-get install libnvidia-ml1    # of version " + of_module}};
  }
  if (!of_library.empty() && of_library != of_module) {
    return {{.check = "driver",
             .verdict = Verdict::kFail,
             .detail = "the kernel module is " + of_module + " and the library " + of_library +
                       ": an upgrade is pending until a reboot",
             .fix = "gpu-cli node drain " + host_name() + " && reboot"}};
  }
  return {{.check = "driver",
           .detail = "NVIDIA driver " + of_module + ", same version of module and library; " +
                     std::to_string(gpus) + " GPUs on the PCI bus"}};
}

}  // namespace gpusched::ops
