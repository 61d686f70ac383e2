#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

struct Tier {
  std::string_view name;
  int64_t priority;
};
constexpr Tier kTiers[] = {{"low", 100}, {"medium", 500}, {"high", 1000}, {"critical", 5000}};

Result<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure == std::errc{} && stop == end && value >= 0) return value;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "\"" + text + "\" is neither a whole number nor none (for no limit)"};
}

Result<int64_t> tier_priority(const std::string& text) {
  for (const Tier& tier : kTiers) {
    if (text == tier.name) return tier.priority;
  }
  const Result<int64_t> number = whole_number(text);
  if (number) return number;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "\"" + text + "\" is neither low, medium, high, critical nor a number"};
}

/// How an option's value becomes a member of a body.
enum class SettingForm : uint8_t {
  kText,
  kCount,   ///< A whole number.
  kSize,    ///< In megabytes.
  kHours,   ///< A number that may have a fraction.
  kSpan,    ///< In seconds.
  kAnswer,  ///< "yes" or "no".
  kTier,    ///< A tier's name or its number.
  kWeight,  ///< A number above 0, read by the grammar.
};
/// Meaning of the value "none".
enum class SettingNone : uint8_t { kNothing, kNull, kZero };

/// A setting that create and update take.
struct SettingOption {
  std::string_view flag;
  std::string_view value;  ///< Name of the value in the help.
  std::string_view field;  ///< In the bodies.
  std::string_view help;
  SettingForm form = SettingForm::kText;
  SettingNone none = SettingNone::kNothing;
};

using enum SettingForm;
using enum SettingNone;

constexpr SettingOption kSettings[] = {
    {"--email", "ADDRESS", "email", "Contact address"},
    {"--organization", "NAME", "organization", "Organization that it belongs to"},
    {"--max-gpus", "N", "max_gpus", "Maximum GPUs in use; none for no limit, as for the next six options",
     kCount, kNull},
    {"--max-gpu-memory", "SIZE", "max_gpu_memory_mb", "Maximum GPU memory in use, such as 320G", kSize,
     kNull},
    {"--max-cpus", "N", "max_cpu_cores", "Maximum CPU cores in use", kCount, kNull},
    {"--max-mem", "SIZE", "max_memory_mb", "Maximum memory in use", kSize, kNull},
    {"--max-jobs", "N", "max_concurrent_jobs", "Maximum running jobs", kCount, kNull},
    {"--max-waiting", "N", "max_waiting_jobs",
     "Maximum pending jobs, including those of child tenants; more are refused", kCount, kNull},
    {"--soft-waiting", "N", "soft_waiting_jobs",
     "Above this number of pending jobs, each user's submissions are throttled", kCount, kNull},
    {"--priority", "TIER", "priority_tier",
     "Priority tier, added to the priority of its jobs: low (100), medium (500), high (1000), critical "
     "(5000), or a number",
     kTier},
    {"--weight", "W", "fair_share_weight", "Weight in fair sharing among tenants (default: 1.0)", kWeight},
    {"--guarantee-gpus", "N", "guaranteed_gpus",
     "Guaranteed GPUs, reclaimed from borrowers when needed; none for no guarantee, as for the next four "
     "options",
     kCount, kZero},
    {"--guarantee-gpu-memory", "SIZE", "guaranteed_gpu_memory_mb", "Guaranteed GPU memory", kSize, kZero},
    {"--guarantee-cpus", "N", "guaranteed_cpu_cores", "Guaranteed CPU cores", kCount, kZero},
    {"--guarantee-mem", "SIZE", "guaranteed_memory_mb", "Guaranteed memory", kSize, kZero},
    {"--guarantee-jobs", "N", "guaranteed_jobs", "Guaranteed running jobs", kCount, kZero},
    {"--gpu-hours", "HOURS", "max_gpu_hours", "Maximum GPU hours in each window; none for no limit", kHours,
     kNull},
    {"--gpu-hours-window", "TIME", "gpu_hours_window_seconds",
     "Length of the window (default: 7d); windows follow each other from 1970-01-01 UTC", kSpan},
    {"--allow-preemption", "ANSWER", "allow_preemption",
     "yes or no: its jobs may be preempted by jobs of higher priority (default: no)", kAnswer},
    {"--can-preempt", "ANSWER", "can_preempt_others",
     "yes or no: its jobs may preempt those of tenants that allow it (default: no)", kAnswer},
    {"--anonymous", "ANSWER", "anonymous", "yes or no: callers without the token may use it (default: no)",
     kAnswer},
};

