#include "node/watch/gpu_faults.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "node/ports/ports.h"

namespace gpusched {
namespace {

constexpr std::size_t kTextBytesMax = 200;
constexpr std::array kRuleNames = {"ignore", "note", "drain", "reset", "replace"};

// One line a kind.
constexpr auto kIgnore = FaultRule::kIgnore;
constexpr auto kNote = FaultRule::kNote;
constexpr auto kDrain = FaultRule::kDrain;
constexpr auto kReset = FaultRule::kReset;
constexpr auto kReplace = FaultRule::kReplace;
constexpr std::array kKinds = {
    FaultKind{"xid 8", kNote, "the GPU stopped processing"},
    FaultKind{"xid 11", kIgnore, "invalid commands from the job"},
    FaultKind{"xid 13", kIgnore, "exception in the job's own code on the GPU"},
    FaultKind{"xid 25", kIgnore, "invalid commands from the job"},
    FaultKind{"xid 31", kIgnore, "the job accessed memory that it does not own"},
    FaultKind{"xid 32", kNote, "corrupted command stream: caused by the job, the driver or the bus"},
    FaultKind{"xid 38", kNote, "error of the driver's firmware"},
    FaultKind{"xid 43", kIgnore, "the job's work was stopped after an error in it"},
    FaultKind{"xid 44", kNote, "fault while the GPU changed between jobs' contexts"},
    FaultKind{"xid 45", kIgnore, "the job's work was cleaned up after an earlier error or its end"},
    FaultKind{"xid 46", kReset, "the GPU stopped processing and does not recover"},
    FaultKind{"xid 48", kReset, "uncorrectable double-bit memory error"},
    FaultKind{"xid 54", kDrain, "its auxiliary power is not connected"},
    FaultKind{"xid 56", kIgnore, "error of the display engine"},
    FaultKind{"xid 57", kNote, "the memory interface could not be set up"},
    FaultKind{"xid 58", kReset, "the memory interface is unstable"},
    FaultKind{"xid 60", kNote, "error of the video processor"},
    FaultKind{"xid 61", kReset, "warning of the internal controller"},
    FaultKind{"xid 62", kReset, "the internal controller halted"},
    FaultKind{"xid 63", kNote, "a faulty row or page of memory will be retired at the next reset"},
    FaultKind{"xid 64", kReset, "a faulty row or page of memory could not be recorded"},
    FaultKind{"xid 65", kIgnore, "error of the video processor"},
    FaultKind{"xid 66", kNote, "the driver used memory that is not its own"},
    FaultKind{"xid 67", kNote, "the driver used memory that is not its own"},
    FaultKind{"xid 68", kIgnore, "exception of the video decoder in the job's work"},
    FaultKind{"xid 69", kIgnore, "error of the graphics engine caused by the job"},
    FaultKind{"xid 70", kNote, "error of a copy engine"},
    FaultKind{"xid 71", kNote, "error of a copy engine"},
    FaultKind{"xid 72", kNote, "error of a copy engine"},
    FaultKind{"xid 73", kIgnore, "exception of the video encoder in the job's work"},
    FaultKind{"xid 74", kDrain, "error of NVLink"},
    FaultKind{"xid 78", kNote, "a virtual GPU could not be started"},
    FaultKind{"xid 79", kDrain, "it has fallen off the bus; only a restart of the machine recovers it"},
    FaultKind{"xid 80", kNote, "corrupted data sent to the GPU"},
    FaultKind{"xid 82", kIgnore, "error of the JPEG decoder"},
    FaultKind{"xid 83", kIgnore, "exception of a video decoder"},
    FaultKind{"xid 84", kIgnore, "exception of a video decoder"},
    FaultKind{"xid 92", kReplace, "too many single-bit memory errors"},
    FaultKind{"xid 94", kReset, "memory error contained to the job that caused it"},
    FaultKind{"xid 95", kReset, "uncontained memory error, which may have affected other jobs"},
    FaultKind{"xid 109", kReset, "the GPU hung while it changed between contexts"},
    FaultKind{"xid 110", kReset, "security fault"},
    FaultKind{"xid 119", kReset, "the GPU's system processor does not respond to the driver"},
    FaultKind{"xid 120", kReset, "the GPU's system processor failed"},
    FaultKind{"xid 121", kNote, "corrected errors of the link to the CPU"},
    FaultKind{"xid 122", kNote, "its settings memory (inforom) cannot be read"},
    FaultKind{"xid 123", kReset, "its settings memory (inforom) cannot be written"},
    FaultKind{"xid 125", kNote, "its settings memory (inforom) has an error"},
    FaultKind{"xid 136", kReset, "training of a link failed"},
    FaultKind{"xid 137", kIgnore,
              "the job accessed the memory of another GPU without permission, or that GPU failed"},
    FaultKind{"xid 140", kReset, "unrecovered memory error"},
    FaultKind{"xid 143", kReset, "the GPU could not be initialised"},
    FaultKind{"xid 144", kDrain, "error of NVLink: SAW"},
    FaultKind{"xid 145", kDrain, "error of NVLink: RLW"},
    FaultKind{"xid 146", kDrain, "error of NVLink: TLW"},
    FaultKind{"xid 147", kDrain, "error of NVLink: TREX"},
    FaultKind{"xid 148", kDrain, "error of NVLink: control"},
    FaultKind{"xid 149", kDrain, "error of NVLink: network interface"},
    FaultKind{"xid 150", kDrain, "error of NVLink: management engine"},
    FaultKind{"xid 154", kReset, "the driver requests a reset of the GPU or a restart of the machine"},
    FaultKind{"xid 155", kDrain, "an NVLink was shut down"},
    FaultKind{"xid 156", kNote, "a faulty resource was retired"},
    FaultKind{"xid 157", kReplace, "a faulty resource could not be retired"},
    FaultKind{"xid 158", kReset, "fatal timeout inside the GPU"},
    FaultKind{"ecc_uncorrected", kReset, "uncorrected memory errors"},
    FaultKind{"row_remap_pending", kReset,
              "faulty rows or pages of memory will be retired at the next reset"},
    FaultKind{"row_remap_failed", kReplace, "no spare rows of memory are left"},
    FaultKind{"throttle_hw_slowdown", kNote, "the hardware slows it down"},
    FaultKind{"throttle_hw_thermal", kNote, "the hardware slows it down because it is too hot"},
    FaultKind{"throttle_power_brake", kNote, "the machine's power supply slows it down"},
};

const FaultKind* find_kind(std::string_view code) {
  const auto found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const FaultKind& kind) { return kind.code == code; });
  return found == kKinds.end() ? nullptr : &*found;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 4 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<FaultRule> rule_named(std::string_view name) {
  for (std::size_t i = 0; i < kRuleNames.size(); ++i) {
    if (kRuleNames[i] == name) return static_cast<FaultRule>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(FaultRule rule) { return kRuleNames.at(static_cast<std::size_t>(rule)); }

v1::FaultClass to_wire(FaultRule rule) { return static_cast<v1::FaultClass>(static_cast<int>(rule)); }

std::span<const FaultKind> fault_kinds() { return kKinds; }

std::string xid_code(uint32_t xid) { return "xid " + std::to_string(xid); }

Result<FaultTable> FaultTable::parse(std::string_view changes) {
  FaultTable table;
  while (!changes.empty()) {
    const std::size_t end = std::min(changes.find(','), changes.size());
    const std::string_view part = trimmed(changes.substr(0, end));
    changes.remove_prefix(std::min(end + 1, changes.size()));
    if (part.empty()) continue;
    const std::size_t equals = part.find('=');
    const std::string_view name = trimmed(part.substr(0, equals));
    const std::string code = (is_number(name) ? "xid " : "") + std::string(name);
    const std::optional<FaultRule> rule =
        equals == std::string_view::npos ? std::nullopt : rule_named(trimmed(part.substr(equals + 1)));
    const bool known = is_number(name) || (find_kind(code) != nullptr && !code.starts_with("xid"));
    if (!known || !rule) {
      return Error{
          .code = ErrorCode::kInvalidArgument,
          .message = "gpu-faults: '" + std::string(part) +
                     "' is not CODE=RULE with the number of an Xid, ecc_uncorrected, row_remap_pending, "
                     "row_remap_failed, throttle_hw_slowdown, "
                     "throttle_hw_thermal or throttle_power_brake, and ignore, note, drain, reset or "
                     "replace; such as 79=replace,63=ignore",
          .field = "gpu-faults"};
    }
    table.changed_[code] = *rule;
  }
  return table;
}

FaultRule FaultTable::rule_of(std::string_view code) const {
  if (const auto changed = changed_.find(code); changed != changed_.end()) return changed->second;
  const FaultKind* kind = find_kind(code);
  return kind == nullptr ? FaultRule::kNote : kind->rule;
}

std::string_view FaultTable::meaning_of(std::string_view code) {
  const FaultKind* kind = find_kind(code);
  return kind == nullptr ? std::string_view() : kind->meaning;
}

std::string pci_slot_of(std::string_view bus_id) {
  // Domain, bus and device; what follows is the function, or nothing.
  std::array<std::string, 3> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = std::min(bus_id.find_first_not_of("0123456789abcdefABCDEF"), bus_id.size());
    if (end == 0 || end > 8) return {};
    parts[i] = bus_id.substr(0, end);
    bus_id.remove_prefix(end);
    if (i + 1 == parts.size()) break;
    if (!bus_id.starts_with(':')) return {};
    bus_id.remove_prefix(1);
  }
  if (!bus_id.empty() && bus_id.front() != '.') return {};
  while (parts[0].size() > 4 && parts[0].front() == '0') parts[0].erase(0, 1);
  std::string slot = parts[0] + ":" + parts[1] + ":" + parts[2];
  std::transform(slot.begin(), slot.end(), slot.begin(), [](char letter) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  });
  return slot;
}

std::optional<XidLine> parse_xid_line(std::string_view line) {
  constexpr std::string_view kMark = "NVRM: Xid (";
  const std::size_t at = line.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + kMark.size());
  if (line.starts_with("PCI:")) line.remove_prefix(4);
  const std::size_t close = line.find(')');
  if (close == std::string_view::npos) return std::nullopt;
  XidLine xid{.pci = pci_slot_of(line.substr(0, close)), .xid = 0, .text = {}};
  line.remove_prefix(close + 1);
  if (xid.pci.empty() || !line.starts_with(":")) return std::nullopt;
  line = trimmed(line.substr(1));
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), xid.xid);
  if (error != std::errc{} || xid.xid == 0 || xid.xid > 9'999) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (!line.empty() && line.front() != ',' && line.front() != ' ' && line.front() != '\n')
    return std::nullopt;
  if (line.starts_with(',')) line.remove_prefix(1);
  line = trimmed(line.substr(0, line.find('\n')));
  xid.text = clean_text(line, kTextBytesMax);
  return xid;
}

}  // namespace gpusched
