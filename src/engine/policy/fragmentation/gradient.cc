#include "engine/policy/fragmentation/gradient.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace gpusched::policy {
namespace {

/// In millionths of a thousandth of a device: a shrinking of fragmentation by this much or more earns the
/// score of the place, from 1 on. 10^9 ln(s / (100 - s)), rounded up.
constexpr std::array<int64_t, 99> kShrinkingForScore = {
    -4'595'119'850, -3'891'820'298, -3'476'098'689, -3'178'053'830, -2'944'438'979,
    -2'751'535'313, -2'586'689'344, -2'442'347'035, -2'313'634'929, -2'197'224'577,
    -2'090'741'096, -1'992'430'164, -1'900'958'761, -1'815'289'966, -1'734'601'055,
    -1'658'228'076, -1'585'627'263, -1'516'347'489, -1'450'010'175, -1'386'294'361,
    -1'324'925'414, -1'265'666'373, -1'208'311'205, -1'152'679'509, -1'098'612'288,
    -1'045'968'555, -994'622'575,   -944'461'608,   -895'384'047,   -847'297'860,
    -800'119'300,   -753'771'802,   -708'185'057,   -663'294'217,   -619'039'208,
    -575'364'144,   -532'216'813,   -489'548'225,   -447'312'218,   -405'465'108,
    -363'965'377,   -322'773'392,   -281'851'152,   -241'162'056,   -200'670'695,
    -160'342'650,   -120'144'311,   -80'042'707,    -40'005'334,    0,
    40'005'335,     80'042'708,     120'144'312,    160'342'651,    200'670'696,
    241'162'057,    281'851'153,    322'773'393,    363'965'378,    405'465'109,
    447'312'219,    489'548'226,    532'216'814,    575'364'145,    619'039'209,
    663'294'218,    708'185'058,    753'771'803,    800'119'301,    847'297'861,
    895'384'048,    944'461'609,    994'622'576,    1'045'968'556,  1'098'612'289,
    1'152'679'510,  1'208'311'206,  1'265'666'374,  1'324'925'415,  1'386'294'362,
    1'450'010'176,  1'516'347'490,  1'585'627'264,  1'658'228'077,  1'734'601'056,
    1'815'289'967,  1'900'958'762,  1'992'430'165,  2'090'741'097,  2'197'224'578,
    2'313'634'930,  2'442'347'036,  2'586'689'345,  2'751'535'314,  2'944'438'980,
    3'178'053'831,  3'476'098'690,  3'891'820'299,  4'595'119'851};

}  // namespace

FragmentationTable::FragmentationTable(std::span<const PopularShape> shapes) {
  CHECK(shapes.size() <= kPopularMax);
  std::vector<int64_t> milli;
  uint64_t total = 0;
  for (const PopularShape& each : shapes) {
    total += each.weight;
    if (each.shape.gpu_count == 0) continue;
    cpu_steps_.push_back(each.shape.cpu_milli);
    milli.push_back(each.shape.gpu_milli);
  }
  const auto tidy = [](std::vector<int64_t>& values) {
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
  };
  tidy(cpu_steps_);
  tidy(milli);
  milli_steps_ = static_cast<uint32_t>(milli.size());
  step_of_milli_.resize(kWholeMilli + 1);
  for (int32_t free = 0; free <= kWholeMilli; ++free) {
    const auto above = std::upper_bound(milli.begin(), milli.end(), free);
    step_of_milli_[static_cast<std::size_t>(free)] = static_cast<uint8_t>(above - milli.begin());
  }
  // Row 0 of each kind of class is for less CPU than anybody asks for.
  const std::size_t rows = cpu_steps_.size() + 1;
  std::vector<std::vector<uint64_t>> kinds;  // The shapes that a class takes, as bits.
  for (uint32_t device_class = 0; device_class < kClasses; ++device_class) {
    std::vector<uint64_t> kind(shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i)
      kind[i] = (shapes[i].shape.device_classes >> device_class) & 1;
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    row_of_class_.push_back(static_cast<uint32_t>(static_cast<std::size_t>(known - kinds.begin()) * rows));
    if (known == kinds.end()) kinds.push_back(std::move(kind));
  }
  const std::size_t width = milli_steps_ + 1;
  one_device_.resize(kinds.size() * rows * width);
  several_.resize(kinds.size() * rows * kWholeCounts);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const TaskShape& shape = shapes[i].shape;
      if (shape.gpu_count == 0 || kinds[kind][i] == 0) continue;
      const int64_t popularity = static_cast<int64_t>(shapes[i].weight) * kUnit / static_cast<int64_t>(total);
      const auto step = std::lower_bound(cpu_steps_.begin(), cpu_steps_.end(), shape.cpu_milli);
      for (std::size_t cpu = static_cast<std::size_t>(step - cpu_steps_.begin()) + 1; cpu < rows; ++cpu) {
        const std::size_t at = kind * rows + cpu;
        if (shape.gpu_count == 1) {
          for (std::size_t hole = step_of_milli_[static_cast<std::size_t>(shape.gpu_milli)]; hole < width;
               ++hole)
            one_device_[at * width + hole] += popularity;
        } else {
          for (std::size_t whole = static_cast<std::size_t>(shape.gpu_count); whole < kWholeCounts; ++whole)
            several_[at * kWholeCounts + whole] += popularity;
        }
      }
    }
  }
}

std::size_t FragmentationTable::row(uint32_t device_class, int64_t cpu_milli) const {
  CHECK(device_class < kClasses);
  const auto above = std::upper_bound(cpu_steps_.begin(), cpu_steps_.end(), cpu_milli);
  return row_of_class_[device_class] + static_cast<std::size_t>(above - cpu_steps_.begin());
}

int64_t FragmentationTable::usable(const NodeSpace& node) const {
  const std::size_t at = row(node.device_class, node.cpu_milli);
  const int64_t* holes = &one_device_[at * (milli_steps_ + 1)];
  int64_t sum = 0;
  uint32_t whole = 0;
  for (uint32_t i = 0; i < node.device_count; ++i) {
    sum += node.milli[i] * holes[step_of_milli_[node.milli[i]]];
    if (node.milli[i] == kWholeMilli) ++whole;
  }
  return sum + int64_t{whole} * kWholeMilli * several_[at * kWholeCounts + whole];
}

int64_t FragmentationTable::fragmented(const NodeSpace& node) const {
  int64_t free = 0;
  for (uint32_t i = 0; i < node.device_count; ++i) free += node.milli[i];
  return free * kUnit - usable(node);
}

int64_t FragmentationTable::growth(const TaskShape& shape, uint64_t devices, const NodeSpace& node) const {
  const int64_t before = fragmented(node);
  NodeSpace after = node;
  take(shape, devices, after);
  return fragmented(after) - before;
}

int32_t published_score(int64_t growth) {
  // Both sides in the same unit; neither a growth, at most 64 devices, nor the largest place overflows.
  constexpr int64_t kMillionth = 1'000'000;
  const int64_t shrinking = -growth;
  const auto reached = std::partition_point(
      kShrinkingForScore.begin(), kShrinkingForScore.end(),
      [&](int64_t needed) { return needed * FragmentationTable::kUnit <= shrinking * kMillionth; });
  return static_cast<int32_t>(reached - kShrinkingForScore.begin());
}

}  // namespace gpusched::policy
