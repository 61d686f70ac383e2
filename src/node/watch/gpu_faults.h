#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gpusched/v1/node.pb.h"

namespace gpusched {

/// Reactions of a node to a kind of fault, from mild to grave. The reference is docs/reference/gpu-health.md.
enum class FaultRule : uint8_t {
  kIgnore = 0,  ///< The job's own doing, or nothing.
  kNote,        ///< Shown for a while.
  kDrain,       ///< No new work until an operator releases it; what runs goes on. So for those that follow.
  kReset,       ///< Or until it was reset.
  kReplace,     ///< It is broken.
};
std::string_view to_string(FaultRule rule);
v1::FaultClass to_wire(FaultRule rule);

/// A kind of fault, by its code: "xid 79" or one of those that drivers count.
struct FaultKind {
  std::string_view code;
  FaultRule rule = FaultRule::kNote;
  std::string_view meaning;  ///< A few words for people.
};
/// All that are known, Xids first and ascending. After NVIDIA's catalogue of Xid errors (r555 and newer:
/// docs.nvidia.com/deploy/xid-errors) and its guide to memory errors, in our words.
std::span<const FaultKind> fault_kinds();

/// Reactions to faults on this node: the kinds above, with an operator's changes.
class FaultTable {
 public:
  /// "79=replace,63=ignore,ecc_uncorrected=drain": Xids by their number, the others by their code; empty:
  /// nothing is changed. kInvalidArgument names what is no code and no rule.
  static Result<FaultTable> parse(std::string_view changes);

  /// The rule of a code; kNote for an Xid that the catalogue does not have.
  FaultRule rule_of(std::string_view code) const;
  /// Empty when the code is not known.
  static std::string_view meaning_of(std::string_view code);

 private:
  std::map<std::string, FaultRule, std::less<>> changed_;
};

std::string xid_code(uint32_t xid);

/// A line of the kernel's log in which NVIDIA's driver tells an Xid.
struct XidLine {
  std::string pci;  ///< "0000:3b:00": domain, bus, device, in small letters.
  uint32_t xid = 0;
  std::string text;  ///< Text behind the number, bounded and clean.
};
/// Nothing of any other line. Takes "NVRM: Xid (PCI:0000:3b:00): 79, pid=..." and the older form without
/// "PCI:", whatever stands before it, and a record of /dev/kmsg.
std::optional<XidLine> parse_xid_line(std::string_view line);
/// "00000000:3B:00.0", as NVML and nvidia-smi write it, in the form of XidLine; empty: it is none.
std::string pci_slot_of(std::string_view bus_id);

}  // namespace gpusched
