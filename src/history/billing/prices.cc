#include "history/billing/prices.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

namespace gpusched::history {
namespace {

constexpr int64_t kMinuteMs = 60'000;
constexpr int64_t kDayMs = kMinutesPerDay * kMinuteMs;

int64_t floor_to(int64_t value, int64_t step) {
  const int64_t rest = value % step;
  return value - (rest < 0 ? rest + step : rest);
}

}  // namespace

std::string_view to_string(GpuPart part) {
  switch (part) {
    case GpuPart::kWhole:
      return "whole";
    case GpuPart::kShare:
      return "share";
    case GpuPart::kMig:
      return "mig";
  }
  return "";
}

bool PriceRule::holds_at(int minute) const {
  if (from_minute == until_minute) return true;
  if (from_minute < until_minute) return minute >= from_minute && minute < until_minute;
  return minute >= from_minute || minute < until_minute;
}

bool PriceRule::is_for(std::string_view gpu_model, GpuPart of) const {
  return (any_part || part == of) &&
         ::fnmatch(model.c_str(), std::string(gpu_model).c_str(), FNM_CASEFOLD) == 0;
}

std::vector<PriceSlot> slots_of(const PriceList& prices, const std::vector<OffsetSpan>& spans) {
  std::set<int> minutes = {0};
  for (const PriceRule& rule : prices.rules)
    minutes.insert({rule.from_minute, rule.until_minute % kMinutesPerDay});
  std::vector<PriceSlot> slots;
  for (const OffsetSpan& span : spans) {
    const int64_t offset_ms = span.offset_s * 1'000;
    std::set<int64_t> cuts = {span.from_ms};
    for (int64_t day = floor_to(span.from_ms + offset_ms, kDayMs); day < span.until_ms + offset_ms;
         day += kDayMs) {
      for (const int minute : minutes) {
        const int64_t at = day + minute * kMinuteMs - offset_ms;
        if (at > span.from_ms && at < span.until_ms) cuts.insert(at);
      }
    }
    for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
      const int64_t local = *cut + offset_ms;
      slots.push_back({.from_ms = *cut,
                       .until_ms = std::next(cut) == cuts.end() ? span.until_ms : *std::next(cut),
                       .minute = static_cast<int>((local - floor_to(local, kDayMs)) / kMinuteMs)});
    }
  }
  return slots;
}

}  // namespace gpusched::history
