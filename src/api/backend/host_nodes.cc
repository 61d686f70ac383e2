// Nodes, their devices, and the cluster as a whole.
#include <utility>

#include "api/backend/host_backend.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/limits.h"
#include "machines/machines.h"

namespace gpusched::api {
namespace {

ApiError no_node(std::string_view name) {
  return {ErrorKind::kNodeNotFound, "no such node: " + std::string(name.substr(0, 64))};
}

}  // namespace

void HostBackend::confirm_dead(const CallerPtr& caller, const std::string& node, const std::string& by,
                               Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kConfirmNodeDead, "confirm that a node is dead"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, node, by, done](const Observer::View& view) {
    const Node* found = view.state.find_node_named(node);
    if (found == nullptr) return done(no_node(node));
    // The boot that is shown is meant, and not one that began meanwhile.
    ConfirmNodeDead command{
        .node = found->id, .boot_id = found->boot_id, .by = by.substr(0, limits::kNameBytesMax)};
    propose_for_node(caller, std::move(command), found->id, done);
  });
}

void HostBackend::remove_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                              Done<Unit> done) {
  if (auto refused = refuse(*caller, access::Action::kRemoveNode, "remove a node"))
    return done(std::move(*refused));
  read([this, caller, node, by, done](const Observer::View& view) {
    const Node* found = view.state.find_node_named(node);
    if (found == nullptr) return done(no_node(node));
    RemoveNode command{
        .node = found->id, .boot_id = found->boot_id, .by = by.substr(0, limits::kNameBytesMax)};
    propose(*caller, std::move(command), [this, node, done](Result<Decided> decided) {
      if (auto refused = refusal(decided)) return done(std::move(*refused));
      if (options_.node_addresses != nullptr) options_.node_addresses->forget(node);
      done(Unit{});
    });
  });
}

void HostBackend::set_condition(const CallerPtr& caller, const std::string& node, uint32_t index,
                                DeviceCondition condition, const std::string& detail, const std::string& by,
                                Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kSetDevice, "quarantine or release a GPU"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, node, index, condition, detail, by, done](const Observer::View& view) {
    const Node* found = view.state.find_node_named(node);
    if (found == nullptr) return done(no_node(node));
    SetDeviceCondition command{.node = found->id,
                               .device = index,
                               .condition = condition,
                               .detail = detail,
                               .by_operator = true,
                               .lasting = true,
                               .by = by};
    if (index < found->devices.size()) command.generation = found->devices[index].generation;
    propose_for_node(caller, std::move(command), found->id, done);
  });
}

void HostBackend::drain_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                             const std::string& reason, Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kDrainNode, "drain a node"))
    return done(std::move(*refused));
  with_node(
      node,
      [this, caller, by, reason, done](NodeId id) {
        propose_for_node(
            caller,
            SetNodeAvailability{.node = id, .to = Availability::kDraining, .by = by, .reason = reason}, id,
            done);
      },
      done);
}

void HostBackend::resume_node(const CallerPtr& caller, const std::string& node, const std::string& by,
                              Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kResumeNode, "put a node back into service"))
    return done(std::move(*refused));
  // A job must not overtake a decision about a machine that nothing runs on.
  if (options_.machines != nullptr && options_.machines->is_returning(node)) {
    return done(ApiError{ErrorKind::kConflict, "node " + node.substr(0, 64) +
                                                   " is a machine that is being given back to its provider; "
                                                   "it cannot be put back into service"});
  }
  with_node(
      node,
      [this, caller, by, done](NodeId id) {
        propose_for_node(caller, SetNodeAvailability{.node = id, .to = Availability::kInService, .by = by},
                         id, done);
      },
      done);
}

void HostBackend::reboot_node(const CallerPtr& caller, const std::string& node, const std::string& reason,
                              Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kRebootNode, "reboot a node"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, node, reason, done](const Observer::View& view) {
    const Node* found = view.state.find_node_named(node);
    if (found == nullptr) return done(no_node(node));
    if (found->availability != Availability::kDraining || !found->attempts.empty()) {
      return done(
          ApiError{ErrorKind::kNodeNotDrained,
                   "node " + found->name + " is not drained; drain it, and wait until no jobs run on it"});
    }
    if (std::find(found->features.begin(), found->features.end(), "reboot") == found->features.end()) {
      return done(ApiError{
          ErrorKind::kUnprocessable,
          "node " + found->name +
              " has no reboot command; start its agent with --reboot-command, or reboot it by hand"});
    }
    NodeView shown = view_of(view.state, *found, host_.telemetry()->get(found->id));
    TenantVisibility(view.state, *caller).conceal(shown);
    host_.reboot_node(found->id, reason, [shown, done](Result<Unit> sent) {
      if (!sent) return done(to_api_error(sent.error()));
      done(shown);
    });
  });
}

