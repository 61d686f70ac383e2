#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Prices of GPU time. Pure.
namespace gpusched::history {

/// How much of a GPU somebody holds.
enum class GpuPart : uint8_t {
  kWhole,
  kShare,
  kMig,  ///< A MIG slice.
};
std::string_view to_string(GpuPart part);

constexpr int kMinutesPerDay = 24 * 60;
/// An amount of money is a number of millionths of the currency.
constexpr int64_t kMicros = 1'000'000;

/// The price of an hour of one GPU; of a share or slice, its part of that.
struct PriceRule {
  std::string model = "*";  ///< Pattern as of a shell, for the model of the GPU; case does not count.
  bool any_part = true;
  GpuPart part = GpuPart::kWhole;  ///< Unless `any_part`.
  /// Minutes of the local day in which it holds; `until` before `from`: past midnight; both the same: always.
  int from_minute = 0;
  int until_minute = 0;
  int64_t micros_per_hour = 0;

  bool holds_at(int minute) const;
  bool is_for(std::string_view gpu_model, GpuPart of) const;
};

struct PriceList {
  std::string currency;          ///< As statements show it: "EUR".
  std::string time_zone;         ///< As IANA names it: "Europe/Berlin".
  std::vector<PriceRule> rules;  ///< The first one that fits is the price; none: it is not priced.
};

/// A time in which the local clock is so far ahead of UTC.
struct OffsetSpan {
  int64_t from_ms = 0;  ///< Since the Unix epoch.
  int64_t until_ms = 0;
  int64_t offset_s = 0;
};

/// A time in which no price changes.
struct PriceSlot {
  int64_t from_ms = 0;
  int64_t until_ms = 0;
  int minute = 0;  ///< Minute of the local day at which it begins.
};
/// Cuts the spans, which follow each other, wherever a rule begins or ends to hold.
std::vector<PriceSlot> slots_of(const PriceList& prices, const std::vector<OffsetSpan>& spans);

}  // namespace gpusched::history
