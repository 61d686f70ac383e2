#include "node/gpu/device_topology.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/limits.h"
#include "node/gpu/gpu_driver.h"

namespace gpusched {
namespace {

constexpr int64_t kNvlinksMax = 64;
constexpr int32_t kNumaMax = 4'096;

template <typename Number>
std::optional<Number> number_of(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

/// Without the escape sequences that underline its heading.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '[') {
      i += 2;
      while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
    }
  }
  return out;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const std::size_t tab = line.find('\t');
    cells.push_back(trimmed(line.substr(0, tab)));
    if (tab == std::string_view::npos) return cells;
    line.remove_prefix(tab + 1);
  }
}

std::string gpu(std::size_t index) { return "GPU" + std::to_string(index); }

Error malformed(const std::string& why) {
  return Error{.code = ErrorCode::kInvalidArgument, .message = "nvidia-smi topo -m " + why};
}

/// "NV12", "PIX" and so on; nothing for any other word.
std::optional<Link> link_of(std::string_view word, int64_t nvlink_gbs) {
  static constexpr std::pair<std::string_view, LinkKind> kWords[] = {
      {"SYS", LinkKind::kSystem},     {"SOC", LinkKind::kSystem},  {"NODE", LinkKind::kNuma},
      {"PHB", LinkKind::kHostBridge}, {"PXB", LinkKind::kBridges}, {"PIX", LinkKind::kSwitch},
      {"PSB", LinkKind::kSwitch}};
  for (const auto& [name, kind] : kWords) {
    if (word == name) return Link{.kind = kind, .gbs = usual_gbs(kind, 0, 0)};
  }
  if (!word.starts_with("NV")) return std::nullopt;
  const std::optional<int64_t> count = number_of<int64_t>(word.substr(2));
  if (!count || *count < 1 || *count > kNvlinksMax) return std::nullopt;
  return Link{.kind = LinkKind::kNvlink, .gbs = usual_gbs(LinkKind::kNvlink, *count, nvlink_gbs)};
}

/// The heading's cells, and the lines below it.
struct Matrix {
  std::vector<std::string_view> heading;
  std::vector<std::vector<std::string_view>> rows;  ///< Rows of GPUs alone.
};

std::optional<Matrix> matrix_of(std::string_view text) {
  Matrix matrix;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string_view> cells = cells_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (matrix.heading.empty()) {
      if (cells.size() > 1 && cells[0].empty() && cells[1] == "GPU0") matrix.heading = std::move(cells);
    } else if (cells[0].starts_with("GPU")) {
      matrix.rows.push_back(std::move(cells));
    }
  }
  if (matrix.heading.empty()) return std::nullopt;
  return matrix;
}

}  // namespace

// Defaults of a driver that knows no MIG.
Result<std::vector<SliceReading>> GpuDriver::slices(uint32_t) { return std::vector<SliceReading>{}; }
Result<MadeSlice> GpuDriver::make_slice(uint32_t, const std::string&, int32_t) {
  return Error{.code = ErrorCode::kUnavailable, .message = "this GPU driver does not create MIG slices"};
}
Result<Unit> GpuDriver::destroy_slice(uint32_t, const std::string&, int32_t) { return Unit{}; }

const DeviceTopology& GpuDriver::topology() const {
  static const DeviceTopology none;
  return none;
}

int64_t usual_gbs(LinkKind kind, int64_t nvlinks, int64_t nvlink_gbs) {
  switch (kind) {
    case LinkKind::kUnknown:
      return 0;
    case LinkKind::kSystem:
      return 10;
    case LinkKind::kNuma:
      return 14;
    case LinkKind::kHostBridge:
      return 18;
    case LinkKind::kBridges:
      return 20;
    case LinkKind::kSwitch:
      return 24;
    case LinkKind::kNvlink:
      return nvlinks * nvlink_gbs;
    case LinkKind::kXgmi:
      return 50;
  }
  return 0;
}