struct TenantOptions {
  std::string id;  ///< For get, update and delete.
  std::string name;
  std::string parent;
  std::array<std::string, std::size(kSettings)> values;  ///< In the order of the rows; empty: not given.
  std::optional<double> weight;
};

Error wrong(std::string_view flag, const std::string& message) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::string(flag) + ": " + message};
}

Result<Unit> add_hours(JsonObjectWriter& body, const SettingOption& option, const std::string& text) {
  double hours = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, hours);
  if (failure != std::errc{} || stop != end || !std::isfinite(hours) || hours < 0)
    return wrong(option.flag, "\"" + text + "\" is neither a number of hours nor none");
  body.add(option.field, hours);
  return Unit{};
}

Result<Unit> add_number(JsonObjectWriter& body, const SettingOption& option, const Result<int64_t>& number) {
  if (!number) return wrong(option.flag, number.error().message);
  body.add(option.field, *number);
  return Unit{};
}

/// Adds what an option says.
Result<Unit> add_setting(JsonObjectWriter& body, const SettingOption& option, std::string text) {
  if (text.empty()) return Unit{};
  if (text == "none" && option.none == kNull) {
    body.add_null(option.field);
    return Unit{};
  }
  if (text == "none" && option.none == kZero) text = "0";
  switch (option.form) {
    case kText:
      body.add(option.field, text);
      return Unit{};
    case kCount:
      return add_number(body, option, whole_number(text));
    case kSize:
      return add_number(body, option, parse_size_mb(text));
    case kHours:
      return add_hours(body, option, text);
    case kSpan:
      return add_number(body, option, parse_duration_seconds(text));
    case kTier:
      return add_number(body, option, tier_priority(text));
    case kAnswer:
      if (text != "yes" && text != "no") return wrong(option.flag, "\"" + text + "\" is neither yes nor no");
      body.add(option.field, text == "yes");
      return Unit{};
    case kWeight:
      return Unit{};  // It is no text.
  }
  UNREACHABLE();
}

Result<Unit> add_weight(JsonObjectWriter& body, const std::optional<double>& weight) {
  if (!weight) return Unit{};
  if (!std::isfinite(*weight) || *weight <= 0) return wrong("--weight", "expected a number above 0");
  body.add("fair_share_weight", *weight);
  return Unit{};
}

Result<std::string> tenant_body(const TenantOptions& tenant) {
  JsonObjectWriter body;
  if (!tenant.name.empty()) body.add("name", tenant.name);
  for (std::size_t i = 0; i < std::size(kSettings); ++i) {
    const Result<Unit> added = kSettings[i].form == kWeight
                                   ? add_weight(body, tenant.weight)
                                   : add_setting(body, kSettings[i], tenant.values.at(i));
    if (!added) return added.error();
  }
  if (!tenant.parent.empty()) body.add("parent_id", tenant.parent);
  if (body.empty()) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "no change was given; gpu-cli tenant update --help lists the options"};
  }
  return body.text();
}

/// "4/8", or "4" without a limit.
std::string used_of(const Json& used, const Json& limit) {
  const std::string text = std::to_string(used.integer());
  return limit.is_number() ? text + "/" + std::to_string(limit.integer()) : text;
}

/// Whole ones and shares.
std::string gpus_used_of(const Json& tenant) {
  const int64_t milli = tenant["current_gpus"].integer() * 1000 + tenant["current_gpu_milli"].integer();
  const std::string limit =
      tenant["max_gpus"].is_number() ? "/" + std::to_string(tenant["max_gpus"].integer()) : "";
  return format_share(milli) + limit;
}

std::string limit_text(const Json& limit) {
  return limit.is_number() ? std::to_string(limit.integer()) : "none";
}

std::string size_limit_text(const Json& limit) {
  return limit.is_number() ? format_size_mb(limit.integer()) : "none";
}

std::string tier_text(const Json& priority) {
  if (priority.is_string()) return priority.text();
  for (const Tier& tier : kTiers) {
    if (tier.priority == priority.integer()) return std::string(tier.name);
  }
  return std::to_string(priority.integer());
}

