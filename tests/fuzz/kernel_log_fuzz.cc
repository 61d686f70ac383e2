// rooms: base
// libs: gpusched_proto
// source: node/watch/gpu_faults.cc
// source: node/watch/fault_watch.cc
// source: node/ports/ports.cc
// source: shim/box.cc
// source: shim/protocol.cc
// Any line of a kernel's log, and any text that a node remembers of its devices' faults.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "node/watch/fault_watch.h"
#include "node/watch/gpu_faults.h"

using namespace gpusched;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Time wall{1'700'000'000'000'000'000};
  if (const auto line = parse_xid_line(text)) {
    CHECK(line->xid > 0 && line->xid <= 9'999);
    CHECK(pci_slot_of(line->pci) == line->pci);
    CHECK(line->text.size() <= 200 && line->text.find('\n') == std::string::npos);
  }
  FaultWatch watch({"GPU-a", "GPU-b"}, FaultTable{}, text, false, wall);
  watch.on_xid(0, 92, text, wall, wall);
  CHECK(watch.standing(0).rule == FaultRule::kReplace);
  const auto kept = watch.take_text();
  if (kept) {
    const FaultWatch again({"GPU-a", "GPU-b"}, FaultTable{}, *kept, false, wall);
    for (uint32_t index = 0; index < 2; ++index) {
      CHECK(again.standing(index).rule == watch.standing(index).rule);
      CHECK(again.standing(index).id == watch.standing(index).id);
    }
  }
  const auto table = FaultTable::parse(text);
  if (!table.ok()) CHECK(!table.error().message.empty());
  return 0;
}
