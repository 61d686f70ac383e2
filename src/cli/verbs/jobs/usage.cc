#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/history_verbs.h"
#include "cli/framework/session.h"
#include "cli/terminal/output.h"
#include "cli/terminal/table.h"
#include "cli/verbs/jobs/job_query.h"

namespace gpusched::cli {
namespace {

struct UsageOptions {
  std::string by = "user";
  std::string user;
  bool me = false;
  std::string since, until;
  bool csv = false;
};

constexpr const char* kSums[] = {"gpu_seconds", "share_gpu_seconds", "mig_gpu_seconds", "lost_gpu_seconds",
                                 "cpu_seconds", "memory_mb_seconds", "attempts"};

std::string hours_text(double seconds) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", seconds / 3'600);
  return text;
}

std::string number_text(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

/// A field of RFC 4180. One that a spreadsheet would take for a formula is made a text.
std::string csv_field(const std::string& text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string::npos;
  const std::string safe = formula ? "'" + text : text;
  if (safe.find_first_of(",\"\r\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_of(const std::vector<Json>& rows, const std::vector<std::string>& by) {
  std::string text;
  for (const std::string& key : by) text += key + ",";
  for (std::size_t i = 0; i < std::size(kSums); ++i) text += (i > 0 ? "," : "") + std::string(kSums[i]);
  text += "\n";
  for (const Json& row : rows) {
    for (const std::string& key : by) text += csv_field(row[key].text()) + ",";
    for (std::size_t i = 0; i < std::size(kSums); ++i) {
      const std::string sum = kSums[i];
      text += (i > 0 ? "," : "") +
              (sum == "attempts" ? std::to_string(row[sum].integer()) : number_text(row[sum].number()));
    }
    text += "\n";
  }
  return text;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

std::string table_of(Session& session, const std::vector<Json>& rows, const std::vector<std::string>& by) {
  const CliIo& io = session.io();
  if (rows.empty()) return "Nothing was used.\n";
  std::vector<Column> columns;
  for (const std::string& key : by) columns.push_back({.title = upper(key), .may_shrink = true});
  columns.push_back({.title = "GPU HOURS", .right = true});
  columns.push_back({.title = "LOST", .right = true});
  columns.push_back({.title = "SHARES", .right = true, .drop_order = 2});
  columns.push_back({.title = "MIG", .right = true, .drop_order = 3});
  columns.push_back({.title = "CPU HOURS", .right = true, .drop_order = 1});
  columns.push_back({.title = "ATTEMPTS", .right = true});
  Table table(std::move(columns));
  for (const Json& row : rows) {
    std::vector<Cell> cells;
    for (const std::string& key : by) cells.emplace_back(row[key].text().empty() ? "-" : row[key].text());
    for (const char* const sum :
         {"gpu_seconds", "lost_gpu_seconds", "share_gpu_seconds", "mig_gpu_seconds", "cpu_seconds"})
      cells.emplace_back(hours_text(row[sum].number()));
    cells.emplace_back(std::to_string(row["attempts"].integer()));
    table.add(std::move(cells));
  }
  return table.render(io.line_width(), colored(session.options(), io));
}

int show_usage(Session& session, const UsageOptions& wanted) {
  const CliIo& io = session.io();
  std::string path = "/v1/usage?by=" + url_encoded(wanted.by);
  const Result<std::string> user = user_filter(session, wanted.user, wanted.me);
  if (!user) return session.fail(kExitUsage, user.error().message, "usage");
  const std::pair<const char*, std::string> texts[] = {{"tenant_id", session.options().tenant_id},
                                                       {"user", *user},
                                                       {"since", wanted.since},
                                                       {"until", wanted.until}};
  for (const auto& [name, text] : texts) {
    if (!text.empty()) path += "&" + std::string(name) + "=" + url_encoded(text);
  }
  const Reply reply = session.get(path);
  if (!reply) return session.fail(*reply.trouble);
  const std::vector<std::string> by = comma_list(wanted.by);
  const std::vector<Json> rows = reply.json["rows"].items();
  io.out(session.options().json ? json_line(reply)
         : wanted.csv           ? csv_of(rows, by)
                                : table_of(session, rows, by));
  return kExitOk;
}

}  // namespace

Action define_usage(Grammar& grammar) {
  const auto options = std::make_shared<UsageOptions>();
  grammar.option("--by", "KEYS", &options->by,
                 "Add up by tenant, user, model, node, day or month, comma-separated (default: user)");
  grammar.option("-u,--user", "NAME", &options->user, "Count only what this user submitted");
  grammar.flag("--me", options->me, "Count only your own jobs");
  grammar.option("--since", "TIME", &options->since,
                 "Count only use since this time, or within this duration, such as 30d; whole hours (UTC)");
  grammar.option("--until", "TIME", &options->until, "Count only use before this time; whole hours (UTC)");
  grammar.flag("--csv", options->csv, "Print CSV, in seconds");
  grammar.details(
      "Counts the time for which GPUs were allocated, over all time: from the placement of each attempt to "
      "its end, and what runs up to now. LOST is the part of attempts that did not end with exit code 0: "
      "failed, stopped, preempted or lost with their node.");
  grammar.example("gpu-cli usage --by month,tenant --csv", "have the GPU hours of each tenant by month");
  return [options](Session& session) { return show_usage(session, *options); };
}

}  // namespace gpusched::cli
