#include "sim/copies.h"

#include <algorithm>

namespace gpusched::sim {
namespace {

constexpr const char* kRenamed = "-renamed";

// One GPU as a node has it, and no more of anything than each node has: what a job was accepted for on a copy
// it finds elsewhere once the copy is gone.
std::vector<DeviceFacts> devices_of_copy(DeviceFacts like, const char* mark) {
  like.uuid = mark + std::string("0");
  return {like};
}

// The first node has a GPU like the copy's: another might be the only one of its name.
SimNode& node_to_copy(const std::vector<std::unique_ptr<SimNode>>& nodes) {
  const auto bare = std::find_if(nodes.begin(), nodes.end(),
                                 [](const auto& node) { return node->machine().gpu_count() == 0; });
  return bare == nodes.end() ? *nodes.front() : **bare;
}

}  // namespace

Copies::Copies(Context& context, Network& network, std::vector<std::unique_ptr<SimNode>>& nodes,
               const DeviceFacts& like)
    : context_(context),
      nodes_(nodes),
      original_(node_to_copy(nodes)),
      copy_(std::make_unique<SimNode>(context, network, nodes.size(),
                                      original_.machine().gpu_count() == 0 ? std::vector<DeviceFacts>{}
                                                                           : devices_of_copy(like, kCopyMark),
                                      4'000, 16'000)) {
  network.add(*copy_);
}

void Copies::copy_a_machine() {
  if (copy_->powered()) return;
  copy_->become_copy_of(original_);
  copy_->power_on();
  context_.schedule.in(context_.some_ms(500, 40'000), [this] { copy_->power_off(); });
}

void Copies::rename_an_agent() {
  SimNode& node = *nodes_[context_.prng.below(nodes_.size())];
  if (!node.powered() || renamed_.contains(&node)) return;
  renamed_.insert(&node);
  node.kill_agent();
  node.start_agent(node.node_name() + kRenamed);
  context_.schedule.in(context_.some_ms(500, 30'000), [this, &node] { end_rename(node); });
}

// By then it may have been taken for a node: only a reboot proves that what runs under that name is over.
void Copies::end_rename(SimNode& node) {
  if (renamed_.erase(&node) == 0) return;
  node.power_off();
  node.power_on();
}

void Copies::heal() {
  copy_->machine().heal();
  copy_->power_off();
  for (const auto& node : nodes_) end_rename(*node);  // Not by their addresses: runs of a seed are alike.
}

const SimNode* Copies::machine_of(const std::string& node) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& machine) {
    return node == machine->node_name() || node == machine->node_name() + kRenamed;
  });
  return found == nodes_.end() ? nullptr : found->get();
}

bool Copies::is_running(const std::string& boot_id) const {
  const auto is = [&](const auto& machine) { return machine->powered() && machine->boot_id() == boot_id; };
  return is(copy_) || std::any_of(nodes_.begin(), nodes_.end(), is);
}

bool Copies::is_leftover(const Node& node) const {
  return node.state == NodeState::kDead && node.name.ends_with(kRenamed);
}

}  // namespace gpusched::sim
