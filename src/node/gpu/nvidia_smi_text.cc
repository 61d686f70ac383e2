#include "node/gpu/nvidia_smi_text.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "log/log.h"
#include "node/watch/gpu_faults.h"

namespace gpusched::smi {
namespace {

constexpr std::size_t kReasonBytesMax = 200;
enum Column : std::size_t { kUuid, kName, kTotal, kUsed, kUtilization, kTemperature, kPower, kEcc, kColumns };

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

std::vector<Row> rows_of(std::string_view text) {
  std::vector<Row> rows;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    Row& row = rows.emplace_back();
    while (true) {
      const std::size_t comma = line.find(',');
      row.emplace_back(trimmed(line.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      line.remove_prefix(comma + 1);
    }
  }
  return rows;
}

/// A cell's number; nothing for "[N/A]", "[Not Supported]", "ERR!" and the like. A fraction is cut.
std::optional<int64_t> number_of(const std::string& cell) {
  double value = 0;
  const char* const end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  // Written so that "nan", which from_chars takes for a number, is none.
  if (error != std::errc{} || stop != end || !(value >= 0 && value <= 1e15)) return std::nullopt;
  return static_cast<int64_t>(value);
}

/// A sensor's number; 0 when there is none that such a sensor could show.
int32_t small_number_of(const std::string& cell) {
  const int64_t value = number_of(cell).value_or(0);
  return value <= INT32_MAX ? static_cast<int32_t>(value) : 0;
}

/// Whether a cell says that something is wrong, and not only that the device has no such sensor.
bool is_trouble(const std::string& cell) {
  for (const char* const word : {"ERR!", "Unknown Error", "lost", "requires reset", "Error"}) {
    if (cell.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::string first_line(std::string_view text) {
  return std::string(trimmed(text.substr(0, text.find('\n'))).substr(0, kReasonBytesMax));
}

Result<std::vector<DeviceFacts>> devices_of(std::string_view text) {
  std::vector<DeviceFacts> facts;
  std::string unknown;
  for (const Row& row : rows_of(text)) {
    const std::optional<int64_t> total = row.size() == kColumns ? number_of(row[kTotal]) : std::nullopt;
    const std::string uuid = clean_text(row[kUuid], kReasonBytesMax);
    if (!total || row[kUuid].empty() || uuid != row[kUuid] || is_trouble(row[kName])) {
      unknown = "nvidia-smi reports incomplete data of a device: " + uuid;  // The others do not go with it.
      log_event(LogLevel::kError, "agent", "gpu_not_readable", {}, {{"uuid", uuid}, {"why", unknown}});
      continue;
    }
    facts.push_back(
        {.uuid = row[kUuid], .model = clean_text(row[kName], kReasonBytesMax), .memory_mb = *total});
  }
  if (facts.empty() && !unknown.empty()) return Error{.code = ErrorCode::kUnavailable, .message = unknown};
  if (facts.empty()) return Error{.code = ErrorCode::kNotFound, .message = "nvidia-smi lists no device"};
  return facts;
}

std::map<std::string, Row> rows_by_uuid(std::string_view text) {
  std::map<std::string, Row> rows;
  for (Row& row : rows_of(text)) {
    if (row.size() == kColumns) rows.insert_or_assign(row[kUuid], std::move(row));
  }
  return rows;
}

std::map<std::string, std::vector<int64_t>> processes_by_uuid(std::string_view text) {
  std::map<std::string, std::vector<int64_t>> processes;
  for (const Row& row : rows_of(text)) {
    const std::optional<int64_t> pid = row.size() == 2 || row.size() == 3 ? number_of(row[1]) : std::nullopt;
    if (pid) processes[row[0]].push_back(*pid);
  }
  return processes;
}

std::map<std::string, std::vector<int64_t>> process_memory_by_uuid(std::string_view text) {
  std::map<std::string, std::vector<int64_t>> memory;
  for (const Row& row : rows_of(text)) {
    if ((row.size() != 2 && row.size() != 3) || !number_of(row[1])) continue;
    memory[row[0]].push_back(row.size() == 3 ? number_of(row[2]).value_or(-1) : -1);
  }
  return memory;
}

std::map<std::string, std::string> slots_by_uuid(std::string_view text) {
  std::map<std::string, std::string> slots;
  for (const Row& row : rows_of(text)) {
    if (row.size() == 2) slots[row[0]] = pci_slot_of(row[1]);
  }
  return slots;
}

DeviceReading reading_of(const Row& row, std::vector<int64_t> processes,
                         const std::string& processes_trouble) {
  DeviceReading reading;
  const std::optional<int64_t> used = number_of(row[kUsed]);
  reading.memory_used_mb = used.value_or(0);
  if (number_of(row[kUtilization])) reading.utilization_percent = small_number_of(row[kUtilization]);
  if (number_of(row[kTemperature])) reading.temperature_celsius = small_number_of(row[kTemperature]);
  reading.power_watts = small_number_of(row[kPower]);
  reading.processes = std::move(processes);
  const auto unhealthy = [&reading](const std::string& why) {
    reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
    if (reading.detail.empty()) reading.detail = why;
  };
  for (const std::string& cell : row) {
    if (is_trouble(cell)) unhealthy("nvidia-smi says " + cell.substr(0, kReasonBytesMax));
  }
  // Without its memory and its processes nobody knows whether it is empty.
  if (!used) unhealthy("nvidia-smi does not report its memory: " + row[kUsed].substr(0, kReasonBytesMax));
  if (!processes_trouble.empty()) unhealthy("its processes cannot be read: " + processes_trouble);
  reading.ecc_uncorrected = number_of(row[kEcc]).value_or(-1);
  return reading;
}

}  // namespace gpusched::smi
