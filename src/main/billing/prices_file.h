#pragma once

#include <string>

#include "base/result.h"
#include "history/billing/prices.h"

namespace gpusched {

/// Reads a list of prices (docs/operate/billing.md). kInvalidArgument: all that is wrong with it, one problem
/// a line with file and line number.
Result<history::PriceList> parse_prices_file(const std::string& path, const std::string& text);

/// The same from the disk. kNotFound, kIo: it cannot be read.
Result<history::PriceList> load_prices_file(const std::string& path);

/// An amount such as "12.5", in millionths; false: it is none from 0 to a million with at most six decimals.
bool parse_amount(const std::string& text, int64_t& micros);
/// "12.50": at least two decimals, and no more than it has.
std::string amount_text(int64_t micros);

}  // namespace gpusched
