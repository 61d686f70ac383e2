// Services: created, listed, shown, scaled, rolled out, deleted.
#include <memory>
#include <optional>
#include <tuple>

#include "base/job_labels.h"
#include "cli/commands.h"
#include "cli/framework/tenant_names.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

/// Options of the queue that the number of replicas follows.
struct ScaleOptions {
  std::string queue;
  std::optional<int64_t> min, max, per_replica;
  std::string down_after;
  bool none = false;
};

struct ServiceOptions {
  SubmitOptions submit;
  std::string name;
  std::optional<int64_t> replicas;
  std::string restart;
  std::string ready_after;
  bool port = false, no_port = false;
  std::string probe, probe_period, probe_timeout;
  std::optional<int64_t> probe_failures;
  std::string rollout_deadline;
  ScaleOptions scale;
};

std::string service_path(const Session& session, const std::string& name, const std::string& more = {}) {
  const std::string& tenant = session.options().tenant_id;
  return "/v1/services/" + url_encoded(name) + more +
         (tenant.empty() ? std::string() : "?tenant_id=" + url_encoded(tenant));
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; }

void replace_word(std::string& text, std::string_view word, std::string_view by) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) continue;
    text.replace(at, word.size(), by);
    at += by.size() - 1;
  }
}

/// The refusal of a service's settings in the words of this command: its options.
Trouble in_options(Trouble trouble) {
  for (const ServiceSettingName& name : kServiceSettingNames) {
    const std::string label(name.label);
    replace_word(trouble.sentence, "the label " + label, name.option);
    replace_word(trouble.sentence, label, name.option);
    // Fields of a single word are words of other sentences, too.
    if (name.field.find('_') != std::string_view::npos)
      replace_word(trouble.sentence, name.field, name.option);
  }
  return trouble;
}

void add_label(ServiceOptions& service, std::string_view label, const std::string& value) {
  service.submit.labels.push_back(std::string(label) + "=" + value);
}

/// The span in milliseconds.
Result<int64_t> span_ms(const char* option, const std::string& span) {
  const Result<int64_t> seconds = parse_duration_seconds(span);
  if (seconds) return *seconds * 1'000;
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = std::string(option) + ": " + seconds.error().message};
}

/// The value of --scale-down-after, of which 0 means at once.
Result<int64_t> scale_down_ms(const std::string& span) {
  if (span == "0" || span == "0s") return int64_t{0};
  return span_ms("--scale-down-after", span);
}

/// A label of milliseconds, when the option was given.
Result<Unit> add_span(ServiceOptions& service, const char* option, std::string_view label,
                      const std::string& span) {
  if (span.empty()) return Unit{};
  if (span == "none" && label == kServiceDeadlineLabel) {
    add_label(service, label, "0");
    return Unit{};
  }
  const Result<int64_t> ms = label == kServiceScaleDownLabel ? scale_down_ms(span) : span_ms(option, span);
  if (!ms) return ms.error();
  add_label(service, label, std::to_string(*ms));
  return Unit{};
}

Result<Unit> check_scaling(const ScaleOptions& scale) {
  if (!scale.none || scale.queue.empty()) return Unit{};
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "--scale-queue and --no-scale exclude each other; give one of them"};
}

Result<Unit> add_scaling(ServiceOptions& service) {
  const ScaleOptions& scale = service.scale;
  if (const Result<Unit> checked = check_scaling(scale); !checked) return checked;
  if (scale.none) add_label(service, kServiceQueueLabel, std::string(kServiceNoQueue));
  if (!scale.queue.empty()) add_label(service, kServiceQueueLabel, scale.queue);
  const std::pair<std::string_view, std::optional<int64_t>> numbers[] = {
      {kServiceScaleMinLabel, scale.min},
      {kServiceScaleMaxLabel, scale.max},
      {kServiceScaleJobsLabel, scale.per_replica}};
  for (const auto& [label, number] : numbers)
    if (number) add_label(service, label, std::to_string(*number));
  return add_span(service, "--scale-down-after", kServiceScaleDownLabel, scale.down_after);
}

