#include <algorithm>
#include <bit>

#include "sim/audit/auditor.h"

// Where a job asked to run, compared with what the reference says of nodes.
namespace gpusched::sim {
void Auditor::check_wishes(JobId job, const Part& part, const Member& member) {
  const ReferenceNode& node = nodes_.at(member.node);
  const bool wants_external = (part.features & kFeatureExternal) != 0;
  if (replica_.config.feature_level >= 12 && wants_external != node.external)
    fail(name_of(job) + " is placed on node " + node.name +
         ", which is external, or not, otherwise than it asks");
  if (part.place.empty()) return;
  const PlaceRequest& place = part.place.front();
  const auto has = [&](const LabelTerm& term) {
    const auto own = node.labels.find(term.name);
    const auto told = node.agent_labels.find(term.name);
    if (own == node.labels.end() && told == node.agent_labels.end()) return false;
    return term.any_value || (own != node.labels.end() ? own->second : told->second) == term.value;
  };
  for (const LabelTerm& term : place.labels) {
    if (!has(term)) fail(name_of(job) + " is placed on a node without the label " + term.name);
  }
  for (const LabelTerm& term : place.without_labels) {
    if (has(term)) fail(name_of(job) + " is placed on a node with the label " + term.name);
  }
  if (place.device_mask != 0 && place.device_mask != member.device_mask)
    fail(name_of(job) + " gets other devices than those that it names");
  std::vector<std::string> given;
  for (uint32_t i = 0; i < node.devices.size(); ++i) {
    if (((member.device_mask >> i) & 1) != 0) given.push_back(node.devices[i].uuid);
  }
  for (const std::string& uuid : place.device_uuids) {
    if (std::count(given.begin(), given.end(), uuid) == 0) fail(name_of(job) + " does not get " + uuid);
  }
  if (place.layout == Layout::kContiguous && member.device_mask != 0) {
    const int first = std::countr_zero(member.device_mask);
    const int last = 63 - std::countl_zero(member.device_mask);
    if (last - first + 1 != part.gpu_count) fail(name_of(job) + " gets devices with a gap between them");
  }
  if (place.bandwidth_min == 0) return;
  int64_t fast_pairs = 0;
  std::size_t at = 0;
  for (std::size_t a = 0; a < node.linked.size(); ++a) {
    for (std::size_t b = a + 1; b < node.linked.size(); ++b, ++at) {
      const bool both = std::count(given.begin(), given.end(), node.linked[a]) > 0 &&
                        std::count(given.begin(), given.end(), node.linked[b]) > 0;
      if (both && at < node.links.size() && node.links[at] / 16 >= place.bandwidth_min) ++fast_pairs;
    }
  }
  const int64_t count = part.gpu_count;
  if (fast_pairs < count * (count - 1) / 2) fail(name_of(job) + " gets devices that are linked too slowly");
}

// A job that has a node for itself has it from the first to the last moment.
void Auditor::check_lonely(JobId job, const Part& part, const Member& member) {
  const bool wanted = !part.place.empty() && part.place.front().exclusive;
  if (member.exclusive != wanted) fail(name_of(job) + " is not alone as it asked");
  for (const JobAttempt& live : live_) {
    if (live.first == job && !attempts_.at(live).abandoned) continue;
    for (const Member& other : attempts_.at(live).members) {
      if (other.node != member.node || other.state == MemberState::kEnded) continue;
      if (wanted || other.exclusive)
        fail(name_of(job) + " is placed beside " + name_of(live.first) +
             ", and one of them has the node alone");
    }
  }
  if (!wanted) return;
  for (const ReferenceDevice& reference : nodes_.at(member.node).devices) {
    if (reference.state == DeviceState::kDraining)
      fail(name_of(job) + " is to be alone on a node where " + reference.uuid + " still drains");
  }
  for (const auto& [other, promise] : promises_) {
    for (const Member& kept : promise.members) {
      if (kept.node == member.node)
        fail(name_of(job) + " takes a node that is promised to " + name_of(other));
    }
  }
}

void Auditor::take_parts(ReferenceJob& job, const std::vector<Part>& parts) {
  job.parts = parts;
  job.last_least = parts.back().member_count;
  job.last_most = parts.back().members_most();
}

// No gang in part, none over its domain, and no two members where each has a node of its own.
void Auditor::check_gang(const AttemptPlaced& event, ReferenceJob& job) {
  std::vector<int32_t> counts(job.parts.size(), 0);
  std::set<NodeId> nodes;
  std::set<std::string> racks;
  for (const Member& member : event.members) {
    ++counts.at(member.part);
    nodes.insert(member.node);
    racks.insert(nodes_.at(member.node).rack);
  }
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    const bool last = i + 1 == job.parts.size();
    const int32_t least = last ? job.last_least : job.parts[i].member_count;
    const int32_t most = last ? job.last_most : job.parts[i].member_count;
    if (counts[i] < least || counts[i] > most) fail(name_of(event.job) + " is placed in part");
  }
  const Part& part = job.parts.front();
  if (part.one_member_per_node && nodes.size() != event.members.size())
    fail(name_of(event.job) + " has two members on one node");
  const bool one_rack = nodes.size() == 1 || (racks.size() == 1 && !racks.contains(""));
  if (part.domain_required && part.domain == DomainLevel::kRack && !one_rack)
    fail(name_of(event.job) + " is not in one rack");
  if (part.domain_required && part.domain == DomainLevel::kNode && nodes.size() != 1)
    fail(name_of(event.job) + " is not on one node");
  if (job.last_most > job.last_least) job.parts.back().member_count = counts.back();
}

void Auditor::drop_share(const AttemptKey& key, ReferenceDevice& shared) {
  const auto share = shared.shares.find(key);
  if (share == shared.shares.end() || !share->second.draining)
    return fail(name_of(key) + " gives a share of " + shared.uuid + " back that it has or never had");
  const auto users = users_.find(shared.uuid);
  if (users != users_.end() && users->second.contains(key))
    fail(name_of(key) + " gives its share of " + shared.uuid + " back and still runs on it");
  const std::pair place{shared.uuid, share->second.start};
  if (!share->second.profile.empty() && busy_slices_.contains(place))
    fail(name_of(key) + " gives its slice of " + shared.uuid + " back, and something is left in it");
  if (!share->second.profile.empty() && slices_.contains(place))
    fail(name_of(key) + " gives its slice of " + shared.uuid + " back, and it is still there");
  shared.shares.erase(share);
  if (shared.shares.empty() && shared.state == DeviceState::kShared) free_device(shared);
}

}  // namespace gpusched::sim
