#include "node/container/container_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "node/process/device_rules.h"

namespace gpusched {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNvidiaKind = "nvidia.com/gpu";
constexpr std::string_view kSimulated = "GPU-sim-";
constexpr std::size_t kSpecificationBytesMax = 4 * 1024 * 1024;

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kSpecificationBytesMax, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

std::string_view trimmed(std::string_view text, std::string_view marks) {
  const std::size_t begin = text.find_first_not_of(marks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(marks) - begin + 1);
}

/// The value behind `"name":` or `name:` in a line or a piece of one; empty when it is another key.
std::string_view value_of(std::string_view piece, std::string_view name) {
  piece = trimmed(piece, " \t\r-{[");
  if (piece.starts_with('"')) piece.remove_prefix(1);
  if (!piece.starts_with(name)) return {};
  piece.remove_prefix(name.size());
  if (piece.starts_with('"')) piece.remove_prefix(1);
  piece = trimmed(piece, " \t\r");
  if (!piece.starts_with(':')) return {};
  return trimmed(piece.substr(1), " \t\r\"',}]");
}

std::set<std::string> devices_of(const GpuPlaces& places) {
  std::set<std::string> found;
  for (const std::string& folder : places.cdi_folders) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      const std::string ending = entry.path().extension().string();
      if (ending != ".yaml" && ending != ".yml" && ending != ".json") continue;
      for (std::string& name : cdi_devices(read_text(entry.path()))) found.insert(std::move(name));
    }
  }
  return found;
}

/// The minor number of a device's node, as the driver says it; empty: it does not.
std::string minor_of(const std::string& uuid, const std::string& driver_folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(driver_folder, ignored)) {
    std::istringstream lines(read_text(entry.path() / "information"));
    std::string line;
    std::string minor;
    bool is_it = false;
    while (std::getline(lines, line)) {
      if (line.starts_with("GPU UUID:")) is_it = trimmed(line.substr(9), " \t") == uuid;
      if (line.starts_with("Device Minor:")) minor = trimmed(line.substr(13), " \t");
    }
    if (is_it) return minor;
  }
  return "";
}

/// The device nodes that open a slice, beside its GPU's; empty: all or none of the GPU is given.
std::vector<std::string> slice_nodes(const std::string& minor, const MadeSlice& slice,
                                     const GpuPlaces& places) {
  std::vector<std::string> nodes;
  if (slice.gpu_instance < 0) return nodes;
  const NvidiaGrant grant{.minor = std::atoi(minor.c_str()),
                          .gpu_instance = slice.gpu_instance,
                          .compute_instance = slice.compute_instance};
  for (const int32_t cap : mig_minors(grant, places.root))
    nodes.push_back(places.device_folder + "/nvidia-caps/nvidia-cap" + std::to_string(cap));
  return nodes;
}

ContainerGpus by_nodes(const std::vector<std::string>& uuids, const GpuPlaces& places,
                       const std::vector<MadeSlice>& slices) {
  ContainerGpus gpus;
  std::string missing;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    const std::string& uuid = uuids[i];
    const std::string minor = minor_of(uuid, places.driver_folder);
    const std::string node = places.device_folder + "/nvidia" + minor;
    if (minor.empty() || !fs::exists(node)) {
      missing += (missing.empty() ? "" : ", ") + uuid;
      continue;
    }
    gpus.options.insert(gpus.options.end(), {"--device", node});
    if (i >= slices.size()) continue;
    for (const std::string& cap : slice_nodes(minor, slices[i], places))
      gpus.options.insert(gpus.options.end(), {"--device", cap});
  }
  for (const char* name : {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"}) {
    const std::string node = places.device_folder + '/' + name;
    if (fs::exists(node)) gpus.options.insert(gpus.options.end(), {"--device", node});
  }
  gpus.note =
      "gpu-scheduler: this node has no CDI specification of its GPUs, so the container gets only device "
      "nodes and must bring the driver's libraries itself; to correct this, run `nvidia-ctk cdi generate "
      "--output=/etc/cdi/nvidia.yaml` on the node";
  if (!missing.empty()) gpus.note += "; no device node was found for " + missing;
  return gpus;
}

}  // namespace

std::vector<std::string> cdi_devices(std::string_view specification) {
  std::string kind;
  std::vector<std::string> names;
  bool in_devices = false;
  // A JSON text on one line has its members between commas; a YAML text has one in each line.
  std::size_t from = 0;
  while (from < specification.size()) {
    const std::size_t end = std::min(specification.find_first_of(",\n{[", from), specification.size());
    const std::string_view piece = specification.substr(from, end - from);
    from = end + 1;
    const std::string_view bare = trimmed(piece, " \t\r\"}]:");
    if (bare == "devices") in_devices = true;
    if (const std::string_view value = value_of(piece, "kind"); !value.empty()) kind = value;
    if (const std::string_view value = value_of(piece, "name"); in_devices && !value.empty())
      names.emplace_back(value);
  }
  for (std::string& name : names) name = kind + '=' + name;
  return names;
}

ContainerGpus container_gpus(shim::ContainerRuntime runtime, const std::vector<std::string>& uuids,
                             const GpuPlaces& places, const std::vector<MadeSlice>& slices) {
  const bool real = std::any_of(uuids.begin(), uuids.end(),
                                [](const std::string& uuid) { return !uuid.starts_with(kSimulated); });
  if (!real) return {};
  if (runtime == shim::ContainerRuntime::kApptainer) return {.options = {"--nv"}};
  const std::set<std::string> known = devices_of(places);
  ContainerGpus gpus;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    const bool sliced = i < slices.size() && !slices[i].uuid.empty();
    const std::string name = std::string(kNvidiaKind) + '=' + (sliced ? slices[i].uuid : uuids[i]);
    if (!known.contains(name)) return by_nodes(uuids, places, slices);
    gpus.options.insert(gpus.options.end(), {"--device", name});
  }
  return gpus;
}

}  // namespace gpusched
