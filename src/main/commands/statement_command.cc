#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/json.h"
#include "history/billing/prices.h"
#include "history/billing/statement.h"
#include "main/billing/prices_file.h"
#include "main/billing/time_zone.h"
#include "main/commands/admin_command.h"

namespace gpusched {
namespace {

struct StatementWords {
  std::string file;
  std::string prices;
  std::string month;
  std::string tenant;
  bool json = false;
};

int complain_of_statement(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler history statement: %s\n", message.c_str());
  return status;
}

/// Hours of a GPU with six decimals, rounded down.
std::string hours_text(int64_t gpu_us) {
  constexpr int64_t kHourUs = 3'600'000'000;
  const int64_t millionths = gpu_us / kHourUs * history::kMicros + gpu_us % kHourUs / 3'600;
  return std::to_string(millionths / history::kMicros) + "." +
         std::to_string(history::kMicros + millionths % history::kMicros).substr(1);
}

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string price_text(const history::StatementLine& line) {
  return line.micros_per_hour ? amount_text(*line.micros_per_hour) : std::string();
}

void print_csv(const std::vector<history::TenantStatement>& tenants, const std::string& month,
               const std::string& currency) {
  std::printf("month,tenant_id,tenant,model,class,gpu_hours,price_per_gpu_hour,amount,currency\n");
  for (const history::TenantStatement& tenant : tenants) {
    const std::string begin =
        month + ",tenant-" + std::to_string(tenant.tenant.value) + "," + cell(tenant.name) + ",";
    for (const history::StatementLine& line : tenant.lines) {
      std::printf("%s%s,%s,%s,%s,%s,%s\n", begin.c_str(), cell(line.model).c_str(),
                  std::string(to_string(line.part)).c_str(), hours_text(line.gpu_us).c_str(),
                  price_text(line).c_str(), amount_text(line.amount_micros).c_str(), cell(currency).c_str());
    }
    if (tenant.not_billed_us > 0) {
      std::printf("%s,not_billed,%s,,0.00,%s\n", begin.c_str(), hours_text(tenant.not_billed_us).c_str(),
                  cell(currency).c_str());
    }
  }
}

std::string json_of(const history::TenantStatement& tenant) {
  std::string lines;
  for (const history::StatementLine& line : tenant.lines) {
    JsonObjectWriter object;
    object.add("model", line.model);
    object.add("class", to_string(line.part));
    object.add("gpu_hours", hours_text(line.gpu_us));
    if (line.micros_per_hour) {
      object.add("price_per_gpu_hour", price_text(line));
    } else {
      object.add_null("price_per_gpu_hour");
    }
    object.add("amount", amount_text(line.amount_micros));
    lines += (lines.empty() ? "" : ",") + object.text();
  }
  JsonObjectWriter object;
  object.add("tenant_id", "tenant-" + std::to_string(tenant.tenant.value));
  object.add("tenant", tenant.name);
  object.add_json("lines", "[" + lines + "]");
  object.add("not_billed_gpu_hours", hours_text(tenant.not_billed_us));
  object.add("total", amount_text(tenant.total_micros));
  return object.text();
}

void print_json(const std::vector<history::TenantStatement>& tenants, const std::string& month,
                const history::PriceList& prices, bool is_over) {
  std::string all;
  for (const history::TenantStatement& tenant : tenants) all += (all.empty() ? "" : ",") + json_of(tenant);
  JsonObjectWriter object;
  object.add("month", month);
  object.add("time_zone", prices.time_zone);
  object.add("currency", prices.currency);
  object.add("month_is_over", is_over);
  object.add_json("tenants", "[" + all + "]");
  std::printf("%s\n", object.text().c_str());
}

int print_statement(const StatementWords& words) {
  const Result<history::PriceList> prices = load_prices_file(words.prices);
  if (!prices.ok()) return complain_of_statement(prices.error().message, 2);
  const std::time_t now = std::time(nullptr);
  const Result<Month> month = words.month.empty() ? month_before(now) : parse_month(words.month);
  if (!month.ok()) return complain_of_statement("--month: " + month.error().message, 2);
  const Result<std::vector<history::OffsetSpan>> offsets = offsets_in(prices->time_zone, *month);
  if (!offsets.ok()) return complain_of_statement(words.prices + ": " + offsets.error().message, 2);
  const std::optional<std::string> tenant = words.tenant.empty() ? std::nullopt : std::optional(words.tenant);
  const Result<std::vector<history::TenantStatement>> made = history::make_statement(
      words.file, *prices, history::slots_of(*prices, *offsets), int64_t{now} * 1'000, tenant);
  if (!made.ok()) {
    return complain_of_statement(words.file + ": " + made.error().message,
                                 made.error().code == ErrorCode::kNotFound ? 2 : 1);
  }
  if (words.json) {
    print_json(*made, to_string(*month), *prices, offsets->back().until_ms <= int64_t{now} * 1'000);
  } else {
    print_csv(*made, to_string(*month), prices->currency);
  }
  return 0;
}

ProgramAction define_statement(Grammar& grammar) {
  const auto words = std::make_shared<StatementWords>();
  grammar.argument("FILE", &words->file, "A copy of the history, as `history copy` makes it")
      .completes(Complete::kFile);
  grammar.option("--prices", "FILE", &words->prices, "The list of prices, a YAML file")
      .completes(Complete::kFile)
      .required = true;
  grammar.option("--month", "MONTH", &words->month, "The month, such as 2026-11; default: the last one");
  grammar.option("--tenant", "NAME", &words->tenant, "Only this tenant; default: all");
  grammar.flag("--json", words->json, "As JSON instead of CSV");
  grammar.details(
      "A line is the GPU time of one model, class (whole, share, mig) and price. The month and the hours of "
      "prices are those of the list's time zone. What runs counts up to now. Attempts that the system broke "
      "(their node, device or keeper was lost or failed) are not billed, and shown as not_billed.");
  grammar.example("gpu-scheduler history statement history.db --prices prices.yaml --month 2026-11 --json",
                  "what each tenant owes for a month");
  return [words](const std::vector<std::string>&) { return print_statement(*words); };
}

}  // namespace

ProgramCommand history_statement_command() {
  return {.path = "history statement",
          .summary = "Print what tenants owe for a month, from a copy of the history",
          .define = define_statement};
}

}  // namespace gpusched
