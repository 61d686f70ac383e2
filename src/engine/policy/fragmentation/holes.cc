#include "engine/policy/fragmentation/holes.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace gpusched::policy {
namespace {

constexpr int32_t kGrain = 10;  ///< Holes are told apart in steps of so many thousandths.
constexpr int32_t kGrains = kWholeMilli / kGrain;
constexpr int kRounds = 3000;
constexpr int64_t kShare = int64_t{1} << 30;  ///< All weights of the sizes together.
constexpr int kRateBits = 10;
constexpr int64_t kRateDivisor = 20;  ///< A round moves a weight by at most this part of it.
constexpr int kReciprocalBits = 32;
constexpr std::size_t kRowGrain = 16;
constexpr int kTimesBits = 8;  ///< Tasks on a node are counted in 2^-8.

/// A size that is asked for.
struct Size {
  int32_t grains = 0;
  int64_t demand = 0;
  int64_t weight = 0;
  int64_t sum = 0;
};

// In steps of a constant length, which compilers turn into vectors.
void add_row(uint16_t* sum, const uint16_t* row, std::size_t width) {
  for (std::size_t from = 0; from < width; from += kRowGrain) {
    for (std::size_t i = 0; i < kRowGrain; ++i)
      sum[from + i] = static_cast<uint16_t>(sum[from + i] + row[from + i]);
  }
}
void swap_row(uint16_t* sum, const uint16_t* out, const uint16_t* in, std::size_t width) {
  for (std::size_t from = 0; from < width; from += kRowGrain) {
    for (std::size_t i = 0; i < kRowGrain; ++i)
      sum[from + i] = static_cast<uint16_t>(sum[from + i] - out[from + i] + in[from + i]);
  }
}

std::vector<Size> sizes_of(std::span<const PopularShape> shapes) {
  std::array<uint64_t, kGrains + 1> demand{};
  uint64_t total = 0;
  for (const PopularShape& each : shapes) {
    if (each.shape.gpu_count == 0) continue;
    const uint64_t devices = each.weight * static_cast<uint64_t>(each.shape.gpu_count);
    demand[static_cast<std::size_t>((each.shape.gpu_milli + kGrain - 1) / kGrain)] += devices;
    total += devices;
  }
  std::vector<Size> sizes;
  for (int32_t grains = 1; grains <= kGrains; ++grains) {
    const uint64_t count = demand[static_cast<std::size_t>(grains)];
    if (count == 0) continue;
    // At least one: a size that came is not free.
    const uint64_t part = std::max<uint64_t>(1, count * (uint64_t{1} << 20) / total);
    sizes.push_back({.grains = grains, .demand = static_cast<int64_t>(part)});
  }
  return sizes;
}

/// The dearest filling of a hole of each number of grains, and the size to begin it with (-1: none more).
struct Filling {
  std::array<int64_t, kGrains + 1> worth{};
  std::array<int32_t, kGrains + 1> first{};
};

Filling fill(const std::vector<Size>& sizes, const std::vector<int64_t>& prices) {
  Filling filling;
  filling.first[0] = -1;
  for (int32_t hole = 1; hole <= kGrains; ++hole) {
    const std::size_t at = static_cast<std::size_t>(hole);
    filling.worth[at] = filling.worth[at - 1];
    filling.first[at] = -1;
    for (std::size_t i = 0; i < sizes.size() && sizes[i].grains <= hole; ++i) {
      const int64_t worth = filling.worth[at - static_cast<std::size_t>(sizes[i].grains)] + prices[i];
      if (worth <= filling.worth[at]) continue;
      filling.worth[at] = worth;
      filling.first[at] = static_cast<int32_t>(i);
    }
  }
  return filling;
}

std::vector<int64_t> prices_of(const std::vector<Size>& sizes, int64_t Size::* weight) {
  std::vector<int64_t> prices;
  for (const Size& size : sizes) prices.push_back((size.*weight << 10) / size.demand);
  return prices;
}

// Sizes that the present prices would fill devices with more often than they come become cheaper.
void lower_overfilled(std::vector<Size>& sizes, const Filling& filling) {
  std::vector<int64_t> times(sizes.size());
  for (int32_t hole = kGrains; hole > 0;) {
    const int32_t first = filling.first[static_cast<std::size_t>(hole)];
    if (first < 0) {
      --hole;
      continue;
    }
    ++times[static_cast<std::size_t>(first)];
    hole -= sizes[static_cast<std::size_t>(first)].grains;
  }
  int64_t most = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) most = std::max(most, (times[i] << 30) / sizes[i].demand);
  int64_t total = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int64_t rate = (((times[i] << 30) / sizes[i].demand) << kRateBits) / most;
    sizes[i].weight -= (sizes[i].weight * rate / kRateDivisor) >> kRateBits;
    total += sizes[i].weight;
  }
  for (Size& size : sizes) {
    size.weight = std::max<int64_t>(1, size.weight * kShare / total);
  }
}

}  // namespace

HolePrices::HolePrices(std::span<const PopularShape> shapes) {
  std::vector<Size> sizes = sizes_of(shapes);
  if (sizes.empty()) return;
  for (Size& size : sizes) size.weight = kShare / static_cast<int64_t>(sizes.size());
  for (int round = 0; round < kRounds; ++round) {
    lower_overfilled(sizes, fill(sizes, prices_of(sizes, &Size::weight)));
    if (round < kRounds / 2) continue;
    for (Size& size : sizes) size.sum += size.weight;
  }
  // The mean of the later rounds is what converges.
  for (Size& size : sizes) size.sum /= kRounds - kRounds / 2;
  const Filling last = fill(sizes, prices_of(sizes, &Size::sum));
  // Small enough to be multiplied by the unit.
  const int shift =
      std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(last.worth[kGrains]))) - 40);
  const int64_t whole = std::max<int64_t>(1, last.worth[kGrains] >> shift);
  for (int32_t milli = 0; milli <= kWholeMilli; ++milli) {
    const int64_t worth = last.worth[static_cast<std::size_t>(milli / kGrain)];
    price_[static_cast<std::size_t>(milli)] = (worth >> shift) * kUnit / whole;
  }
}

