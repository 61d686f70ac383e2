#include "replay/placement_trace.h"

#include <algorithm>
#include <string_view>

#include "base/limits.h"
#include "replay/csv.h"

namespace gpusched::replay {
namespace {

constexpr int64_t kAmountMax = int64_t{1} << 30;
constexpr std::size_t kModelsMax = 63;  ///< The last class is that of models that no node has.

Result<Unit> read_nodes(const std::string& path, PlacementTrace& trace) {
  Result<CsvFile> file = CsvFile::open(path, {"cpu_milli", "memory_mib", "gpu", "model"});
  if (!file) return file.error();
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) return Unit{};
    const Result<int64_t> cpu = file->count(0, kAmountMax);
    if (!cpu) return cpu.error();
    const Result<int64_t> memory = file->count(1, kAmountMax);
    if (!memory) return memory.error();
    const Result<int64_t> devices = file->count(2, limits::kDevicesPerNodeMax);
    if (!devices) return devices.error();
    const auto known = std::find(trace.models.begin(), trace.models.end(), file->field(3));
    const auto model = static_cast<std::size_t>(known - trace.models.begin());
    if (known == trace.models.end()) trace.models.emplace_back(file->field(3));
    if (trace.models.size() > kModelsMax) return file->broken("is of the 64th model; 63 can be told apart");
    policy::NodeSpace node{.cpu_milli = *cpu, .memory_mb = *memory};
    node.device_class = static_cast<uint32_t>(model);
    node.device_count = static_cast<uint32_t>(*devices);
    std::fill_n(node.milli.begin(), node.device_count, static_cast<uint16_t>(policy::kWholeMilli));
    trace.capacity_milli += *devices * policy::kWholeMilli;
    trace.nodes.push_back(node);
  }
}

uint64_t classes_of(std::string_view spec, const std::vector<std::string>& models) {
  if (spec.empty()) return ~uint64_t{0};
  uint64_t classes = 0;
  while (true) {
    const std::size_t bar = spec.find('|');
    const auto known = std::find(models.begin(), models.end(), spec.substr(0, bar));
    if (known != models.end()) classes |= uint64_t{1} << (known - models.begin());
    if (bar == std::string_view::npos) return classes;
    spec.remove_prefix(bar + 1);
  }
}

Result<Unit> read_pods(const std::string& path, PlacementTrace& trace) {
  std::vector<std::string_view> columns = {"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"};
  Result<CsvFile> file = CsvFile::open(path, columns);
  const bool has_spec = file.ok();
  if (!has_spec) {
    columns.pop_back();
    file = CsvFile::open(path, columns);
  }
  if (!file) return file.error();
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) return Unit{};
    policy::TaskShape task;
    const Result<int64_t> cpu = file->count(0, kAmountMax);
    if (!cpu) return cpu.error();
    const Result<int64_t> memory = file->count(1, kAmountMax);
    if (!memory) return memory.error();
    const Result<int64_t> count = file->count(2, limits::kDevicesPerNodeMax);
    if (!count) return count.error();
    const Result<int64_t> milli = file->count(3, policy::kWholeMilli);
    if (!milli) return milli.error();
    if (*count > 0 && *milli == 0) return file->broken("asks for devices and for nothing of them");
    if (*count > 1 && *milli != policy::kWholeMilli)
      return file->broken("asks for shares of several devices");
    task.cpu_milli = *cpu;
    task.memory_mb = *memory;
    task.gpu_count = static_cast<int32_t>(*count);
    task.gpu_milli = *count > 0 ? static_cast<int32_t>(*milli) : 0;
    if (*count > 0 && has_spec) task.device_classes = classes_of(file->field(4), trace.models);
    trace.tasks.push_back(task);
  }
}

}  // namespace

Result<PlacementTrace> read_openb_placement(const std::string& nodes_path, const std::string& pods_path) {
  PlacementTrace trace;
  const Result<Unit> nodes = read_nodes(nodes_path, trace);
  if (!nodes) return nodes.error();
  const Result<Unit> pods = read_pods(pods_path, trace);
  if (!pods) return pods.error();
  return trace;
}

}  // namespace gpusched::replay
