#include "node/gpu/nvidia_smi_mig.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "model/mig.h"

namespace gpusched::smi {
namespace {

constexpr std::size_t kUuidBytesMax = 96;

/// The words of each line, frames of tables left out.
std::vector<std::vector<std::string>> lines_of(std::string_view text) {
  std::vector<std::vector<std::string>> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    std::replace_if(line.begin(), line.end(), [](char c) { return c == '|' || c == ','; }, ' ');
    std::istringstream in(line);
    std::vector<std::string>& words = lines.emplace_back();
    for (std::string word; in >> word;) words.push_back(std::move(word));
  }
  return lines;
}

template <typename Number>
std::optional<Number> number_of(std::string_view word) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 0) return std::nullopt;
  return value;
}

/// The first so many words as numbers.
std::optional<std::vector<int64_t>> numbers_of(const std::vector<std::string>& words, std::size_t count) {
  std::vector<int64_t> numbers;
  for (std::size_t i = 0; i < count; ++i) {
    const auto number = i < words.size() ? number_of<int32_t>(words[i]) : std::nullopt;
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

/// The text between `begin` and `end`; empty when `begin` is not there.
std::string_view section_of(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t from = text.find(begin);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find(end, from) - from);
}

std::string name_of(const mig::Table* table, int32_t profile_id) {
  if (table != nullptr) {
    for (const mig::Profile& profile : table->profiles) {
      if (profile.id == profile_id) return std::string(profile.name);
    }
  }
  return "profile-" + std::to_string(profile_id);
}

}  // namespace

std::map<std::string, MigMode> mig_modes(std::string_view text) {
  std::map<std::string, MigMode> modes;
  for (const std::vector<std::string>& words : lines_of(text)) {
    if (words.size() != 4 || (words[2] != "Enabled" && words[2] != "Disabled")) continue;
    const auto index = number_of<int32_t>(words[1]);
    if (!index) continue;
    modes[words[0]] = {
        .index = static_cast<uint32_t>(*index), .on = words[2] == "Enabled", .changes = words[3] != words[2]};
  }
  return modes;
}

// "|   0  MIG 1g.5gb          19        9          2:1     |"
std::vector<GpuInstance> gpu_instances(std::string_view text) {
  std::vector<GpuInstance> found;
  for (const std::vector<std::string>& words : lines_of(text)) {
    if (words.size() < 6 || words[1] != "MIG") continue;
    const std::string& placement = words.back();
    const auto gpu = number_of<int32_t>(words[0]);
    const auto profile = number_of<int32_t>(words[words.size() - 3]);
    const auto instance = number_of<int32_t>(words[words.size() - 2]);
    const auto start = number_of<int32_t>(std::string_view(placement).substr(0, placement.find(':')));
    if (!gpu || !profile || !instance || !start || placement.find(':') == std::string::npos) continue;
    found.push_back(
        {.gpu = static_cast<uint32_t>(*gpu), .profile = *profile, .instance = *instance, .start = *start});
  }
  return found;
}

bool says_none(std::string_view text) {
  const auto says = [text](std::string_view what) { return text.find(what) != std::string_view::npos; };
  return (says("No GPU instances found") || says("No MIG-enabled devices found")) && !says("Insufficient") &&
         !says("Failed to");
}

// "|  0    2   0   0  |     11MiB / 20096MiB | 42      0 |  3   0    2    0    0 |"
std::vector<MigDevice> mig_devices(std::string_view text) {
  std::vector<MigDevice> found;
  for (const std::vector<std::string>& words : lines_of(section_of(text, "MIG devices:", "Processes:"))) {
    const auto numbers = numbers_of(words, 4);
    if (!numbers || words.size() < 5) continue;
    const auto used = number_of<int64_t>(std::string_view(words[4]).substr(0, words[4].find("MiB")));
    found.push_back({.gpu = static_cast<uint32_t>((*numbers)[0]),
                     .instance = static_cast<int32_t>((*numbers)[1]),
                     .compute_instance = static_cast<int32_t>((*numbers)[2]),
                     .device = static_cast<int32_t>((*numbers)[3]),
                     .memory_used_mb = used.value_or(0)});
  }
  return found;
}

// "|    0    7    0      39214      C   /usr/bin/python3                 1024MiB |"
std::vector<MigProcess> mig_processes(std::string_view text) {
  std::vector<MigProcess> found;
  for (const std::vector<std::string>& words : lines_of(section_of(text, "Processes:", "\n\n\n"))) {
    const auto numbers = numbers_of(words, 4);
    if (!numbers || words.size() < 5 || number_of<int64_t>(words[4])) continue;
    found.push_back({.gpu = static_cast<uint32_t>((*numbers)[0]),
                     .instance = static_cast<int32_t>((*numbers)[1]),
                     .pid = (*numbers)[3]});
  }
  return found;
}

// "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-...)", below it
// "  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-...)"
std::map<std::pair<uint32_t, int32_t>, std::string> mig_uuids(std::string_view text) {
  std::map<std::pair<uint32_t, int32_t>, std::string> found;
  std::optional<uint32_t> gpu;
  for (const std::vector<std::string>& words : lines_of(text)) {
    if (words.size() < 4) continue;
    const auto number_before_colon = [](const std::string& word) {
      return number_of<int32_t>(std::string_view(word).substr(0, word.find(':')));
    };
    if (words[0] == "GPU") {
      const auto index = number_before_colon(words[1]);
      gpu = index ? std::optional(static_cast<uint32_t>(*index)) : std::nullopt;
      continue;
    }
    const std::size_t size = words.size();
    if (words[0] != "MIG" || !gpu || size < 6 || words[size - 4] != "Device") continue;
    const auto device = number_before_colon(words[size - 3]);
    std::string uuid = words[size - 1];
    if (!device || words[size - 2] != "(UUID:" || !uuid.ends_with(')')) continue;
    uuid.pop_back();
    found[{*gpu, *device}] = clean_text(uuid, kUuidBytesMax);
  }
  return found;
}

std::vector<SliceReading> slices_of(uint32_t gpu, const std::string& model, int64_t memory_mb,
                                    std::string_view instances, std::string_view tables,
                                    std::string_view list) {
  const mig::Table* const table = mig::table_of(model, memory_mb);
  const std::vector<MigDevice> devices = mig_devices(tables);
  const std::vector<MigProcess> processes = mig_processes(tables);
  const auto uuids = mig_uuids(list);
  std::vector<SliceReading> slices;
  for (const GpuInstance& instance : gpu_instances(instances)) {
    if (instance.gpu != gpu) continue;
    SliceReading& slice = slices.emplace_back(
        SliceReading{.profile = name_of(table, instance.profile), .start = instance.start});
    slice.made.gpu_instance = instance.instance;
    for (const MigDevice& device : devices) {
      if (device.gpu != gpu || device.instance != instance.instance) continue;
      const auto uuid = uuids.find({gpu, device.device});
      if (uuid != uuids.end()) slice.made.uuid = uuid->second;
      slice.made.compute_instance = device.compute_instance;
      slice.memory_used_mb += device.memory_used_mb;
    }
    for (const MigProcess& process : processes) {
      if (process.gpu == gpu && process.instance == instance.instance) slice.processes.push_back(process.pid);
    }
  }
  return slices;
}

}  // namespace gpusched::smi