Result<Unit> add_port(ServiceOptions& service) {
  if (service.port && service.no_port) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "--port and --no-port exclude each other; give one of them"};
  }
  if (service.port) add_label(service, kServicePortLabel, std::string(kServiceHasPort));
  if (service.no_port) add_label(service, kServicePortLabel, std::string(kServiceHasNoPort));
  if (!service.probe.empty()) add_label(service, kServiceProbeLabel, service.probe);
  if (service.probe_failures)
    add_label(service, kServiceProbeFailuresLabel, std::to_string(*service.probe_failures));
  const std::tuple<const char*, std::string_view, const std::string*> spans[] = {
      {"--probe-period", kServiceProbePeriodLabel, &service.probe_period},
      {"--probe-timeout", kServiceProbeTimeoutLabel, &service.probe_timeout},
      {"--rollout-deadline", kServiceDeadlineLabel, &service.rollout_deadline}};
  for (const auto& [option, label, span] : spans) {
    if (const Result<Unit> added = add_span(service, option, label, *span); !added) return added;
  }
  return Unit{};
}

Result<Unit> add_settings(ServiceOptions& service, int64_t generation) {
  add_label(service, kServiceLabel, service.name);
  add_label(service, kServiceGenerationLabel, std::to_string(generation));
  if (service.replicas) add_label(service, kServiceReplicasLabel, std::to_string(*service.replicas));
  if (!service.restart.empty()) add_label(service, kServiceRestartLabel, service.restart);
  if (const Result<Unit> added = add_span(service, "--ready-after", kServiceReadyLabel, service.ready_after);
      !added)
    return added;
  if (const Result<Unit> added = add_scaling(service); !added) return added;
  return add_port(service);
}

/// Submits the service's record, once whatever happens on the way, and says what `done` says.
int submit_record(Session& session, ServiceOptions& service, const Grammar& grammar, int64_t generation,
                  const std::string& done) {
  if (service.submit.wait)
    return session.fail(kExitUsage, "--wait: a service does not end; leave it out", "usage");
  const bool retry = await_scheduler(session, !service.submit.no_retry);
  const Result<Unit> settings = add_settings(service, generation);
  if (!settings) return session.fail(kExitUsage, settings.error().message, "usage");
  service.submit.hold = true;
  if (service.submit.name.empty()) service.submit.name = service.name;
  const Result<std::string> body = submission_body(session, service.submit, grammar);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  const Reply submitted = submit_once(session, *body, retry);
  if (!submitted) return session.fail(in_options(*submitted.trouble));
  if (!session.options().json) {
    session.io().out(done);
    return kExitOk;
  }
  const Reply shown = session.get("/v1/services/" + url_encoded(submitted.json["job_id"].text()));
  if (!shown) return session.fail(*shown.trouble);
  session.io().out(json_line(shown));
  return kExitOk;
}

int roll_out(Session& session, ServiceOptions& service, const Grammar& grammar) {
  const Reply now = session.get(service_path(session, service.name));
  if (!now) return session.fail(*now.trouble);
  service.name = now.json["name"].text();
  service.submit.tenant = now.json["tenant_id"].text();
  const int64_t generation = now.json["generation"].integer() + 1;
  return submit_record(session, service, grammar, generation,
                       service.name + ": generation " + std::to_string(generation) + "\n");
}

std::string counted(const Json& service) {
  return std::to_string(service["ready"].integer()) + "/" + std::to_string(service["replicas"].integer());
}

/// "3 of 1-8", or nothing when it follows no queue.
std::string scaled(const Json& service) {
  if (service["scale_queue"].text().empty()) return {};
  return std::to_string(service["scale_wanted"].integer()) + " of " +
         std::to_string(service["scale_min"].integer()) + "-" +
         std::to_string(service["scale_max"].integer());
}

/// How many jobs wait in its queue, when that is known.
std::string waiting(const Json& service) {
  return service["scale_waiting"].is_null() ? std::string()
                                            : std::to_string(service["scale_waiting"].integer());
}

