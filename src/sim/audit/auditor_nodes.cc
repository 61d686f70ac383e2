// The auditor's books of nodes and their devices: each event is held against what it must not contradict.
#include <algorithm>

#include "sim/audit/auditor.h"

namespace gpusched::sim {
namespace {

/// Between a group's time and its being durable.
constexpr Duration kDiskDelayMax = seconds(5);

}  // namespace

void Auditor::on(const NodeRegistered& event) {
  heard_.insert(event.node);
  const bool booted = event.rebooted || !nodes_.contains(event.node);
  ReferenceNode& node = nodes_[event.node];
  if (booted && node.availability != Availability::kDraining)
    node.availability = event.offer->validates ? Availability::kValidating : Availability::kInService;
  node.name = event.offer->name;
  node.state = NodeState::kReady;
  const std::vector<std::string>& features = event.offer->features;
  node.external = std::find(features.begin(), features.end(), "external") != features.end();
  node.cpu_milli = event.offer->cpu_milli;
  node.memory_mb = event.offer->memory_mb;
  node.agent_labels.clear();
  for (const Label& label : event.offer->labels) node.agent_labels[label.name] = label.value;
  node.links = event.offer->links;
  node.linked.clear();
  for (const DeviceOffer& offer : event.offer->devices) node.linked.push_back(offer.uuid);
  for (ReferenceDevice& known : node.devices) known.condition = DeviceCondition::kMissing;
  std::size_t reused = 0;
  for (const DeviceOffer& offer : event.offer->devices) {
    auto known = std::find_if(node.devices.begin(), node.devices.end(),
                              [&](const ReferenceDevice& reference) { return reference.uuid == offer.uuid; });
    if (known == node.devices.end() && reused < event.reused.size()) {
      known = node.devices.begin() + static_cast<std::ptrdiff_t>(event.reused[reused++]);
      give_back_slot(*known, offer.uuid);
    }
    if (known == node.devices.end()) known = node.devices.insert(known, ReferenceDevice{.uuid = offer.uuid});
    known->memory_mb = offer.memory_mb;
    known->model = offer.model;
    known->mig_next = offer.mig;
    if (known->state == DeviceState::kFree) known->mig = offer.mig;
    known->condition = offer.condition;
  }
}

// The slot of a device that is gone is another one's now.
void Auditor::give_back_slot(ReferenceDevice& gone, const std::string& uuid) {
  if (gone.condition != DeviceCondition::kMissing || gone.state != DeviceState::kFree || gone.barred ||
      gone.promised_to.valid())
    fail("the slot of " + gone.uuid + " is given to " + uuid + " and is not vacant");
  gone = ReferenceDevice{.uuid = uuid, .generation = gone.generation + 1};
}

void Auditor::on(const NodeRemoved& event) {
  const ReferenceNode& node = nodes_.at(event.node);
  if (node.state == NodeState::kReady) fail("node " + node.name + " is removed while it reports");
  for (const ReferenceDevice& device : node.devices) {
    if (device.state != DeviceState::kFree || device.promised_to.valid())
      fail("node " + node.name + " is removed and its " + device.uuid + " is not free");
  }
  for (const JobAttempt& live : live_) {
    for (const Member& member : attempts_.at(live).members) {
      if (member.node == event.node && member.state != MemberState::kEnded)
        fail("node " + node.name + " is removed while it holds " + name_of(live.first));
    }
  }
  nodes_.at(event.node).removed = true;
}

void Auditor::on(const NodeStateChanged& event) {
  ReferenceNode& node = nodes_.at(event.node);
  node.state = event.to;
  if (event.to == NodeState::kUnreachable) node.silent_at = schedule_.now();
  if (event.to != NodeState::kLost) return;
  const Duration silent = schedule_.now() - node.silent_at + kDiskDelayMax;
  if (silent + Duration{silent.ns / 20} < replica_.config.lost_after)
    fail("node " + node.name + " is lost after " + std::to_string(silent.ms()) + " ms of silence");
}

void Auditor::on(const NodeAvailabilityChanged& event) {
  ReferenceNode& node = nodes_.at(event.node);
  const bool by_itself = event.to == Availability::kDraining && event.by == "scheduler";
  if (by_itself && replica_.config.auto_drain_percent == 0)
    fail("node " + node.name + " is drained by nobody");
  if (by_itself && !may_drain_another()) fail("node " + node.name + " is drained by itself beyond the cap");
  if (by_itself && event.reason.empty()) fail("node " + node.name + " is drained without evidence");
  node.availability = event.to;
  node.drained_by_itself = by_itself;
}

bool Auditor::may_drain_another() const {
  const auto drained = std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    return !entry.second.removed && entry.second.availability == Availability::kDraining &&
           entry.second.drained_by_itself;
  });
  const auto count =
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return !entry.second.removed; });
  return drained < std::max<int64_t>(1, count * replica_.config.auto_drain_percent / 100);
}

void Auditor::on(const NodeLabeled& event) {
  ReferenceNode& node = nodes_.at(event.change->node);
  for (const std::string& name : event.change->remove) node.labels.erase(name);
  for (const Label& label : event.change->set) node.labels[label.name] = label.value;
  for (const std::string& name : event.change->remove) {
    if (name == "topology.rack") node.rack.clear();
  }
  for (const Label& label : event.change->set) {
    if (label.name == "topology.rack") node.rack = label.value;
  }
}