SpaceValue::SpaceValue(std::span<const PopularShape> shapes, Params params) {
  CHECK(shapes.size() <= kPopularMax);
  uint64_t total = 0;
  for (const PopularShape& each : shapes) {
    total += each.weight;
    if (each.shape.gpu_count == 1) levels_.push_back(each.shape.gpu_milli);
  }
  std::sort(levels_.begin(), levels_.end());
  levels_.erase(std::unique(levels_.begin(), levels_.end()), levels_.end());
  width_ = (levels_.size() + kRowGrain - 1) / kRowGrain * kRowGrain;
  times_.resize((kWholeMilli + 1) * width_);
  for (int32_t milli = 0; milli <= kWholeMilli; ++milli) {
    for (std::size_t level = 0; level < levels_.size(); ++level)
      times_[static_cast<std::size_t>(milli) * width_ + level] =
          static_cast<uint16_t>(milli / levels_[level]);
  }
  const auto reciprocal = [](int64_t amount) {
    return amount <= 0 ? int64_t{0} : (int64_t{1} << kReciprocalBits) / amount;
  };
  for (const PopularShape& each : shapes) {
    const TaskShape& shape = each.shape;
    if (shape.gpu_count == 0) continue;
    CHECK(shape.gpu_milli > 0);
    const auto level = std::lower_bound(levels_.begin(), levels_.end(), shape.gpu_milli);
    const int64_t popularity = static_cast<int64_t>(each.weight * (uint64_t{1} << 20) / total);
    wanted_.push_back(
        {.cpu_milli = shape.cpu_milli,
         .memory_mb = shape.memory_mb,
         .cpu_reciprocal = reciprocal(shape.cpu_milli),
         .memory_reciprocal = reciprocal(shape.memory_mb),
         .worth = popularity * shape.total_milli() * (params.weigh_by_devices ? shape.gpu_count : 1),
         .level = shape.gpu_count == 1 ? static_cast<uint32_t>(level - levels_.begin())
                                       : static_cast<uint32_t>(shape.gpu_count),
         .several = shape.gpu_count > 1,
         .milli = shape.gpu_milli,
         .device_classes = shape.device_classes});
  }
  const HolePrices prices(shapes);
  for (int32_t milli = 0; milli <= kWholeMilli; ++milli)
    hole_value_.push_back(params.hole_weight * kWholeMilli * prices.of(milli));
}

SpaceValue::After::After(const SpaceValue& value, const TaskShape& shape, const NodeSpace& node)
    : value_(value), shape_(shape), node_(node), smallest_(kWholeMilli + 1) {
  const int64_t cpu_milli = node.cpu_milli - shape.cpu_milli;
  const int64_t memory_mb = node.memory_mb - shape.memory_mb;
  constexpr int kShift = kReciprocalBits - kTimesBits;
  for (uint32_t i = 0; i < value.wanted_.size(); ++i) {
    const Wanted& each = value.wanted_[i];
    if (each.cpu_milli > cpu_milli || each.memory_mb > memory_mb) continue;
    if (((each.device_classes >> node.device_class) & 1) == 0) continue;
    if (!each.several) smallest_ = std::min(smallest_, each.milli);
    int64_t tasks = INT64_MAX;
    if (each.cpu_reciprocal != 0) tasks = (cpu_milli * each.cpu_reciprocal) >> kShift;
    if (each.memory_reciprocal != 0) tasks = std::min(tasks, (memory_mb * each.memory_reciprocal) >> kShift);
    limits_[limits_count_++] = {.wanted = i, .tasks = tasks};
  }
  if (limits_count_ == 0) return;
  for (uint32_t i = 0; i < node.device_count; ++i) {
    const int32_t milli = node.milli[i];
    if (milli == kWholeMilli) ++whole_;
    if (milli >= smallest_) holes_ += value.hole_value_[static_cast<std::size_t>(milli)];
    add_row(times_.data(), value.row(milli), value.width_);
  }
}

int64_t SpaceValue::After::on(uint64_t devices) const {
  if (limits_count_ == 0) return 0;
  std::array<uint16_t, kPopularMax> times;
  std::copy_n(times_.begin(), value_.width_, times.begin());
  int64_t result = holes_;
  int32_t whole = whole_;
  for (; devices != 0; devices &= devices - 1) {
    const int32_t before = node_.milli[static_cast<std::size_t>(std::countr_zero(devices))];
    const int32_t after = before - shape_.gpu_milli;
    if (before == kWholeMilli) --whole;
    if (before >= smallest_) result -= value_.hole_value_[static_cast<std::size_t>(before)];
    if (after >= smallest_) result += value_.hole_value_[static_cast<std::size_t>(after)];
    swap_row(times.data(), value_.row(before), value_.row(after), value_.width_);
  }
  for (std::size_t i = 0; i < limits_count_; ++i) {
    const Wanted& each = value_.wanted_[limits_[i].wanted];
    const int64_t fitting = each.several ? whole / static_cast<int32_t>(each.level) : times[each.level];
    result += (each.worth * std::min(fitting << kTimesBits, limits_[i].tasks)) >> kTimesBits;
  }
  return result;
}

int64_t SpaceValue::of(const NodeSpace& node) const { return After(*this, TaskShape{}, node).on(0); }

}  // namespace gpusched::policy
