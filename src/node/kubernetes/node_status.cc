#include "node/kubernetes/node_status.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "client/json.h"

namespace gpusched::kubernetes {
namespace {

constexpr std::string_view kAllocated = "gpu.scheduling/allocated";
constexpr std::string_view kAllocatedNode = "gpu.scheduling/allocated-node";

std::string_view to_string(DeviceStatus::Health health) {
  switch (health) {
    case DeviceStatus::Health::kHealthy:
      return "Healthy";
    case DeviceStatus::Health::kUnhealthy:
      return "Unhealthy";
    case DeviceStatus::Health::kUnknown:
      return "Unknown";
  }
  return "Unknown";
}

template <typename Item, typename Text>
std::string json_array(const std::vector<Item>& items, Text&& text_of) {
  std::string text = "[";
  for (const Item& item : items) {
    if (text.size() > 1) text += ",";
    text += text_of(item);
  }
  return text + "]";
}

/// What is empty or not known is left out: an apply then takes it away.
void add_text(JsonObjectWriter& object, std::string_view name, const std::string& text) {
  if (!text.empty()) object.add(name, text);
}

std::string device_json(const DeviceStatus& device, int64_t id) {
  JsonObjectWriter object;
  object.add("id", id);
  add_text(object, "uuid", device.facts.uuid);
  add_text(object, "model", device.facts.model);
  if (device.facts.memory_mb > 0) object.add("memoryMB", device.facts.memory_mb);
  object.add("health", to_string(device.health));
  add_text(object, "message", device.message);
  add_text(object, "island", device.island.name);
  if (device.island.gbs_both_ways > 0) object.add("bandwidthGBps", device.island.gbs_both_ways);
  if (!device.in_use_by.empty()) object.add("inUseBy", device.in_use_by);
  return object.text();
}

std::string adapter_json(const RdmaAdapter& adapter) {
  JsonObjectWriter object;
  object.add("name", adapter.name);
  object.add("ports", int64_t{adapter.active_ports});
  object.add("gbps", adapter.gbps);
  return object.text();
}

JsonObjectWriter object_of(const NodeStatus& status) {
  JsonObjectWriter object;
  object.add("apiVersion", "gpu.scheduling/v1");
  object.add("kind", "GpuNodeStatus");
  JsonObjectWriter metadata;
  metadata.add("name", status.node);
  object.add_json("metadata", metadata.text());
  JsonObjectWriter spec;
  spec.add("nodeName", status.node);
  object.add_json("spec", spec.text());
  return object;
}

/// The ids in "0,1" that the node has; others are nobody's.
std::vector<std::size_t> ids_of(std::string_view list, std::size_t devices) {
  std::vector<std::size_t> ids;
  while (!list.empty()) {
    const std::string_view word = list.substr(0, list.find(','));
    std::size_t id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error == std::errc{} && end == word.data() + word.size() && id < devices) ids.push_back(id);
    list.remove_prefix(std::min(list.size(), word.size() + 1));
  }
  return ids;
}

}  // namespace

std::string object_json(const NodeStatus& status) { return object_of(status).text(); }

std::string object_with_status_json(const NodeStatus& status) {
  JsonObjectWriter facts;
  facts.add("total", static_cast<int64_t>(status.devices.size()));
  int64_t id = 0;
  facts.add_json("devices", json_array(status.devices, [&](const DeviceStatus& device) {
                   return device_json(device, id++);
                 }));
  add_text(facts, "driver", status.machine.driver);
  if (!status.machine.adapters.empty())
    facts.add_json("hcas", json_array(status.machine.adapters, adapter_json));
  facts.add("rdma", status.machine.rdma);
  facts.add("cuFile", status.machine.cu_file);
  add_text(facts, "message", status.message);
  JsonObjectWriter object = object_of(status);
  object.add_json("status", facts.text());
  return object.text();
}

Result<std::vector<std::vector<std::string>>> users_of(std::string_view list, const std::string& node,
                                                       std::size_t devices) {
  const Result<Json> parsed = Json::parse(list);
  if (!parsed) return parsed.error();
  if (!(*parsed)["items"].is_array())
    return Error{.code = ErrorCode::kInvalidArgument, .message = "the answer is no list of pods"};
  std::vector<std::vector<std::string>> users(devices);
  for (const Json& pod : (*parsed)["items"].items()) {
    const Json metadata = pod["metadata"];
    const std::string uid = metadata["uid"].text();
    if (uid.empty() || metadata["annotations"][kAllocatedNode].text() != node) continue;
    for (const std::size_t id : ids_of(metadata["annotations"][kAllocated].text(), devices))
      users[id].push_back(uid);
  }
  for (std::vector<std::string>& uids : users) {
    std::ranges::sort(uids);
    uids.erase(std::ranges::unique(uids).begin(), uids.end());
  }
  return users;
}

}  // namespace gpusched::kubernetes