int list_services(Session& session) {
  const std::string& tenant = session.options().tenant_id;
  const Reply reply =
      session.get(tenant.empty() ? "/v1/services" : "/v1/services?tenant_id=" + url_encoded(tenant));
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  Table table({{.title = "NAME", .may_shrink = true},
               {.title = "TENANT", .may_shrink = true, .drop_order = 2},
               {.title = "STATE"},
               {.title = "READY"},
               {.title = "WAITING", .drop_order = 4},
               {.title = "WANTED", .drop_order = 4},
               {.title = "GENERATION", .drop_order = 1}});
  for (const Json& one : with_tenant_names(session, reply.json["services"].items())) {
    std::string whose = one["tenant_name"].text();
    if (whose.empty()) whose = one["tenant_id"].text();
    table.add({one["name"].text(), whose, one["state"].text(), counted(one), waiting(one), scaled(one),
               std::to_string(one["generation"].integer())});
  }
  session.io().out(table.render(session.io().width));
  return kExitOk;
}

std::string readiness_of(const Json& service) {
  const std::string& probe = service["ready_probe"].text();
  if (probe.empty()) return format_duration(service["ready_after_ms"].integer() / 1'000);
  const auto ms = [&service](const char* name) { return std::to_string(service[name].integer()) + " ms"; };
  return probe + " every " + ms("probe_period_ms") + ", within " + ms("probe_timeout_ms") +
         "; unready after " + std::to_string(service["probe_failures"].integer()) + " failures";
}

/// "n1:10023", or the node alone.
std::string place_of(const Json& replica) {
  const int64_t port = replica["port"].integer();
  return replica["node_name"].text() + (port == 0 ? std::string() : ":" + std::to_string(port));
}

std::string since(const Json& instant) {
  const Time time = parse_rfc3339(instant.text());
  return time.valid() ? format_local(time) : std::string();
}

void show_scaling(Record& record, const Json& service) {
  if (service["scale_queue"].text().empty()) return;
  record.add("Follows", service["scale_queue"].text() + ", one replica for " +
                            std::to_string(service["scale_per_replica"].integer()) + ", down after " +
                            format_duration(service["scale_down_after_ms"].integer() / 1'000));
  record.add("Waiting", waiting(service));
  record.add("Wanted", scaled(service));
  record.add("Because", printable(service["scale_message"].text()));
}

int show_service(Session& session, const std::string& name) {
  const Reply reply = session.get(service_path(session, name));
  if (!reply) return session.fail(*reply.trouble);
  if (session.options().json) {
    session.io().out(json_line(reply));
    return kExitOk;
  }
  const Json& service = reply.json;
  Record record;
  record.add("Name", service["name"].text());
  record.add("Tenant", service["tenant_id"].text());
  record.add("State", service["state"].text());
  record.add("Ready", counted(service));
  record.add("Generation", std::to_string(service["generation"].integer()));
  record.add("Restart", service["restart"].text());
  record.add(service["ready_probe"].text().empty() ? "Ready after" : "Ready by", readiness_of(service));
  show_scaling(record, service);
  record.add("Owner", service["owner"].text());
  record.add("Record", service["record_id"].text());
  record.add("Problem", printable(service["message"].text()));
  session.io().out(record.render(session.io().width));
  Table table({{.title = "REPLICA"},
               {.title = "JOB"},
               {.title = "GENERATION", .drop_order = 3},
               {.title = "STATE"},
               {.title = "READY"},
               {.title = "RESTARTS"},
               {.title = "NODE"},  // With the port, which nothing else says.
               {.title = "STARTS", .drop_order = 1},
               {.title = "MESSAGE", .may_shrink = true, .drop_order = 2, .wraps = true}});
  for (const Json& one : service["jobs"].items()) {
    table.add({std::to_string(one["index"].integer()), one["job_id"].text(),
               std::to_string(one["generation"].integer()), one["state"].text(),
               one["ready"].boolean() ? "yes" : "no", std::to_string(one["restarts"].integer()),
               place_of(one), since(one["starts_at"]), one["message"].text()});
  }
  if (!table.empty()) session.io().out("\n" + table.render(session.io().width));
  return kExitOk;
}

/// Prints the reply, or the sentence.
int say(const Session& session, const Reply& reply, const std::string& sentence) {
  if (!reply) return session.fail(*reply.trouble);
  session.io().out(session.options().json ? json_line(reply) : sentence);
  return kExitOk;
}

void declare_port(Grammar& grammar, ServiceOptions& service) {
  grammar
      .flag("--port", service.port,
            "Each replica gets a port of its node, reserved while it runs and named in $PORT")
      .common();
  grammar.flag("--no-port", service.no_port, "No port any more");
  grammar
      .option("--ready-probe", "PROBE", &service.probe,
              "A replica is ready when this succeeds on its port: http:/PATH, tcp or none; gives it a port")
      .common();
  grammar.option("--probe-period", "SPAN", &service.probe_period, "Time between two probes (default: 2s)");
  grammar.option("--probe-timeout", "SPAN", &service.probe_timeout, "Time for an answer (default: 1s)");
  grammar
      .option("--probe-failures", "N", &service.probe_failures,
              "Failures in a row after which a ready replica is not ready any more (default: 3)")
      .range(1, kServiceProbeFailuresMax);
  grammar.option("--rollout-deadline", "SPAN", &service.rollout_deadline,
                 "A rollout that makes no progress for longer is stalled; none: never (default: 10m)");
}

void declare_scaling(Grammar& grammar, ScaleOptions& scale) {
  grammar
      .option(
          "--scale-queue", "KEY=VALUE", &scale.queue,
          "The number of replicas follows the tenant's jobs that wait and have this label; KEY: any value")
      .common();
  grammar.option("--min", "N", &scale.min, "Fewest replicas (default: 1)").range(0, kServiceReplicasMax);
  grammar.option("--max", "N", &scale.max, "Most replicas; needed with --scale-queue")
      .range(1, kServiceReplicasMax);
  grammar.option("--scale-per-replica", "N", &scale.per_replica, "One replica for so many jobs (default: 1)")
      .range(1, kServiceScaleJobsMax);
  grammar.option("--scale-down-after", "SPAN", &scale.down_after,
                 "Fewer replicas are enough for so long before there are fewer (default: 5m)");
  grammar.flag("--no-scale", scale.none, "No queue any more");
}

void declare_service(Grammar& grammar, ServiceOptions& service) {
  grammar.argument("NAME", &service.name, "Name of the service");
  declare_submit_options(grammar, service.submit);
  grammar.heading("The service");
  grammar.option("--replicas", "N", &service.replicas, "Number of replicas")
      .range(0, kServiceReplicasMax)
      .common();
  grammar.option("--restart", "POLICY", &service.restart, "When a replica that ended is started again")
      .of({"always", "on_failure", "never"})
      .common();
  grammar
      .option("--ready-after", "SPAN", &service.ready_after,
              "A replica that has run for so long is ready, such as 10s")
      .common();
  declare_port(grammar, service);
  declare_scaling(grammar, service.scale);
  declare_submission(grammar, service.submit);
}

}  // namespace

Action define_service_create(Grammar& grammar) {
  const auto service = std::make_shared<ServiceOptions>();
  declare_service(grammar, *service);
  grammar.details(
      "A service is jobs that are kept running: as many replicas as were asked for, each a job with the "
      "options given here. A replica that ends is started again, after 1 s, 2 s, 4 s and so on up to 5 "
      "minutes while ends follow each other; an end after ten minutes is the first one again. Defaults: one "
      "replica, `--restart always`, `--ready-after 5s`.");
  grammar.details(
      "With --port a replica listens on the port that $PORT names; `gpu-cli service get` shows it behind the "
      "node. A probe is made by the node's agent on 127.0.0.1, and --ready-after does not count then.");
  grammar.details(
      "With --scale-queue the number of replicas is one for each --scale-per-replica waiting jobs, within "
      "--min and --max: more at once, fewer after --scale-down-after.");
  grammar.details(
      "Prints the name. The service has a record, a held job that never starts; to cancel that is to delete "
      "the service.");
  grammar.example("gpu-cli service create chat --replicas 2 --gpus 1 -- ./serve.sh",
                  "two servers with one GPU each");
  grammar.example("gpu-cli service create web --ready-probe tcp -- ./serve.sh",
                  "a server with a port, ready once it listens there");
  return [service, &grammar](Session& session) {
    return submit_record(session, *service, grammar, 1, service->name + "\n");
  };
}

Action define_service_rollout(Grammar& grammar) {
  const auto service = std::make_shared<ServiceOptions>();
  declare_service(grammar, *service);
  grammar.details(
      "The replicas are replaced one by one: an old one is ended when the new one of its number is ready. "
      "That takes room for one replica more. While a new one does not get ready, the others stay as they "
      "are; roll out what was there before to go back. Number of replicas, restart policy, --ready-after, "
      "port, probe, --rollout-deadline and queue stay as they are unless they are given; all other options "
      "are those of this command alone.");
  grammar.details(
      "A rollout that makes no progress for longer than --rollout-deadline is shown as stalled, with the "
      "reason. It goes on as soon as the replica that it waits for is ready.");
  return [service, &grammar](Session& session) { return roll_out(session, *service, grammar); };
}

Action define_service_list(Grammar& grammar) {
  grammar.details("Sorted by tenant and name. READY counts the replicas that are ready, and those wanted.");
  return [](Session& session) { return list_services(session); };
}

Action define_service_get(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NAME", name.get(), "Name of the service, or its record");
  grammar.details("STARTS is when a replica that ended is started again, at the earliest.");
  return [name](Session& session) { return show_service(session, *name); };
}

namespace {

struct Scale {
  std::string name;
  int64_t replicas = -1;  ///< -1: not given.
  ScaleOptions options;
};

Result<std::string> scale_body(const Scale& scale) {
  const ScaleOptions& options = scale.options;
  if (const Result<Unit> checked = check_scaling(options); !checked) return checked.error();
  JsonObjectWriter body;
  if (scale.replicas >= 0) body.add("replicas", scale.replicas);
  if (options.none) body.add("scale_queue", std::string(kServiceNoQueue));
  if (!options.queue.empty()) body.add("scale_queue", options.queue);
  if (options.min) body.add("scale_min", *options.min);
  if (options.max) body.add("scale_max", *options.max);
  if (options.per_replica) body.add("scale_per_replica", *options.per_replica);
  if (!options.down_after.empty()) {
    const Result<int64_t> ms = scale_down_ms(options.down_after);
    if (!ms) return ms.error();
    body.add("scale_down_after_ms", *ms);
  }
  return body.text();
}

int scale_service(Session& session, const Scale& scale) {
  const Result<std::string> body = scale_body(scale);
  if (!body) return session.fail(kExitUsage, body.error().message, "usage");
  if (*body == "{}") {
    return session.fail(kExitUsage, "nothing to change; give N, or what the number of replicas follows",
                        "usage");
  }
  const Reply reply = session.send("POST", service_path(session, scale.name, "/scale"), *body);
  if (!reply) return session.fail(in_options(*reply.trouble));
  const std::string& queue = reply.json["scale_queue"].text();
  const std::string how_many = queue.empty() ? std::to_string(reply.json["replicas"].integer())
                                             : std::to_string(reply.json["scale_min"].integer()) + " to " +
                                                   std::to_string(reply.json["scale_max"].integer());
  return say(
      session, reply,
      scale.name + ": " + how_many + " replicas" + (queue.empty() ? "" : ", by jobs with " + queue) + "\n");
}

}  // namespace

Action define_service_scale(Grammar& grammar) {
  const auto scale = std::make_shared<Scale>();
  grammar.argument("NAME", &scale->name, "Name of the service, or its record");
  grammar.argument("N", &scale->replicas, "Number of replicas").optional();
  declare_scaling(grammar, scale->options);
  grammar.details("Replicas with the highest numbers are ended first.");
  grammar.details(
      "Without N: the queue that the number of replicas follows; what is not given stays. N is refused for a "
      "service that follows a queue, unless --no-scale ends that.");
  grammar.example("gpu-cli service scale llm --scale-queue task_type=llm --min 1 --max 8",
                  "a replica for each task that waits");
  return [scale](Session& session) { return scale_service(session, *scale); };
}

Action define_service_delete(Grammar& grammar) {
  const auto name = std::make_shared<std::string>();
  grammar.argument("NAME", name.get(), "Name of the service, or its record");
  grammar.details("Its replicas are cancelled; the service is listed as deleting until they have ended.");
  return [name](Session& session) {
    return say(session, session.send("DELETE", service_path(session, *name)), *name + " deleted\n");
  };
}

}  // namespace gpusched::cli
