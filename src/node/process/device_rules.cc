#include "node/process/device_rules.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "node/process/cgroup_tree.h"

namespace gpusched {
namespace {

constexpr int32_t kNvidiaMajor = 195;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool parse_number(std::string_view text, int32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

/// The value behind "Name:" on its line.
std::string value_of(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  if (at == std::string::npos) return {};
  const std::size_t from = text.find_first_not_of(" \t", at + name.size());
  if (from == std::string::npos || text[from] == '\n') return {};
  const std::string value = text.substr(from, text.find('\n', from) - from);
  return value.substr(0, value.find_last_not_of(" \t") + 1);
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

/// The minor among the nvidia-caps devices that an "access" file names.
void append_minor(const std::filesystem::path& file, std::vector<int32_t>& minors) {
  int32_t minor = -1;
  if (parse_number(value_of(read_text(file), "DeviceFileMinor:"), minor) && minor >= 0)
    minors.push_back(minor);
}

/// The major of a character device as /proc/devices names it; -1: none.
int32_t major_of(const std::string& devices, const std::string& name) {
  std::size_t at = devices.find(' ' + name + '\n');
  if (at == std::string::npos) return -1;
  const std::size_t from = devices.find_last_not_of("0123456789", at - 1) + 1;
  int32_t major = -1;
  return parse_number(std::string_view(devices).substr(from, at - from), major) ? major : -1;
}

}  // namespace

std::map<std::string, GpuPlace> find_gpu_places(const std::string& root) {
  std::map<std::string, GpuPlace> places;
  for (const auto& folder : entries_of(root + "/proc/driver/nvidia/gpus")) {
    const std::string text = read_text(folder / "information");
    const std::string uuid = value_of(text, "GPU UUID:");
    if (uuid.empty()) continue;
    GpuPlace& place = places[uuid];
    int32_t minor = -1;
    if (parse_number(value_of(text, "Device Minor:"), minor)) place.minor = minor;
    const std::string bus = value_of(text, "Bus Location:");
    const std::string name = bus.empty() ? folder.filename().string() : bus;
    place.cores = parse_cores(read_text(root + "/sys/bus/pci/devices/" + name + "/local_cpulist"));
  }
  return places;
}

std::optional<shim::DeviceRule> rule_of_node(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0 || (!S_ISCHR(facts.st_mode) && !S_ISBLK(facts.st_mode))) {
    return std::nullopt;
  }
  return shim::DeviceRule{.block = S_ISBLK(facts.st_mode),
                          .major = static_cast<int32_t>(major(facts.st_rdev)),
                          .minor = static_cast<int32_t>(minor(facts.st_rdev))};
}

std::optional<shim::DeviceRule> parse_device_rule(const std::string& text) {
  if (text.starts_with('/')) return rule_of_node(text);
  if (text.size() < 5 || (text[0] != 'c' && text[0] != 'b') || text[1] != ' ') return std::nullopt;
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::size_t space = std::min(text.find(' ', colon), text.size());
  shim::DeviceRule rule{.block = text[0] == 'b'};
  const auto number = [](const std::string& part, int32_t& value) {
    return part == "*" || (parse_number(part, value) && value >= 0);
  };
  if (!number(text.substr(2, colon - 2), rule.major)) return std::nullopt;
  if (!number(text.substr(colon + 1, space - colon - 1), rule.minor)) return std::nullopt;
  if (space == text.size()) return rule;
  const std::string access = text.substr(space + 1);
  if (access.empty() || access.find_first_not_of("rwm") != std::string::npos) return std::nullopt;
  rule.read = access.find('r') != std::string::npos;
  rule.write = access.find('w') != std::string::npos;
  rule.make = access.find('m') != std::string::npos;
  return rule;
}

std::vector<shim::DeviceRule> common_device_rules() {
  std::vector<shim::DeviceRule> rules = {
      {.read = false, .write = false},
      {.block = true, .read = false, .write = false},
      {.major = 1, .minor = 3},
      {.major = 1, .minor = 5},
      {.major = 1, .minor = 7},
      {.major = 1, .minor = 8},
      {.major = 1, .minor = 9},
      {.major = 5, .minor = 0},
      {.major = 5, .minor = 1},
      {.major = 5, .minor = 2},
      {.major = 10, .minor = 200},
      {.major = 10, .minor = 229},
      {.major = 136}};  // Pseudo-terminals: since Linux 2.6 all have this major, and 137 to 143 are nobody's.
  for (const auto& node : entries_of("/dev/infiniband")) {
    if (const auto rule = rule_of_node(node.string())) rules.push_back(*rule);
  }
  return rules;
}

std::vector<int32_t> mig_minors(const NvidiaGrant& grant, const std::string& root) {
  const std::filesystem::path folder =
      root + "/proc/driver/nvidia/capabilities/gpu" + std::to_string(grant.minor);
  std::vector<int32_t> minors;
  if (grant.gpu_instance >= 0) {
    const std::filesystem::path instance = folder / "mig" / ("gi" + std::to_string(grant.gpu_instance));
    append_minor(instance / "access", minors);
    append_minor(instance / ("ci" + std::to_string(grant.compute_instance)) / "access", minors);
    return minors;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.path().filename() == "access") append_minor(entry.path(), minors);
  }
  return minors;
}

std::vector<shim::DeviceRule> nvidia_device_rules(const std::vector<NvidiaGrant>& grants,
                                                  const std::string& root) {
  std::vector<shim::DeviceRule> rules;
  if (grants.empty()) return rules;
  for (const NvidiaGrant& grant : grants) rules.push_back({.major = kNvidiaMajor, .minor = grant.minor});
  rules.push_back({.major = kNvidiaMajor, .minor = 254});  // nvidia-modeset
  rules.push_back({.major = kNvidiaMajor, .minor = 255});  // nvidiactl
  const std::string devices = read_text(root + "/proc/devices");
  if (const int32_t major = major_of(devices, "nvidia-uvm"); major >= 0) rules.push_back({.major = major});
  if (const int32_t major = major_of(devices, "nvidia-caps"); major >= 0) {
    for (const NvidiaGrant& grant : grants) {
      for (const int32_t minor : mig_minors(grant, root)) rules.push_back({.major = major, .minor = minor});
    }
  }
  return rules;
}

}  // namespace gpusched
