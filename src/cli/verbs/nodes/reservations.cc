#include <memory>
#include <sstream>

#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

struct ReservationOptions {
  std::string name;
  std::string tenant;
  std::vector<std::string> users;
  std::vector<std::string> nodes;
  std::string begin;
  std::string duration;
  std::string every;
  std::string reason;
};

Result<int64_t> span_ms(const char* option, const std::string& text) {
  const Result<int64_t> seconds = parse_duration_seconds(text);
  if (seconds) return *seconds * 1000;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = std::string(option) + ": " + seconds.error().message};
}

std::vector<std::string> parted_all(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& text : given) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) out.push_back(part);
  }
  return out;
}

Result<std::string> reservation_body(const ReservationOptions& options, Time now) {
  JsonObjectWriter body;
  body.add("name", options.name);
  if (!options.tenant.empty()) body.add("tenant_id", options.tenant);
  if (!options.users.empty()) body.add("users", parted_all(options.users));
  body.add("node_names", parted_all(options.nodes));
  if (!options.begin.empty() && options.begin != "now") {
    const Result<Moment> begin = parse_moment("--begin", options.begin, now);
    if (!begin) return begin.error();
    if (begin->at.empty()) {
      body.add("begin_after_ms", begin->after_seconds * 1000);
    } else {
      body.add("begin_at", begin->at);
    }
  }
  const Result<int64_t> duration = span_ms("--duration", options.duration);
  if (!duration) return duration.error();
  body.add("duration_ms", *duration);
  if (!options.every.empty()) {
    const Result<int64_t> every = span_ms("--every", options.every);
    if (!every) return every.error();
    body.add("every_ms", *every);
  }
  if (!options.reason.empty()) body.add("reason", options.reason);
  return body.text();
}

int create_reservation(Session& session, const ReservationOptions& options) {
  const Result<std::string> body = reservation_body(options, session.io().wall_now());
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply reply = session.send("POST", "/v1/reservations", *body);
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : reply.json["reservation_id"].text() + "\n");
  return kExitOk;
}

std::string joined_names(const Json& list) {
  std::string out;
  for (const Json& one : list.items()) out += (out.empty() ? "" : ",") + one.text();
  return out;
}

std::string to_the_second(const std::string& instant) {
  const Time time = parse_rfc3339(instant);
  return time.valid() ? format_local(time) : instant;
}

int list_reservations(Session& session) {
  const Reply reply = session.get("/v1/reservations");
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "NAME", .may_shrink = true},
               {.title = "STATE"},
               {.title = "FOR", .may_shrink = true},
               {.title = "BEGIN"},
               {.title = "END"},
               {.title = "EVERY", .drop_order = 1},
               {.title = "NODES", .may_shrink = true},
               {.title = "REASON", .may_shrink = true, .drop_order = 2}});
  for (const Json& one : with_tenant_names(session, reply.json["reservations"].items())) {
    std::string whose = one["tenant_name"].text();
    if (whose.empty()) whose = one["tenant_id"].text();
    if (whose.empty()) whose = "maintenance";
    if (const std::string users = joined_names(one["users"]); !users.empty()) whose += ":" + users;
    const int64_t every_ms = one["every_ms"].integer();
    table.add({one["name"].text(), one["active"].boolean() ? "on" : "planned", whose,
               to_the_second(one["begin_at"].text()), to_the_second(one["end_at"].text()),
               every_ms > 0 ? format_duration(every_ms / 1000) : "", joined_names(one["node_names"]),
               one["reason"].text()});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

}  // namespace

Action define_reservation_create(Grammar& grammar) {
  const auto options = std::make_shared<ReservationOptions>();
  grammar.argument("NAME", &options->name, "Name of the reservation; jobs give it to run on its nodes");
  grammar
      .option("--nodes", "NODES", &options->nodes,
              "Nodes, comma-separated, or patterns such as 'gpu-*'; may be repeated")
      .must();
  grammar.option("--duration", "SPAN", &options->duration, "Length, such as 2h").must();
  grammar.option("--begin", "WHEN", &options->begin,
                 "Start: now (the default), +2h, or a time such as 2025-01-31T09:00:00Z");
  grammar.option("--every", "SPAN", &options->every, "Repeat: time from one start to the next, such as 7d");
  grammar
      .option("--tenant", "TENANT", &options->tenant,
              "Tenant whose jobs may run in it (default: none, for maintenance)")
      .completes(Complete::kTenant);
  grammar.option("--user", "USER", &options->users, "Only this user of the tenant; may be repeated");
  grammar.option("--reason", "TEXT", &options->reason, "Reason, shown in the list");
  grammar.details(
      "While a reservation is active, its nodes take only jobs that name it (gpu-cli submit --reservation "
      "NAME). Before it starts, they take only jobs whose time limit ends before then. No job is stopped "
      "when it starts: running jobs continue. Prints the reservation's id.");
  return [options](Session& session) { return create_reservation(session, *options); };
}

Action define_reservation_list(Grammar& grammar) {
  grammar.details(
      "Sorted by start. Reservations that are over are not listed; one that repeats shows its next start.");
  return [](Session& session) { return list_reservations(session); };
}

Action define_reservation_cancel(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NAME", name.get(), "Name or id of the reservation");
  grammar.details(
      "The nodes take any job again at once. Jobs that wait for the reservation continue to wait: cancel "
      "them.");
  return [name](Session& session) -> int {
    const Reply reply = session.send("DELETE", "/v1/reservations/" + url_encoded(*name));
    if (!reply) return session.fail(*reply.trouble);
    session.io().out(session.options().json ? json_line(reply) : *name + " cancelled\n");
    return kExitOk;
  };
}

}  // namespace gpusched::cli
