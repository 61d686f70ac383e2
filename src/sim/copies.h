#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sim/context.h"
#include "sim/network.h"
#include "sim/sim_node.h"

namespace gpusched::sim {

/// Machines and agents that pretend to be a node by mistake: copies of a node's machine with its data folder,
/// and agents that start on a node's folder under another name. None of them may ever speak for the node.
class Copies {
 public:
  /// `like`: a device of the first node. A node without devices is copied, where there is one: nothing but
  /// its boot tells it from its copy.
  Copies(Context& context, Network& network, std::vector<std::unique_ptr<SimNode>>& nodes,
         const DeviceFacts& like);

  /// A copy of some node's machine is switched on for a while.
  void copy_a_machine();
  /// Some node's agent starts again under another name, until its machine is rebooted.
  void rename_an_agent();
  void heal();

  /// The machine whose agents register under this name; null: none does.
  const SimNode* machine_of(const std::string& node) const;
  /// A machine that is on is in that boot.
  bool is_running(const std::string& boot_id) const;
  /// A node that was only ever a name, and is given up.
  bool is_leftover(const Node& node) const;
  /// A device that only a copied machine had.
  static bool is_of_copy(const std::string& uuid) { return uuid.starts_with(kCopyMark); }

 private:
  static constexpr const char* kCopyMark = "GPU-copy-";
  void end_rename(SimNode& node);

  Context& context_;
  std::vector<std::unique_ptr<SimNode>>& nodes_;
  SimNode& original_;  ///< Node that is copied.
  std::unique_ptr<SimNode> copy_;
  std::set<SimNode*> renamed_;
};

}  // namespace gpusched::sim
