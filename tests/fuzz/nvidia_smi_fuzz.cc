// rooms: base model log
// libs: gpusched_proto
// source: node/gpu/nvidia_smi_text.cc
// source: node/gpu/nvidia_smi_mig.cc
// source: node/gpu/device_topology.cc
// source: node/watch/gpu_faults.cc
// source: node/gpu/gpu_daemons.cc
// source: ops/machine.cc
// source: node/ports/ports.cc
// source: shim/box.cc
// source: shim/protocol.cc
//
// Output of nvidia-smi, cut anywhere and in any words: readings that the node can use, and no number that the
// text does not hold.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "node/gpu/device_topology.h"
#include "node/gpu/nvidia_smi_mig.h"
#include "node/gpu/nvidia_smi_text.h"

namespace smi = gpusched::smi;

namespace {

void check_reading(const smi::Row& row, const std::string& text) {
  const gpusched::DeviceReading reading = smi::reading_of(row, {}, {});
  CHECK(reading.memory_used_mb >= 0);
  CHECK(reading.utilization_percent.value_or(0) >= 0);
  CHECK(reading.temperature_celsius.value_or(0) >= 0);
  CHECK(reading.power_watts >= 0);
  CHECK((reading.condition == gpusched::v1::DEVICE_CONDITION_OK) == reading.detail.empty());
  // A device whose processes are not known is not taken for an empty one.
  CHECK(smi::reading_of(row, {}, "gone").condition == gpusched::v1::DEVICE_CONDITION_UNHEALTHY);
  if (text.find_first_of("0123456789") == std::string::npos)
    CHECK(reading.condition == gpusched::v1::DEVICE_CONDITION_UNHEALTHY);
}

/// A device whose cells are the input's is read as what they say.
void try_round_trip(uint16_t memory, uint16_t used, uint8_t temperature) {
  const std::string text = "GPU-0a1b, NVIDIA H100 80GB HBM3, " + std::to_string(memory) + ", " +
                           std::to_string(used) + ", 7, " + std::to_string(temperature) + ", 61.25, [N/A]\n";
  const auto devices = smi::devices_of(text);
  CHECK(devices.ok());
  CHECK(devices->size() == 1);
  CHECK(devices->front().memory_mb == memory);
  const auto rows = smi::rows_by_uuid(text);
  const gpusched::DeviceReading reading = smi::reading_of(rows.at("GPU-0a1b"), {12}, {});
  CHECK(reading.condition == gpusched::v1::DEVICE_CONDITION_OK);
  CHECK(reading.memory_used_mb == used);
  CHECK(reading.temperature_celsius == temperature);
  CHECK(reading.power_watts == 61);
  CHECK(reading.processes.size() == 1);
}

void check_slices(const std::string& text) {
  for (const gpusched::SliceReading& slice :
       smi::slices_of(0, "NVIDIA A100-SXM4-80GB", 81'920, text, text, text)) {
    CHECK(!slice.profile.empty());
    CHECK(slice.start >= 0);
    CHECK(slice.made.gpu_instance >= 0);
    CHECK(slice.memory_used_mb >= 0);
    for (const int64_t pid : slice.processes) CHECK(pid >= 0);
    CHECK(gpusched::clean_text(slice.made.uuid, slice.made.uuid.size()) == slice.made.uuid);
  }
  for (const auto& [uuid, mode] : smi::mig_modes(text)) CHECK(text.find(uuid) != std::string::npos);
}

/// A slice whose numbers are the input's is read as what they say, whatever stands beside it.
void try_slice(uint8_t instance, uint8_t start, uint16_t pid, uint16_t used, const std::string& beside) {
  const std::string number = std::to_string(instance);
  const std::string instances =
      "|   0  MIG 1g.10gb         19       " + number + "          " + std::to_string(start) + ":1     |\n";
  const std::string tables =
      "| MIG devices:   |\n|  0  " + number + "   0   3  |  " + std::to_string(used) +
      "MiB /  9728MiB | 14 0 |  1 0 0 0 0 |\n| Processes:  |\n|    0   " + number + "    0  " +
      std::to_string(pid) + "      C   " +
      (beside.find_first_of("\n|") == std::string::npos ? beside : std::string("a b")) + "     12MiB |\n";
  const std::string list =
      "GPU 0: NVIDIA A100 (UUID: GPU-0a1b)\n  MIG 1g.10gb     Device  3: (UUID: MIG-77)\n";
  const auto slices = smi::slices_of(0, "NVIDIA A100-SXM4-80GB", 81'920, instances, tables, list);
  CHECK(slices.size() == 1);
  CHECK(slices[0].profile == "1g.10gb");
  CHECK(slices[0].start == start);
  CHECK(slices[0].made.uuid == "MIG-77");
  CHECK(slices[0].memory_used_mb == used);
  CHECK(slices[0].processes == std::vector<int64_t>{pid});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  CHECK(smi::first_line(text).find('\n') == std::string::npos);
  if (const auto devices = smi::devices_of(text)) {
    CHECK(!devices->empty());
    for (const gpusched::DeviceFacts& device : *devices) {
      CHECK(!device.uuid.empty());
      CHECK(device.memory_mb >= 0);
      // The scheduler takes no text that is not UTF-8.
      CHECK(gpusched::clean_text(device.uuid, device.uuid.size()) == device.uuid);
      CHECK(gpusched::clean_text(device.model, device.model.size()) == device.model);
    }
    // Registered devices are found again in the next look.
    const auto rows = smi::rows_by_uuid(text);
    for (const gpusched::DeviceFacts& device : *devices) CHECK(rows.contains(device.uuid));
  } else {
    CHECK(!devices.error().message.empty());
  }
  for (const auto& [uuid, row] : smi::rows_by_uuid(text)) {
    CHECK(row.front() == uuid);
    check_reading(row, text);
  }
  for (const auto& [uuid, pids] : smi::processes_by_uuid(text)) {
    for (const int64_t pid : pids) CHECK(pid >= 0);
  }
  check_slices(text);
  if (size >= 6) {
    try_slice(data[0], data[1], static_cast<uint16_t>(data[2] << 8 | data[3]),
              static_cast<uint16_t>(data[4] << 8 | data[5]), text.substr(6));
  }
  const std::size_t devices = size % 9;
  if (const auto topology = gpusched::smi::topology_of(text, devices, "NVIDIA A100")) {
    CHECK(topology->links.size() == gpusched::pair_count(devices));
    CHECK(topology->numa_nodes.size() == devices);
    for (const int64_t code : topology->links) CHECK(gpusched::Link::is_sound(code));
  }
  if (size >= 5) {
    try_round_trip(static_cast<uint16_t>(data[0] << 8 | data[1]),
                   static_cast<uint16_t>(data[2] << 8 | data[3]), data[4]);
  }
  return 0;
}