void Auditor::on(const NodeSuspected& event) {
  if (!event.detail.empty() && may_drain_another())
    fail("an operator is called for node " + nodes_.at(event.node).name + ", which may drain by itself");
}

void Auditor::on(const BookingMade& event) {
  bookings_[event.booking->id] = event.booking->nodes;
  booked_since_[event.booking->id] = replica_.last.at;
}

// A placed job is gone when the next reservation of others begins on its nodes, as far as it says how long it
// runs. The plan is some moments older than its record, and did not know of reservations made meanwhile.
void Auditor::check_ends_before_bookings(const AttemptPlaced& event, const ReferenceJob& job) {
  constexpr Duration kPlanAgeMax = milliseconds(100);
  if (job.max_runtime.ns <= 0) return;
  const BookingId own{job.parts.front().booking};
  const Time end = event.at + job.max_runtime + limits::kRuntimeSlack - kPlanAgeMax;
  for (const auto& [id, booking] : replica_.bookings) {
    if (id == own || booked_since_.at(id) + kPlanAgeMax >= event.at) continue;
    const Time begin = booking.active && booking.repeats() ? booking.begin + booking.every : booking.begin;
    if (begin >= end || (booking.active && !booking.repeats())) continue;
    const bool there = std::ranges::any_of(event.members, [&](const Member& member) {
      return std::binary_search(booking.nodes.begin(), booking.nodes.end(), member.node);
    });
    if (there)
      fail(name_of(event.job) + " is placed where reservation " + booking.name + " begins before it ends");
  }
}

void Auditor::on(const BookingBegan& event) {
  for (const NodeId node : bookings_.at(event.booking)) {
    if (!booked_.emplace(node, event.booking).second)
      fail("node " + nodes_.at(node).name + " is reserved twice at one time");
  }
}

void Auditor::on(const BookingEnded& event) {
  for (const NodeId node : bookings_.at(event.booking)) {
    const auto found = booked_.find(node);
    if (found != booked_.end() && found->second == event.booking) booked_.erase(found);
  }
}

void Auditor::on(const DeviceConditionChanged& event) {
  device(event.node, event.device)->condition = event.condition;
}

void Auditor::on(const DeviceBarred& event) {
  if (!by_operator_) fail("a device is barred by nobody");
  device(event.node, event.device)->barred = event.barred;
}

void Auditor::on(const DeviceHeatChanged& event) {
  ReferenceDevice* heated = device(event.node, event.device);
  if (event.hot && !ever_hot_.contains(heated->uuid)) fail(heated->uuid + " is called hot and never was");
  if (event.hot && event.detail.empty()) fail(heated->uuid + " is called hot without evidence");
  heated->hot = event.hot;
}

void Auditor::on(const DeviceFaultChanged& event) {
  ReferenceDevice* broken = device(event.node, event.device);
  broken->faulty = event.fault >= FaultClass::kDrain;
  if (broken->faulty && !ever_faulty_.contains(broken->uuid))
    fail(broken->uuid + " is called faulty and never was");
  if (broken->faulty && event.code.empty()) fail(broken->uuid + " is called faulty without a code");
  if (!event.by.empty() && !by_operator_) fail("a fault is released by nobody");
}

void Auditor::on(const DeviceOccupied& event) {
  ReferenceDevice* again = device(event.node, event.device);
  again->state = again->shares.empty() ? DeviceState::kDraining : DeviceState::kShared;
}

void Auditor::on(const DeviceFreed& event) {
  ReferenceDevice* freed = device(event.node, event.device);
  if (freed->state == DeviceState::kFree || freed->state == DeviceState::kHeld) {
    fail("device " + freed->uuid + " is freed and was " + std::string(to_string(freed->state)));
  }
  if (freed->state == DeviceState::kShared)
    fail("device " + freed->uuid + " is freed and not one share of it");
  std::erase_if(freed->shares, [](const auto& entry) { return entry.second.draining; });
  if (!freed->shares.empty()) {
    freed->state = DeviceState::kShared;
    return;
  }
  free_device(*freed);
}

void Auditor::free_device(ReferenceDevice& freed) {
  if (device_in_use(freed.uuid)) fail("device " + freed.uuid + " is freed and still in use");
  freed.state = DeviceState::kFree;
  freed.generation += 1;
  freed.mig = freed.mig_next;
}

void Auditor::on(const DeviceQuarantined& event) {
  ReferenceDevice* bad = device(event.node, event.device);
  const bool drains = bad->state == DeviceState::kDraining ||
                      (bad->state == DeviceState::kShared &&
                       std::any_of(bad->shares.begin(), bad->shares.end(),
                                   [](const auto& entry) { return entry.second.draining; }));
  if (!drains) fail("device " + bad->uuid + " is quarantined and was not draining");
  if (event.evidence.empty()) fail("device " + bad->uuid + " is quarantined without evidence");
  bad->state = DeviceState::kQuarantined;
}

}  // namespace gpusched::sim
