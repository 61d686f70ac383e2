#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "node/ports/ports.h"
#include "node/watch/device_watch.h"

/// Reads nvidia-smi's output. Its text may be cut anywhere, and says in its own words what it cannot tell.
/// All functions are thread-safe.
namespace gpusched::smi {

/// The queries whose answers are read here, with `--format=csv,noheader,nounits`. They are those of
/// `nvidia-smi --help-query-gpu` and `--help-query-compute-apps`.
inline constexpr const char* kGpuQuery =
    "--query-gpu=uuid,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,"
    "ecc.errors.uncorrected.volatile.total";
inline constexpr const char* kAppsQuery = "--query-compute-apps=gpu_uuid,pid,used_memory";
inline constexpr const char* kSlotQuery = "--query-gpu=uuid,pci.bus_id";

/// The cells of a device's line, without blanks around them: one for each part of kGpuQuery.
using Row = std::vector<std::string>;

/// The first line, cut to what a message may hold.
std::string first_line(std::string_view text);

/// The devices in their order. kUnavailable when it does not tell one's name or memory, kNotFound when there
/// is none.
Result<std::vector<DeviceFacts>> devices_of(std::string_view text);

/// The whole lines of kGpuQuery's answer; of two with one uuid, the later.
std::map<std::string, Row> rows_by_uuid(std::string_view text);

/// Memory in MB that each of these uses of its device, in their order; -1: not told.
std::map<std::string, std::vector<int64_t>> process_memory_by_uuid(std::string_view text);
/// Slots in kSlotQuery's answer: see DeviceFacts::pci_slot.
std::map<std::string, std::string> slots_by_uuid(std::string_view text);
/// Process ids of kAppsQuery's answer.
std::map<std::string, std::vector<int64_t>> processes_by_uuid(std::string_view text);

/// A row of `rows_by_uuid`, with the device's processes, or `processes_trouble`: why they are not known.
DeviceReading reading_of(const Row& row, std::vector<int64_t> processes,
                         const std::string& processes_trouble);

}  // namespace gpusched::smi
