#include <charconv>
#include <cmath>
#include <memory>

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
               .message = "\"" + text + "\" is no whole number, nor none for no limit"};
}

/// Adds a limit: a number, or null for "none".
Result<Unit> add_limit(JsonObjectWriter& body, const char* option, const char* field, const std::string& text,
                       Result<int64_t> (*parse)(const std::string&)) {
  if (text.empty()) return Unit{};
  if (text == "none") {
    body.add_null(field);
    return Unit{};
  }
  const Result<int64_t> value = parse(text);
  if (!value) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string(option) + ": " + value.error().message};
  }
  body.add(field, *value);
  return Unit{};
}

Result<int64_t> tier_priority(const std::string& text) {
  for (const Tier& tier : kTiers) {
    if (text == tier.name) return tier.priority;
  }
  const Result<int64_t> number = whole_number(text);
  if (number) return number;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "--priority: \"" + text + "\" is neither low, medium, high, critical nor a number"};
}

Result<int64_t> size_mb(const std::string& text) { return parse_size_mb(text); }

struct TenantOptions {
  std::string id;  ///< Of get, update and delete.
  std::string name;
  std::string email;
  std::string organization;
  std::string max_gpus;  ///< A number, or "none" for no limit; so are the next six.
  std::string max_gpu_memory;
  std::string max_cpus;
  std::string max_memory;
  std::string max_jobs;
  std::string max_waiting;
  std::string soft_waiting;
  std::string guaranteed_gpus;
  std::string guaranteed_gpu_memory;
  std::string guaranteed_cpus;
  std::string guaranteed_memory;
  std::string guaranteed_jobs;
  std::string gpu_hours;         ///< A number, or "none".
  std::string gpu_hours_window;  ///< A span of time.
  std::string allow_preemption;  ///< "yes" or "no"; so is the next.
  std::string can_preempt;
  std::string anonymous;
  std::string parent;
  std::string priority;  ///< A tier's name or its number.
  std::optional<double> weight;
};

/// Adds what "none" makes zero.
Result<Unit> add_amount(JsonObjectWriter& body, const char* option, const char* field,
                        const std::string& text, Result<int64_t> (*parse)(const std::string&)) {
  return add_limit(body, option, field, text == "none" ? "0" : text, parse);
}

Result<Unit> add_flag(JsonObjectWriter& body, const char* option, const char* field,
                      const std::string& text) {
  if (text.empty()) return Unit{};
  if (text != "yes" && text != "no") {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = std::string(option) + ": \"" + text + "\" is neither yes nor no"};
  }
  body.add(field, text == "yes");
  return Unit{};
}

Result<Unit> add_gpu_hours(JsonObjectWriter& body, const std::string& hours, const std::string& window) {
  if (hours == "none") {
    body.add_null("max_gpu_hours");
  } else if (!hours.empty()) {
    double value = 0;
    const char* const end = hours.data() + hours.size();
    const auto [stop, failure] = std::from_chars(hours.data(), end, value);
    if (failure != std::errc{} || stop != end || !std::isfinite(value) || value < 0) {
      return Error{.code = ErrorCode::kInvalidArgument,
                   .message = "--gpu-hours: \"" + hours + "\" is neither a number of hours nor none"};
    }
    body.add("max_gpu_hours", value);
  }
  if (window.empty()) return Unit{};
  const Result<int64_t> span = parse_duration_seconds(window);
  if (!span) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "--gpu-hours-window: " + span.error().message};
  }
  body.add("gpu_hours_window_seconds", *span);
  return Unit{};
}

