#include "sim/faults.h"

namespace gpusched::sim {
namespace {

constexpr std::array<std::string_view, kFaultCount> kNames = {
    "delay",       "cut",         "stall",       "duplicate",    "reorder",    "host-kill",
    "host-power",  "disk-full",   "sync-fails",  "agent-kill",   "reboot",     "reinstall",
    "shim-death",  "gpu",         "busy-device", "slow-driver",  "clock-step", "pause",
    "start-fails", "copy",        "disk-fails",  "disk-lies",    "decay",      "agent-disk",
    "clock-years", "second-host", "older-host",  "encoder-errs", "host-stop",  "gpu-daemons"};

}  // namespace

std::string_view to_string(Fault fault) { return kNames[static_cast<std::size_t>(fault)]; }

Result<FaultSet> parse_faults(std::string_view text) {
  FaultSet faults;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const bool take_away = word.starts_with('-');
    if (take_away) word.remove_prefix(1);
    if (word == "all" || word == "none") {
      faults = (word == "all") != take_away ? FaultSet::all() : FaultSet();
      continue;
    }
    std::size_t at = 0;
    while (at < kFaultCount && kNames[at] != word) ++at;
    if (at == kFaultCount) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "there is no fault '" + std::string(word) + "'; known: all, none, " +
                              to_string(FaultSet::all())};
    }
    const auto fault = static_cast<Fault>(at);
    if (take_away) {
      faults.remove(fault);
    } else {
      faults.add(fault);
    }
  }
  return faults;
}

std::string to_string(FaultSet faults) {
  std::string text;
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    if (!faults.has(static_cast<Fault>(i))) continue;
    if (!text.empty()) text += ',';
    text += kNames[i];
  }
  return text.empty() ? "none" : text;
}

}  // namespace gpusched::sim
