#include "history/billing/statement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

#include "history/store/database.h"
#include "model/types.h"

namespace gpusched::history {
namespace {

__extension__ using Wide = __int128;

constexpr int64_t kHourUs = 3'600'000'000;
constexpr int64_t kMicrosPerHundredth = kMicros / 100;

/// Attempts that are billed together.
struct LineKey {
  std::string model;
  GpuPart part;
  std::optional<int64_t> micros_per_hour;

  auto operator<=>(const LineKey&) const = default;
};

struct Tally {
  std::map<LineKey, int64_t> gpu_us;
  int64_t not_billed_us = 0;
};

/// GPU time that somebody held.
struct Holding {
  TenantId tenant;
  std::string model;
  GpuPart part = GpuPart::kWhole;
  int64_t milli = 0;  ///< Thousandths of a GPU.
  int64_t from_ms = 0;
  int64_t until_ms = 0;
  bool is_billed = true;
};

class Bill {
 public:
  Bill(const PriceList& prices, const std::vector<PriceSlot>& slots) : prices_(prices), slots_(slots) {}

  void add(const Holding& holding) {
    const std::vector<std::optional<int64_t>>& prices = prices_of(holding);
    Tally& tally = tallies_[holding.tenant];
    auto slot = std::ranges::upper_bound(slots_, holding.from_ms, {}, &PriceSlot::until_ms);
    for (; slot != slots_.end() && slot->from_ms < holding.until_ms; ++slot) {
      const int64_t ms =
          std::min(slot->until_ms, holding.until_ms) - std::max(slot->from_ms, holding.from_ms);
      if (ms <= 0) continue;
      const int64_t us = ms * holding.milli;  // Thousandths times milliseconds.
      if (holding.is_billed) {
        const auto price = prices[static_cast<std::size_t>(slot - slots_.begin())];
        tally.gpu_us[{.model = holding.model, .part = holding.part, .micros_per_hour = price}] += us;
      } else {
        tally.not_billed_us += us;
      }
    }
  }
  const std::map<TenantId, Tally>& tallies() const { return tallies_; }

 private:
  /// By slot.
  const std::vector<std::optional<int64_t>>& prices_of(const Holding& holding) {
    auto [known, is_new] = by_kind_.try_emplace({holding.model, holding.part});
    if (!is_new) return known->second;
    for (const PriceSlot& slot : slots_) {
      const auto rule = std::ranges::find_if(prices_.rules, [&](const PriceRule& one) {
        return one.is_for(holding.model, holding.part) && one.holds_at(slot.minute);
      });
      known->second.push_back(rule == prices_.rules.end() ? std::nullopt
                                                          : std::optional(rule->micros_per_hour));
    }
    return known->second;
  }

