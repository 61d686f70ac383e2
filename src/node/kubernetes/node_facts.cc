#include "node/kubernetes/node_facts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "model/topology.h"
#include "shim/processes.h"

namespace gpusched::kubernetes {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = 256;
constexpr std::size_t kAdaptersMax = 256;

std::string first_line_of(const std::string& path) {
  const std::string text = shim::read_small_file(path.c_str(), kFileBytesMax);
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    if (names.size() == kAdaptersMax) break;
    names.push_back(at->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

/// "200 Gb/sec (4X HDR)" begins with the rate.
int64_t rate_of(const std::string& text) {
  int64_t rate = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rate);
  return error == std::errc{} && end != text.data() ? rate : 0;
}

RdmaAdapter adapter_of(const std::string& folder, const std::string& name) {
  RdmaAdapter adapter{.name = name};
  const std::string ports = folder + "/" + name + "/ports";
  for (const std::string& port : names_in(ports)) {
    const std::string at = ports + "/" + port;
    if (first_line_of(at + "/state").find("ACTIVE") == std::string::npos) continue;
    ++adapter.active_ports;
    adapter.gbps = std::max(adapter.gbps, rate_of(first_line_of(at + "/rate")));
  }
  return adapter;
}

bool has_module(const std::string& root, const char* name) {
  std::error_code failed;
  return fs::is_directory(root + "/sys/module/" + name, failed);
}

}  // namespace

MachineFacts read_machine_facts(const std::string& root) {
  MachineFacts facts;
  facts.driver = first_line_of(root + "/sys/module/nvidia/version");
  const std::string folder = root + "/sys/class/infiniband";
  for (const std::string& name : names_in(folder)) facts.adapters.push_back(adapter_of(folder, name));
  const bool active = std::ranges::any_of(
      facts.adapters, [](const RdmaAdapter& adapter) { return adapter.active_ports > 0; });
  facts.rdma = active && (has_module(root, "nvidia_peermem") || has_module(root, "nv_peer_mem"));
  facts.cu_file = has_module(root, "nvidia_fs");
  return facts;
}

std::vector<DeviceIsland> islands_of(const DeviceTopology& topology, std::size_t devices) {
  std::vector<DeviceIsland> islands(devices);
  if (topology.links.size() != pair_count(devices)) return islands;
  const auto link = [&](std::size_t a, std::size_t b) {
    return Link::of(topology.links[pair_index(a, b, devices)]);
  };
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t device = 0; device < devices; ++device) {
    const auto joins = [&](const std::vector<std::size_t>& group) {
      return std::ranges::all_of(group, [&](std::size_t other) { return link(other, device).joins(); });
    };
    const auto group = std::ranges::find_if(groups, joins);
    if (group == groups.end()) {
      groups.push_back({device});
    } else {
      group->push_back(device);
    }
  }
  int32_t number = 0;
  for (const std::vector<std::size_t>& group : groups) {
    if (group.size() < 2) continue;
    int64_t least = INT64_MAX;
    for (std::size_t i = 0; i < group.size(); ++i) {
      for (std::size_t j = i + 1; j < group.size(); ++j)
        least = std::min(least, link(group[i], group[j]).gbs);
    }
    const std::string name = "island-" + std::to_string(number++);
    for (const std::size_t device : group) islands[device] = {.name = name, .gbs_both_ways = 2 * least};
  }
  return islands;
}

}  // namespace gpusched::kubernetes