/// With one decimal.
std::string fixed(double number) {
  const int64_t tenths = std::llround(number * 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

std::string guaranteed_text(const Json& tenant) {
  std::string text;
  const auto add = [&](const char* field, const char* unit, bool size) {
    const Json value = tenant[field];
    if (!value.is_number() || value.number() <= 0) return;
    if (!text.empty()) text += ", ";
    text += (size ? format_size_mb(value.integer()) : std::to_string(value.integer())) + " " + unit;
  };
  add("guaranteed_gpus", "GPUs", false);
  add("guaranteed_gpu_memory_mb", "of GPU memory", true);
  add("guaranteed_cpu_cores", "CPUs", false);
  add("guaranteed_memory_mb", "of memory", true);
  add("guaranteed_jobs", "jobs", false);
  return text.empty() ? "nothing" : text;
}

std::string gpu_hours_text(const Json& tenant) {
  if (!tenant["max_gpu_hours"].is_number()) return "no limit";
  return fixed(tenant["gpu_hours_used"].number()) + "/" + fixed(tenant["max_gpu_hours"].number()) +
         " until " + tenant["gpu_hours_window_ends"].text();
}

std::string preemption_text(const Json& tenant) {
  const bool allows = tenant["allow_preemption"].boolean();
  const bool may = tenant["can_preempt_others"].boolean();
  if (allows && may) return "its jobs may be preempted, and may preempt others";
  if (allows) return "its jobs may be preempted";
  return may ? "its jobs may preempt others" : "none";
}

std::string waiting_text(const Json& tenant) {
  const std::string waiting = used_of(tenant["waiting_jobs"], tenant["max_waiting_jobs"]);
  if (!tenant["soft_waiting_jobs"].is_number()) return waiting;
  return waiting + ", throttled from " + limit_text(tenant["soft_waiting_jobs"]) + " on";
}

std::string given_back_text(const Json& tenant) {
  if (tenant["reclaims"].integer() == 0) return "";
  return std::to_string(tenant["reclaims"].integer()) + " times, within " +
         fixed(tenant["reclaim_seconds_max"].number()) + " s, " +
         fixed(tenant["reclaim_seconds_mean"].number()) + " s on average";
}

std::string jobs_so_far_text(const Json& tenant) {
  return std::to_string(tenant["total_jobs"].integer()) + ", " +
         std::to_string(tenant["successful_jobs"].integer()) + " completed, " +
         std::to_string(tenant["failed_jobs"].integer()) + " failed";
}

/// A line of `tenant get`.
struct TenantRecordRow {
  std::string_view title;
  std::string (*text)(const Json& tenant);  ///< Nothing: no line.
};

constexpr TenantRecordRow kTenantRecord[] = {
    {"Tenant", [](const Json& tenant) { return tenant["id"].text(); }},
    {"Name", [](const Json& tenant) { return tenant["name"].text(); }},
    {"Email", [](const Json& tenant) { return tenant["email"].text(); }},
    {"Organization", [](const Json& tenant) { return tenant["organization"].text(); }},
    {"Tier", [](const Json& tenant) { return tier_text(tenant["priority_tier"]); }},
    {"GPUs", gpus_used_of},
    {"Jobs",
     [](const Json& tenant) { return used_of(tenant["current_jobs"], tenant["max_concurrent_jobs"]); }},
    {"Waiting jobs", waiting_text},
    {"Max GPU memory", [](const Json& tenant) { return size_limit_text(tenant["max_gpu_memory_mb"]); }},
    {"Max CPUs", [](const Json& tenant) { return limit_text(tenant["max_cpu_cores"]); }},
    {"Max memory", [](const Json& tenant) { return size_limit_text(tenant["max_memory_mb"]); }},
    {"Guaranteed", guaranteed_text},
    {"GPU hours", gpu_hours_text},
    {"Preemption", preemption_text},
    {"Reclaimed", given_back_text},
    {"Jobs so far", jobs_so_far_text},
};

std::string record_text(const Json& tenant, int width) {
  Record record;
  for (const TenantRecordRow& row : kTenantRecord) record.add(std::string(row.title), row.text(tenant));
  return record.render(width);
}

int print_tenant(const Session& session, const Reply& reply) {
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply)
                                          : record_text(reply.json, session.io().line_width()));
  return kExitOk;
}

std::string path_of(const TenantOptions& tenant) { return "/tenants/" + url_encoded(tenant.id); }

int create_tenant(Session& session, const TenantOptions& tenant) {
  const Result<std::string> body = tenant_body(tenant);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply reply = session.post_once("/tenants?unique_name=true", *body, random_key());
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : reply.json["id"].text() + "\n");
  return kExitOk;
}