  const PriceList& prices_;
  const std::vector<PriceSlot>& slots_;
  std::map<std::pair<std::string, GpuPart>, std::vector<std::optional<int64_t>>> by_kind_;
  std::map<TenantId, Tally> tallies_;
};

/// Columns of `attempts` and `running` alike: tenant, model, device_mask, gpu_milli, is_slice, placed_ms,
/// end, cause.
Result<Unit> add_all(Database& database, const std::string& sql, Bill& bill) {
  Result<Statement> rows = database.prepare(sql);
  if (!rows.ok()) return rows.error();
  while (true) {
    const Result<bool> row = rows->step();
    if (!row.ok()) return row.error();
    if (!*row) return Unit{};
    const int64_t share = rows->integer(3);
    const bool is_slice = rows->integer(4) != 0;
    const int gpus = std::popcount(std::bit_cast<uint64_t>(rows->integer(2)));
    if (gpus == 0) continue;
    bill.add({.tenant = TenantId{static_cast<uint64_t>(rows->integer(0))},
              .model = rows->text(1),
              .part = share == 0 ? GpuPart::kWhole
                      : is_slice ? GpuPart::kMig
                                 : GpuPart::kShare,
              .milli = share == 0 ? int64_t{1'000} * gpus : share,
              .from_ms = rows->integer(5),
              .until_ms = rows->integer(6),
              .is_billed = !is_broken_by_system(rows->text(7))});
  }
}

Result<std::map<TenantId, std::string>> names_of(Database& database) {
  Result<Statement> rows = database.prepare("SELECT id, name FROM tenants");
  if (!rows.ok()) return rows.error();
  std::map<TenantId, std::string> names;
  while (true) {
    const Result<bool> row = rows->step();
    if (!row.ok()) return row.error();
    if (!*row) return names;
    names.emplace(TenantId{static_cast<uint64_t>(rows->integer(0))}, rows->text(1));
  }
}

TenantStatement statement_of(TenantId tenant, const std::string& name, const Tally& tally) {
  TenantStatement out{.tenant = tenant, .name = name, .lines = {}, .not_billed_us = tally.not_billed_us};
  for (const auto& [key, gpu_us] : tally.gpu_us) {
    const int64_t amount = amount_of(gpu_us, key.micros_per_hour.value_or(0));
    out.lines.push_back({.model = key.model,
                         .part = key.part,
                         .micros_per_hour = key.micros_per_hour,
                         .gpu_us = gpu_us,
                         .amount_micros = amount});
    out.total_micros += amount;
  }
  return out;
}

}  // namespace

bool is_broken_by_system(std::string_view cause) {
  constexpr std::array kCauses = {EndCause::kShimLost,    EndCause::kNodeLost,  EndCause::kContactLost,
                                  EndCause::kDeviceFault, EndCause::kNodeFault, EndCause::kNotStarted};
  return cause == "abandoned" ||
         std::ranges::any_of(kCauses, [&](EndCause known) { return cause == to_string(known); });
}

int64_t amount_of(int64_t gpu_us, int64_t micros_per_hour) {
  const Wide unit = Wide{kHourUs} * kMicrosPerHundredth;
  const Wide product = Wide{gpu_us} * micros_per_hour;
  Wide hundredths = product / unit;
  const Wide twice_rest = 2 * (product % unit);
  if (twice_rest > unit || (twice_rest == unit && hundredths % 2 != 0)) ++hundredths;
  return static_cast<int64_t>(hundredths) * kMicrosPerHundredth;
}

Result<std::vector<TenantStatement>> make_statement(const std::string& database, const PriceList& prices,
                                                    const std::vector<PriceSlot>& slots, int64_t now_ms,
                                                    const std::optional<std::string>& tenant) {
  Result<Database> opened = Database::open(database, Database::Mode::kReader);
  if (!opened.ok()) return opened.error();
  const Result<std::map<TenantId, std::string>> names = names_of(*opened);
  if (!names.ok()) return names.error();
  Bill bill(prices, slots);
  if (!slots.empty()) {
    const std::string columns = "SELECT tenant, model, device_mask, gpu_milli, is_slice, placed_ms, ";
    const std::string before = " AND placed_ms < " + std::to_string(slots.back().until_ms);
    Result<Unit> added = add_all(*opened,
                                 columns + "ended_ms, cause FROM attempts WHERE ended_ms > " +
                                     std::to_string(slots.front().from_ms) + before,
                                 bill);
    if (added.ok()) {
      const std::string now = std::to_string(now_ms);
      added = add_all(*opened, columns + now + ", '' FROM running WHERE placed_ms < " + now + before, bill);
    }
    if (!added.ok()) return added.error();
  }
  std::vector<TenantStatement> all;
  for (const auto& [id, name] : *names) {
    if (tenant && name != *tenant) continue;
    const auto tally = bill.tallies().find(id);
    if (tally != bill.tallies().end()) {
      all.push_back(statement_of(id, name, tally->second));
    } else if (tenant) {
      all.push_back(statement_of(id, name, {}));
    }
  }
  if (tenant && all.empty()) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the history has no tenant \"" + *tenant + "\"; without --tenant it shows all"};
  }
  std::ranges::stable_sort(all, {}, &TenantStatement::name);
  return all;
}

}  // namespace gpusched::history