Result<std::string> tenant_body(const TenantOptions& tenant) {
  JsonObjectWriter body;
  if (!tenant.name.empty()) body.add("name", tenant.name);
  if (!tenant.email.empty()) body.add("email", tenant.email);
  if (!tenant.organization.empty()) body.add("organization", tenant.organization);
  for (const Result<Unit>& added :
       {add_limit(body, "--max-gpus", "max_gpus", tenant.max_gpus, whole_number),
        add_limit(body, "--max-gpu-memory", "max_gpu_memory_mb", tenant.max_gpu_memory, size_mb),
        add_limit(body, "--max-cpus", "max_cpu_cores", tenant.max_cpus, whole_number),
        add_limit(body, "--max-mem", "max_memory_mb", tenant.max_memory, size_mb),
        add_limit(body, "--max-jobs", "max_concurrent_jobs", tenant.max_jobs, whole_number),
        add_limit(body, "--max-waiting", "max_waiting_jobs", tenant.max_waiting, whole_number),
        add_limit(body, "--soft-waiting", "soft_waiting_jobs", tenant.soft_waiting, whole_number),
        add_amount(body, "--guarantee-gpus", "guaranteed_gpus", tenant.guaranteed_gpus, whole_number),
        add_amount(body, "--guarantee-gpu-memory", "guaranteed_gpu_memory_mb", tenant.guaranteed_gpu_memory,
                   size_mb),
        add_amount(body, "--guarantee-cpus", "guaranteed_cpu_cores", tenant.guaranteed_cpus, whole_number),
        add_amount(body, "--guarantee-mem", "guaranteed_memory_mb", tenant.guaranteed_memory, size_mb),
        add_amount(body, "--guarantee-jobs", "guaranteed_jobs", tenant.guaranteed_jobs, whole_number),
        add_gpu_hours(body, tenant.gpu_hours, tenant.gpu_hours_window),
        add_flag(body, "--allow-preemption", "allow_preemption", tenant.allow_preemption),
        add_flag(body, "--can-preempt", "can_preempt_others", tenant.can_preempt),
        add_flag(body, "--anonymous", "anonymous", tenant.anonymous)}) {
    if (!added) return added.error();
  }
  if (!tenant.parent.empty()) body.add("parent_id", tenant.parent);
  if (!tenant.priority.empty()) {
    const Result<int64_t> priority = tier_priority(tenant.priority);
    if (!priority) return priority.error();
    body.add("priority_tier", *priority);
  }
  if (tenant.weight) {
    if (!std::isfinite(*tenant.weight) || *tenant.weight <= 0) {
      return Error{.code = ErrorCode::kInvalidArgument, .message = "--weight: expected a number above 0"};
    }
    body.add("fair_share_weight", *tenant.weight);
  }
  if (body.empty()) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "nothing to change; gpu-cli tenant update --help lists what can be"};
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
  if (allows && may) return "its jobs may be ended for others, and end others";
  if (allows) return "its jobs may be ended for others";
  return may ? "its jobs may end others" : "none";
}

std::string record_text(const Json& tenant) {
  Record record;
  record.add("Tenant", tenant["id"].text());
  record.add("Name", tenant["name"].text());
  record.add("Email", tenant["email"].text());
  record.add("Organization", tenant["organization"].text());
  record.add("Tier", tier_text(tenant["priority_tier"]));
  record.add("GPUs", gpus_used_of(tenant));
  record.add("Jobs", used_of(tenant["current_jobs"], tenant["max_concurrent_jobs"]));
  record.add("Waiting jobs", used_of(tenant["waiting_jobs"], tenant["max_waiting_jobs"]) +
                                 (tenant["soft_waiting_jobs"].is_number()
                                      ? ", throttled from " + limit_text(tenant["soft_waiting_jobs"]) + " on"
                                      : ""));
  record.add("Most GPU memory", size_limit_text(tenant["max_gpu_memory_mb"]));
  record.add("Most CPUs", limit_text(tenant["max_cpu_cores"]));
  record.add("Most memory", size_limit_text(tenant["max_memory_mb"]));
  record.add("Guaranteed", guaranteed_text(tenant));
  record.add("GPU hours", gpu_hours_text(tenant));
  record.add("Preemption", preemption_text(tenant));
  if (tenant["reclaims"].integer() > 0) {
    record.add("Given back", std::to_string(tenant["reclaims"].integer()) + " times, within " +
                                 fixed(tenant["reclaim_seconds_max"].number()) + " s, " +
                                 fixed(tenant["reclaim_seconds_mean"].number()) + " s on average");
  }
  record.add("Jobs so far", std::to_string(tenant["total_jobs"].integer()) + ", " +
                                std::to_string(tenant["successful_jobs"].integer()) + " completed, " +
                                std::to_string(tenant["failed_jobs"].integer()) + " failed");
  return record.render();
}

int print_tenant(const Session& session, const Reply& reply) {
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : record_text(reply.json));
  return kExitOk;
}

std::string path_of(const TenantOptions& tenant) { return "/tenants/" + url_encoded(tenant.id); }

int create_tenant(Session& session, const TenantOptions& tenant) {
  const Result<std::string> body = tenant_body(tenant);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply reply = session.post_once("/tenants", *body, random_key());
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : reply.json["id"].text() + "\n");
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
               {.title = "SO FAR", .right = true, .drop_order = 2}});
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