/// As scripts of another scheduler's client have it: a name may repeat, and people read the answer.
int create_repeated_tenant(Session& session, const TenantOptions& tenant) {
  const Result<std::string> body = tenant_body(tenant);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply reply = session.post_once("/tenants", *body, random_key());
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json
                       ? json_line(reply)
                       : "Tenant created successfully!\nTenant ID: " + reply.json["id"].text() + "\n");
  return kExitOk;
}

int list_tenants(Session& session) {
  const Reply reply = session.get("/tenants");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "ID"},
               {.title = "NAME", .may_shrink = true},
               {.title = "TIER", .drop_order = 1},
               {.title = "GPUS", .right = true},
               {.title = "JOBS", .right = true},
               {.title = "JOBS EVER", .right = true, .drop_order = 2}});
  for (const Json& tenant : reply.json["tenants"].items()) {
    table.add({tenant["id"].text(), tenant["name"].text(), tier_text(tenant["priority_tier"]),
               gpus_used_of(tenant), used_of(tenant["current_jobs"], tenant["max_concurrent_jobs"]),
               std::to_string(tenant["total_jobs"].integer())});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

int get_tenant(Session& session, const TenantOptions& tenant) {
  return print_tenant(session, session.get(path_of(tenant)));
}

int update_tenant(Session& session, const TenantOptions& tenant) {
  const Result<std::string> body = tenant_body(tenant);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  return print_tenant(session, session.send("PUT", path_of(tenant), *body));
}

int delete_tenant(Session& session, const TenantOptions& tenant) {
  const Reply reply = session.send("DELETE", path_of(tenant));
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : tenant.id + " deleted\n");
  return kExitOk;
}

void add_fields(Grammar& grammar, TenantOptions& tenant, std::span<const std::string_view> only = {}) {
  for (std::size_t i = 0; i < std::size(kSettings); ++i) {
    const SettingOption& row = kSettings[i];
    if (!only.empty() && std::ranges::find(only, row.flag) == only.end()) continue;
    const OptionTarget target =
        row.form == kWeight ? OptionTarget(&tenant.weight) : OptionTarget(&tenant.values.at(i));
    grammar.option(std::string(row.flag), std::string(row.value), target, std::string(row.help));
  }
}

/// The tenant that a command is about.
std::shared_ptr<TenantOptions> named_tenant(Grammar& grammar) {
  const auto tenant = std::make_shared<TenantOptions>();
  grammar.argument("TENANT", &tenant->id, "Id or name of the tenant").completes(Complete::kTenant);
  return tenant;
}

}  // namespace

Action define_tenant_create(Grammar& grammar) {
  const auto tenant = std::make_shared<TenantOptions>();
  grammar.option("--name", "NAME", &tenant->name, "Name").must();
  grammar.option("--parent", "TENANT", &tenant->parent, "Parent tenant");
  add_fields(grammar, *tenant);
  grammar.details("Prints the new tenant's id. A name that another tenant has is refused.");
  return [tenant](Session& session) { return create_tenant(session, *tenant); };
}

Action define_create_tenant(Grammar& grammar) {
  static constexpr std::string_view kOptions[] = {"--max-gpus", "--priority"};
  const auto tenant = std::make_shared<TenantOptions>();
  grammar.option("--name", "NAME", &tenant->name, "Name").must();
  add_fields(grammar, *tenant, kOptions);
  grammar.details(
      "For existing scripts; `gpu-cli tenant create` has more options. A name may be used repeatedly: each "
      "call creates another tenant, and from then on their ids distinguish them.");
  return [tenant](Session& session) { return create_repeated_tenant(session, *tenant); };
}

Action define_tenant_list(Grammar& grammar) {
  grammar.details("Shows their current GPUs and jobs, and their limits.");
  return [](Session& session) { return list_tenants(session); };
}

Action define_tenant_get(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  return [tenant](Session& session) { return get_tenant(session, *tenant); };
}

Action define_tenant_update(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  grammar.option("--name", "NAME", &tenant->name, "New name");
  add_fields(grammar, *tenant);
  return [tenant](Session& session) { return update_tenant(session, *tenant); };
}

Action define_tenant_delete(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  return [tenant](Session& session) { return delete_tenant(session, *tenant); };
}

}  // namespace gpusched::cli
