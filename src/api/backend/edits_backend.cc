// HostBackend: changes of tenants and labels that are made together or not at all.
#include <map>
#include <set>
#include <utility>

#include "api/backend/host_backend.h"
#include "api/backend/tenant_commands.h"
#include "api/views/state_views.h"

namespace gpusched::api {
namespace {

/// Names as the observer's state has them, made ids. Changes before the edits are decided are for the rules
/// to refuse.
class Resolver {
 public:
  Resolver(const State& state, const access::Caller& caller, const EditsRequest& request)
      : state_(state), caller_(caller), request_(request) {}

  std::optional<ApiError> resolve() {
    for (std::size_t i = 0; i < request_.tenants.size(); ++i) {
      if (auto problem = add_tenant(request_.tenants[i])) return in("tenants", i, std::move(*problem));
    }
    for (std::size_t i = 0; i < request_.nodes.size(); ++i) {
      if (auto problem = add_node(request_.nodes[i])) return in("nodes", i, std::move(*problem));
    }
    return std::nullopt;
  }
  std::vector<ClusterEdit> take() { return std::move(edits_); }
  const EditsView& counts() const { return counts_; }

  static ApiError in(std::string_view list, std::size_t i, ApiError error) {
    const std::string place = std::string(list) + "[" + std::to_string(i) + "]";
    error.field = error.field.empty() ? place : place + "." + error.field;
    return error;
  }

 private:
  std::optional<ApiError> add_tenant(const TenantRequest& request) {
    const std::string& name = *request.name;
    if (!tenants_.insert(name).second)
      return ApiError{ErrorKind::kInvalidArgument,
                      "tenant " + name + " is given twice; merge the two entries", "name"};
    const std::span<const TenantId> holders = state_.tenants_named(name);
    if (holders.size() > 1) {
      ApiError error = ambiguous_tenant(name, holders);
      error.message += ", or rename the others: a file finds its tenants by name";
      error.field = "name";
      return error;
    }
    const Tenant* const known = holders.empty() ? nullptr : state_.find_tenant(holders.front());
    const std::string above = request.parent.value_or("");
    const Answer<const Tenant*> found = find_tenant(state_, caller_, above);
    if (!above.empty() && !found && found.error().kind == ErrorKind::kTenantAmbiguous) {
      return ApiError{found.error().kind, found.error().message, "parent_id"};
    }
    const Tenant* const parent = !above.empty() && found ? *found : nullptr;
    const auto created = created_.find(above);
    if (!above.empty() && parent == nullptr && created == created_.end()) {
      return ApiError{ErrorKind::kTenantParentInvalid,
                      "tenant " + name + ": there is no tenant " + above + " to be its parent", "parent_id"};
    }
    if (known != nullptr) {
      if (!above.empty() && (parent == nullptr || parent->id != known->parent)) {
        return ApiError{
            ErrorKind::kTenantParentInvalid,
            "tenant " + name + " has another parent, and the parent of a tenant cannot be changed",
            "parent_id"};
      }
      edits_.push_back({.command = update_command(request, known->id)});
      counts_.tenants_updated += 1;
      return std::nullopt;
    }
    ClusterEdit edit{.command = create_command(request, parent == nullptr ? TenantId{} : parent->id)};
    if (parent == nullptr && created != created_.end()) edit.parent_from = created->second;
    created_.emplace(name, edits_.size());
    edits_.push_back(std::move(edit));
    counts_.tenants_created += 1;
    return std::nullopt;
  }
  std::optional<ApiError> add_node(const EditsRequest::Labels& labels) {
    if (!nodes_.insert(labels.node).second) {
      return ApiError{ErrorKind::kInvalidArgument,
                      "node " + labels.node + " is given twice; merge the two entries", "node_name"};
    }
    const Node* const node = state_.find_node_named(labels.node);
    if (node == nullptr) {
      return ApiError{ErrorKind::kNodeNotFound, "no such node: " + labels.node.substr(0, 64), "node_name"};
    }
    edits_.push_back({.command = LabelNode{.node = node->id, .set = labels.set, .remove = labels.remove}});
    counts_.nodes_labeled += 1;
    return std::nullopt;
  }

  const State& state_;
  const access::Caller& caller_;
  const EditsRequest& request_;
  std::set<std::string> tenants_, nodes_;
  std::map<std::string, std::size_t> created_;  ///< By name: which edit.
  std::vector<ClusterEdit> edits_;
  EditsView counts_;
};

ApiError refused_edit(const EditsRequest& request, const RefusedEdit& refused) {
  ApiError error = to_api_error(refused.rejection, 1);
  const std::size_t tenants = request.tenants.size();
  const bool is_tenant = refused.index < tenants;
  error.message = (is_tenant ? "tenant " + *request.tenants[refused.index].name
                             : "node " + request.nodes[refused.index - tenants].node) +
                  ": " + error.message;
  return Resolver::in(is_tenant ? "tenants" : "nodes", is_tenant ? refused.index : refused.index - tenants,
                      std::move(error));
}

}  // namespace

void HostBackend::edit_cluster(const CallerPtr& caller, EditsRequest request, Done<EditsView> done) {
  if (auto refused = refuse(*caller, access::Action::kEditCluster, "change the cluster as a whole"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  const auto kept = std::make_shared<const EditsRequest>(std::move(request));
  read([this, caller, kept, done](const Observer::View& view) {
    Resolver resolver(view.state, *caller, *kept);
    if (auto problem = resolver.resolve()) return done(std::move(*problem));
    EditsView counts = resolver.counts();
    counts.dry_run = kept->dry_run;
    const auto decided = [this, kept, counts, done](const Result<EditsDecided>& result) {
      if (!result.ok()) return done(to_api_error(result.error()));
      if (result->refused) return done(refused_edit(*kept, *result->refused));
      answered_.store(result->sequence, std::memory_order_release);
      // Answered once reads show it.
      host_.observer().read(result->sequence, [counts, done](const Observer::View&) { done(counts); });
    };
    host_.propose(EditSet{
        .edits = resolver.take(), .dry_run = kept->dry_run, .decided = decided, .by = proposer_of(*caller)});
  });
}

}  // namespace gpusched::api