void add_fields(Grammar& grammar, TenantOptions& tenant) {
  grammar.option("--email", "ADDRESS", &tenant.email, "Whom to write to");
  grammar.option("--organization", "NAME", &tenant.organization, "What it belongs to");
  grammar.option("--max-gpus", "N", &tenant.max_gpus,
                 "GPUs at a time; none for no limit, as in the next six");
  grammar.option("--max-gpu-memory", "SIZE", &tenant.max_gpu_memory, "GPU memory at a time, such as 320G");
  grammar.option("--max-cpus", "N", &tenant.max_cpus, "CPU cores at a time");
  grammar.option("--max-mem", "SIZE", &tenant.max_memory, "Memory at a time");
  grammar.option("--max-jobs", "N", &tenant.max_jobs, "Running jobs at a time");
  grammar.option("--max-waiting", "N", &tenant.max_waiting,
                 "Waiting jobs at a time, its children's included: more are refused");
  grammar.option("--soft-waiting", "N", &tenant.soft_waiting,
                 "While more wait, each user's jobs are let in one by one");
  grammar.option(
      "--priority", "TIER", &tenant.priority,
      "low (100), medium (500), high (1000), critical (5000), or a number: added to its jobs' priority");
  grammar.option("--weight", "W", &tenant.weight, "Share among tenants (1.0)");
  grammar.option("--guarantee-gpus", "N", &tenant.guaranteed_gpus,
                 "GPUs that it gets back from whoever borrowed them; none for none, as in the next four");
  grammar.option("--guarantee-gpu-memory", "SIZE", &tenant.guaranteed_gpu_memory, "Guaranteed GPU memory");
  grammar.option("--guarantee-cpus", "N", &tenant.guaranteed_cpus, "Guaranteed CPU cores");
  grammar.option("--guarantee-mem", "SIZE", &tenant.guaranteed_memory, "Guaranteed memory");
  grammar.option("--guarantee-jobs", "N", &tenant.guaranteed_jobs, "Guaranteed running jobs");
  grammar.option("--gpu-hours", "HOURS", &tenant.gpu_hours, "GPU hours in each window; none for no limit");
  grammar.option("--gpu-hours-window", "TIME", &tenant.gpu_hours_window,
                 "How long such a window is (7d); they follow one another from 1970 on, UTC");
  grammar.option("--allow-preemption", "ANSWER", &tenant.allow_preemption,
                 "yes or no: whether its jobs may be ended for more urgent ones (no)");
  grammar.option("--can-preempt", "ANSWER", &tenant.can_preempt,
                 "yes or no: whether its jobs may end those of tenants that allow it (no)");
  grammar.option("--anonymous", "ANSWER", &tenant.anonymous,
                 "yes or no: whether callers without the token may use it (no)");
}

/// The tenant that a command is about.
std::shared_ptr<TenantOptions> named_tenant(Grammar& grammar) {
  const auto tenant = std::make_shared<TenantOptions>();
  grammar.argument("TENANT", &tenant->id, "Its id or its name").completes(Complete::kTenant);
  return tenant;
}

}  // namespace

Action define_tenant_create(Grammar& grammar) {
  const auto tenant = std::make_shared<TenantOptions>();
  grammar.option("--name", "NAME", &tenant->name, "Its name").must();
  grammar.option("--parent", "TENANT", &tenant->parent, "The tenant that it is a part of");
  add_fields(grammar, *tenant);
  grammar.details("Prints the new tenant's id.");
  return [tenant](Session& session) { return create_tenant(session, *tenant); };
}

Action define_tenant_list(Grammar& grammar) {
  grammar.details("With what they hold of GPUs and jobs at the moment, and their limits.");
  return [](Session& session) { return list_tenants(session); };
}

Action define_tenant_get(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  return [tenant](Session& session) { return get_tenant(session, *tenant); };
}

Action define_tenant_update(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  grammar.option("--name", "NAME", &tenant->name, "Its new name");
  add_fields(grammar, *tenant);
  return [tenant](Session& session) { return update_tenant(session, *tenant); };
}

Action define_tenant_delete(Grammar& grammar) {
  const auto tenant = named_tenant(grammar);
  return [tenant](Session& session) { return delete_tenant(session, *tenant); };
}

}  // namespace gpusched::cli