void HostBackend::label_node(const CallerPtr& caller, const std::string& node, std::vector<Label> set,
                             std::vector<std::string> remove, Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kLabelNode, "label a node"))
    return done(std::move(*refused));
  with_node(
      node,
      [this, caller, set = std::move(set), remove = std::move(remove), done](NodeId id) {
        propose_for_node(caller, LabelNode{.node = id, .set = set, .remove = remove}, id, done);
      },
      done);
}

void HostBackend::list_nodes(const CallerPtr& caller, Done<std::vector<NodeView>> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeNode, "see nodes")) return done(std::move(*refused));
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([this, caller, place = std::move(place), done = std::move(done)](const Observer::View& view) {
    const auto telemetry = host_.telemetry();
    TenantVisibility wall(view.state, *caller);
    std::vector<NodeView> out;
    for (const Node& node : view.state.nodes) {
      if (node.removed) continue;
      out.push_back(view_of(view.state, node, telemetry->get(node.id)));
      wall.conceal(out.back());
    }
    std::sort(out.begin(), out.end(), [](const NodeView& a, const NodeView& b) { return a.name < b.name; });
    done(std::move(out));
  });
}

void HostBackend::get_node(const CallerPtr& caller, const std::string& node, Done<NodeView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeNode, "see nodes")) return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, node, done = std::move(done)](const Observer::View& view) {
    const Node* found = view.state.find_node_named(node);
    if (found == nullptr) return done(no_node(node));
    NodeView shown = view_of(view.state, *found, host_.telemetry()->get(found->id));
    TenantVisibility(view.state, *caller).conceal(shown);
    done(std::move(shown));
  });
}

void HostBackend::get_cluster(const CallerPtr& caller, Done<ClusterView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeCluster, "see the cluster"))
    return done(std::move(*refused));
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([this, caller, place = std::move(place), done = std::move(done)](const Observer::View& view) {
    done(cluster_for(*caller, view.state, *host_.telemetry()));
  });
}

void HostBackend::get_pools(const CallerPtr& caller, Done<PoolsView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeCluster, "see the cluster's pools"))
    return done(std::move(*refused));
  std::shared_ptr<void> place = place_for_scan(*caller, done);
  if (place == nullptr) return;
  scan_once([place = std::move(place), done = std::move(done)](const Observer::View& view) {
    done(pools_of(view.state));
  });
}

void HostBackend::set_pools(const CallerPtr& caller, int64_t online_milli, const std::string& by,
                            Done<PoolsView> done) {
  const bool is_anonymous = caller->kind == access::CallerKind::kAnonymous;
  if (!is_anonymous || !options_.anonymous.sets_quota) {
    if (auto refused = refuse(*caller, access::Action::kSetPools, "divide the cluster into pools")) {
      if (is_anonymous)
        refused->message += ", or have set_quota added to api.anonymous_may and the scheduler restarted";
      return done(std::move(*refused));
    }
  }
  propose(*caller, SetPools{.online_milli = online_milli, .batch_milli = 1000 - online_milli, .by = by},
          [this, done](Result<Decided> decided) {
            if (auto refused = refusal(decided)) return done(std::move(*refused));
            host_.observer().read(decided->sequence,
                                  [done](const Observer::View& view) { done(pools_of(view.state)); });
          });
}

void HostBackend::pause_starts(const CallerPtr& caller, bool paused, const std::string& by,
                               const std::string& reason, Done<ClusterView> done) {
  if (auto refused = refuse(*caller, access::Action::kPauseStarts,
                            paused ? "pause the cluster" : "resume a paused cluster"))
    return done(std::move(*refused));
  propose(*caller, PauseStarts{.paused = paused, .by = by, .why = reason},
          [this, caller, done](Result<Decided> decided) {
            if (auto refused = refusal(decided)) return done(std::move(*refused));
            host_.observer().read(decided->sequence, [this, caller, done](const Observer::View& view) {
              done(cluster_for(*caller, view.state, *host_.telemetry()));
            });
          });
}

void HostBackend::propose_for_node(const CallerPtr& caller, Command command, NodeId node,
                                   Done<NodeView> done) {
  propose(*caller, std::move(command), [this, caller, node, done](Result<Decided> decided) {
    if (auto refused = refusal(decided)) return done(std::move(*refused));
    host_.observer().read(decided->sequence, [this, caller, node, done](const Observer::View& view) {
      const Node* found = view.state.find_node(node);
      if (found == nullptr) return done(no_node("node-" + std::to_string(node.value)));
      NodeView shown = view_of(view.state, *found, host_.telemetry()->get(node));
      TenantVisibility(view.state, *caller).conceal(shown);
      done(std::move(shown));
    });
  });
}

void HostBackend::with_node(const std::string& name, std::function<void(NodeId)> use,
                            std::function<void(ApiError)> refuse) {
  if (sheds_read(refuse)) return;
  read([name, use = std::move(use), refuse = std::move(refuse)](const Observer::View& view) {
    const Node* node = view.state.find_node_named(name);
    if (node == nullptr) return refuse(no_node(name));
    use(node->id);
  });
}

}  // namespace gpusched::api
