#include "replay/trace/placement_trace.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/limits.h"
#include "replay/trace/csv.h"
#include "replay/trace/line_file.h"

namespace gpusched::replay {
namespace {

constexpr int64_t kAmountMax = int64_t{1} << 30;
constexpr std::size_t kModelsMax = 63;  ///< The last class is that of models that no node has.

/// A class for each model, in the order in which they first come.
Result<uint32_t> class_of(std::string_view model, PlacementTrace& trace) {
  const auto known = std::find(trace.models.begin(), trace.models.end(), model);
  const auto number = static_cast<uint32_t>(known - trace.models.begin());
  if (known == trace.models.end()) trace.models.emplace_back(model);
  if (trace.models.size() <= kModelsMax) return number;
  return Error{.code = ErrorCode::kCorrupt, .message = "there are more than 63 models of devices"};
}

void add_node(policy::NodeSpace node, uint32_t devices, PlacementTrace& trace) {
  node.device_count = devices;
  std::fill_n(node.milli.begin(), devices, static_cast<uint16_t>(policy::kWholeMilli));
  trace.capacity_milli += int64_t{devices} * policy::kWholeMilli;
  trace.nodes.push_back(node);
}

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
    const Result<uint32_t> kind = class_of(file->field(3), trace);
    if (!kind) return kind.error();
    add_node({.cpu_milli = *cpu, .memory_mb = *memory, .device_class = *kind},
             static_cast<uint32_t>(*devices), trace);
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

/// The next number of the line, up to a comma or its end; -1: there is none.
int64_t take_number(std::string_view& rest) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || value < 0 || value > kAmountMax) return -1;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  if (rest.empty()) return value;
  if (rest.front() != ',') return -1;
  rest.remove_prefix(1);
  return value;
}

}  // namespace

Result<PlacementTrace> read_pai_machines(const std::string& path) {
  Result<LineFile> file = LineFile::open(path);
  if (!file) return file.error();
  PlacementTrace trace;
  std::string_view line;
  while (true) {
    const Result<bool> more = file->next(line);
    if (!more) return more.error();
    if (!*more) return trace;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t id_end = line.find(',');
    const std::size_t model_end = id_end == std::string_view::npos ? id_end : line.find(',', id_end + 1);
    if (model_end == std::string_view::npos) return file->broken("is not id,model,cpus,memory_gib,gpus");
    const std::string_view model = line.substr(id_end + 1, model_end - id_end - 1);
    std::string_view rest = line.substr(model_end + 1);
    const int64_t cpus = take_number(rest);
    const int64_t memory_gib = take_number(rest);
    const int64_t devices = take_number(rest);
    if (cpus < 0 || memory_gib < 0 || devices < 0 || !rest.empty())
      return file->broken("is not id,model,cpus,memory_gib,gpus");
    if (devices > int64_t{limits::kDevicesPerNodeMax}) return file->broken("has more than 64 GPUs");
    if (devices == 0) continue;
    const Result<uint32_t> kind = class_of(model, trace);
    if (!kind) return kind.error();
    add_node({.cpu_milli = cpus * 1000, .memory_mb = memory_gib * 1024, .device_class = *kind},
             static_cast<uint32_t>(devices), trace);
  }
}

Result<PlacementTrace> read_openb_placement(const std::string& nodes_path, const std::string& pods_path) {
  PlacementTrace trace;
  const Result<Unit> nodes = read_nodes(nodes_path, trace);
  if (!nodes) return nodes.error();
  const Result<Unit> pods = read_pods(pods_path, trace);
  if (!pods) return pods.error();
  return trace;
}

}  // namespace gpusched::replay
