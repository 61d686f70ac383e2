#include <algorithm>
#include <memory>
#include <optional>

#include "cli/framework/verbs.h"
#include "cli/terminal/output.h"
#include "cli/terminal/units.h"
#include "cli/verbs/nodes/nodes.h"

namespace gpusched::cli {
namespace {

struct DeviceOptions {
  std::string node;
  std::string gpu;
  std::string reason;
};

struct FoundDevice {
  std::size_t index = 0;
  Json device;
};

/// The GPU of this index, id or UUID.
std::optional<FoundDevice> find_device(const Json& node, const std::string& gpu) {
  const std::vector<Json> devices = node_devices(node);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (gpu == std::to_string(i) || gpu == devices[i]["id"].text() || gpu == devices[i]["uuid"].text())
      return FoundDevice{.index = i, .device = devices[i]};
  }
  return std::nullopt;
}

std::string unknown_gpu(const Json& node, const std::string& gpu) {
  const std::size_t count = node_devices(node).size();
  const std::string name = node["name"].text();
  if (count == 0) return "node " + name + " has no GPU";
  return "node " + name + " has no GPU \"" + gpu + "\"; give an index from 0 to " +
         std::to_string(count - 1) + ", an id such as " + name +
         "-gpu-0, or its UUID, as in gpu-cli device list " + name;
}

/// Says the word, and prints what the device is now.
int set_quarantine(Session& session, const DeviceOptions& wanted, bool quarantine) {
  if (quarantine && wanted.reason.empty())
    return session.fail(kExitUsage, "--reason is missing; it is shown with the node or GPU", "usage");
  const Reply node = get_node(session, wanted.node);
  if (!node) return session.fail(*node.trouble);
  const std::optional<FoundDevice> found = find_device(node.json, wanted.gpu);
  if (!found) return session.fail(kExitRefused, unknown_gpu(node.json, wanted.gpu), "device_not_found");
  const std::string id = found->device["id"].text();
  if (!quarantine && found->device["quarantined_by"].text().empty()) {
    const std::string condition = found->device["condition"].text();
    const std::string why = condition == "ok" ? "it is " + found->device["state"].text()
                                              : "its driver or its temperature keeps it out of service (" +
                                                    condition + ": " + found->device["detail"].text() + ")";
    return session.fail(kExitRefused, id + " is not quarantined: " + why, "device_not_quarantined");
  }
  JsonObjectWriter body;
  body.add("condition", quarantine ? "unhealthy" : "ok");
  if (quarantine) body.add("detail", wanted.reason);
  const std::string by = session.io().login_name ? session.io().login_name() : std::string();
  if (!by.empty()) body.add("by", by);
  const Reply reply = change_node(session, wanted.node,
                                  "devices/" + std::to_string(found->index) + "/condition", body.text());
  if (!reply) return session.fail(*reply.trouble);
  const std::vector<Json> devices = node_devices(reply.json);
  const Json now = found->index < devices.size() ? devices[found->index] : Json();
  if (session.options().json) {
    session.io().out(now.serialize() + "\n");
    return kExitOk;
  }
  const std::string holder = now["held_by"].text();
  std::string sentence = id;
  if (quarantine) {
    sentence += " is quarantined and gets no new jobs";
    if (!holder.empty()) sentence += "; " + holder + " continues";
  } else {
    const std::string state = now["state"].text();
    sentence += " is released and " + state;
    if (state == "draining") sentence += ": its node checks that it is empty";
    const std::string condition = now["condition"].text();
    if (!condition.empty() && condition != "ok")
      sentence += ", but " + condition + ": " + now["detail"].text();
  }
  session.io().out(sentence + "\n");
  return kExitOk;
}

void declare_device(Grammar& grammar, DeviceOptions& options) {
  grammar.argument("NODE", &options.node, "Name of the node").completes(Complete::kNode);
  grammar.argument("GPU", &options.gpu, "Index, id such as n1-gpu-3, or UUID of the GPU")
      .completes(Complete::kGpu);
}

}  // namespace

Action define_device_quarantine(Grammar& grammar) {
  const auto options = std::make_shared<DeviceOptions>();
  declare_device(grammar, *options);
  grammar.option("--reason", "TEXT", &options->reason, "Reason, shown in the lists").must();
  grammar.details(
      "The GPU gets no new jobs, whatever its driver reports, until it is released; running jobs continue. "
      "The quarantine survives restarts. The lists of nodes and GPUs show who set it and why.");
  grammar.example("gpu-cli device quarantine n1 n1-gpu-3 --reason 'fan rattles'", "keep new jobs off a GPU");
  return [options](Session& session) { return set_quarantine(session, *options, true); };
}

Action define_device_release(Grammar& grammar) {
  const auto options = std::make_shared<DeviceOptions>();
  declare_device(grammar, *options);
  grammar.details(
      "Ends a quarantine that an operator or the scheduler has set. A GPU that was not empty after its job "
      "is examined again: it takes jobs once its node finds nothing on it.");
  return [options](Session& session) { return set_quarantine(session, *options, false); };
}

}  // namespace gpusched::cli