int64_t nvlink_gbs_of(std::string_view model) {
  for (const std::string_view blackwell : {"B100", "B200", "GB200", "B300", "GB300"}) {
    if (model.find(blackwell) != std::string_view::npos) return 50;
  }
  return model.find("P100") != std::string_view::npos ? 20 : 25;
}

namespace smi {

Result<DeviceTopology> topology_of(std::string_view text, std::size_t devices, std::string_view model) {
  const std::string clean = plain(text);
  const std::optional<Matrix> matrix = matrix_of(clean);
  if (!matrix) return malformed("does not show a matrix of the GPUs");
  std::size_t shown = 0;
  while (shown + 1 < matrix->heading.size() && matrix->heading[shown + 1] == gpu(shown)) ++shown;
  if (shown != devices || matrix->rows.size() != devices)
    return malformed("shows " + std::to_string(shown) + " GPUs, but there are " + std::to_string(devices));
  const auto numa = std::find(matrix->heading.begin(), matrix->heading.end(), "NUMA Affinity");
  const auto numa_at = static_cast<std::size_t>(numa - matrix->heading.begin());
  DeviceTopology topology{.links = std::vector<int64_t>(pair_count(devices)),
                          .numa_nodes = std::vector<std::optional<int32_t>>(devices),
                          .note = "nvidia-smi topo -m"};
  for (std::size_t row = 0; row < devices; ++row) {
    const std::vector<std::string_view>& cells = matrix->rows[row];
    if (cells[0] != gpu(row) || cells.size() <= devices || cells[row + 1] != "X")
      return malformed("has a malformed line for " + gpu(row));
    for (std::size_t column = 0; column < devices; ++column) {
      if (column == row) continue;
      const std::optional<Link> link = link_of(cells[column + 1], nvlink_gbs_of(model));
      if (!link) return malformed("has an unknown kind of link between GPUs");
      int64_t& code = topology.links[pair_index(row, column, devices)];
      if (column < row && code != link->code())
        return malformed("shows a different link from " + gpu(row) + " to " + gpu(column) +
                         " than in the other direction");
      code = link->code();
    }
    if (numa_at >= cells.size()) continue;
    const std::optional<int32_t> node = number_of<int32_t>(cells[numa_at]);
    if (node && *node >= 0 && *node < kNumaMax) topology.numa_nodes[row] = *node;
  }
  return topology;
}

}  // namespace smi

Result<DeviceTopology> parse_sim_links(std::string_view text, std::size_t devices) {
  const auto refuse = [&] {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "--sim-links: '" + std::string(text) +
                            "' is not a list of islands with a total of " + std::to_string(devices) +
                            " GPUs, such as 4,4 for eight",
                 .field = "sim-links"};
  };
  constexpr int64_t kSimNvlinks = 12;
  DeviceTopology topology{.links = {}, .numa_nodes = {}, .note = "simulated"};
  int32_t island = 0;
  for (std::string_view rest = text;; ++island) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::optional<uint32_t> size = number_of<uint32_t>(rest.substr(0, comma));
    if (!size || *size == 0 || *size > limits::kDevicesPerNodeMax) return refuse();
    topology.numa_nodes.insert(topology.numa_nodes.end(), *size, island);
    if (topology.numa_nodes.size() > devices) return refuse();
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  if (topology.numa_nodes.size() != devices) return refuse();
  for (std::size_t a = 0; a < devices; ++a) {
    for (std::size_t b = a + 1; b < devices; ++b) {
      const bool joined = topology.numa_nodes[a] == topology.numa_nodes[b];
      const LinkKind kind = joined ? LinkKind::kNvlink : LinkKind::kSystem;
      topology.links.push_back(Link{.kind = kind, .gbs = usual_gbs(kind, kSimNvlinks, 25)}.code());
    }
  }
  return topology;
}

}  // namespace gpusched
