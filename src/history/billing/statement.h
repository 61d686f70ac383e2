#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "history/billing/prices.h"

namespace gpusched::history {

/// GPU time of one model and part at one price.
struct StatementLine {
  std::string model;
  GpuPart part = GpuPart::kWhole;
  std::optional<int64_t> micros_per_hour;  ///< Nothing: no rule has a price for it.
  int64_t gpu_us = 0;                      ///< Microseconds of one GPU.
  int64_t amount_micros = 0;               ///< Rounded to hundredths of the currency, half to even.
};

/// One tenant's debt.
struct TenantStatement {
  TenantId tenant;
  std::string name;
  std::vector<StatementLine> lines;  ///< By model, part and price.
  int64_t not_billed_us = 0;         ///< GPU time of attempts that the system broke; in no line.
  int64_t total_micros = 0;          ///< Sum of the lines.
};

/// Whether an attempt that ended for this cause, a word as attempts have it, was broken by the system: its
/// node, device or keeper was lost or failed, or the job had to go on elsewhere.
bool is_broken_by_system(std::string_view cause);

/// Debts of tenants for the time of `slots`, from the attempts in a copy of the history; what runs counts up
/// to `now_ms`. Of one tenant if `tenant` has its name; else of all, by name. kNotFound: no such tenant.
/// Errors as of Database.
Result<std::vector<TenantStatement>> make_statement(const std::string& database, const PriceList& prices,
                                                    const std::vector<PriceSlot>& slots, int64_t now_ms,
                                                    const std::optional<std::string>& tenant);

/// Cost of that GPU time at that price, rounded to hundredths of the currency, half to even.
int64_t amount_of(int64_t gpu_us, int64_t micros_per_hour);

}  // namespace gpusched::history
