#include "config/keys.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpusched {
namespace {

constexpr double kMillion = 1e6;
constexpr double kBillion = 1e9;
constexpr double kPortMax = 65'535;
constexpr double kWatchdogSecondsMax = 30.0 * 86'400;
constexpr std::string_view kWatchActions = "warn requeue cancel";

constexpr ConfigKey kKeys[] = {
    {.section = "",
     .name = "environment",
     .slot = [](Config& c) -> ConfigSlot { return &c.environment; },
     .meaning = "Name of the installation, such as development or production.",
     .effect = ConfigEffect::kNone},

    // What the scheduler decides by.
    {.section = "scheduler",
     .name = "max_queue_size",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.max_queue_size; },
     .meaning = "Maximum number of pending jobs; further ones are refused with 429.",
     .min = 1,
     .max = 100 * kMillion,
     .live = true},
    {.section = "scheduler",
     .name = "default_priority",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.default_priority; },
     .meaning = "Priority of a job that does not specify one.",
     .min = -kMillion,
     .max = kMillion},
    {.section = "scheduler",
     .name = "aging_per_hour",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.aging_per_hour; },
     .meaning = "Priority points that a pending job gains per hour, so that none waits forever.",
     .min = 0,
     .max = kMillion,
     .live = true},
    {.section = "scheduler",
     .name = "queue_order",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.queue_order; },
     .meaning = "Order of tenants; see [policies](../policies.md).",
     .one_of = "priority_aging fair_share fifo strict_priority cost_aware",
     .live = true},
    {.section = "scheduler",
     .name = "job_order",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.job_order; },
     .meaning = "Order of the jobs of one tenant; see [policies](../policies.md).",
     .one_of = "priority_aging deadline shortest least_attained",
     .live = true},
    {.section = "scheduler",
     .name = "attained_levels",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.attained_levels; },
     .meaning = "For `job_order: least_attained`: the GPU-seconds, in ascending order, at which a job falls "
                "to the next level.",
     .live = true},
    {.section = "scheduler",
     .name = "overtaking_hours",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.overtaking_hours; },
     .meaning = "Hours after which a pending job precedes those of its tenant that have waited less, "
                "whatever `job_order` says; 0: never. `priority_aging` accounts for waiting by itself.",
     .min = 0,
     .max = 24 * 366,
     .live = true},
    {.section = "scheduler",
     .name = "preempt_by_attained",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preempt_by_attained; },
     .meaning = "With `job_order: least_attained` and preemption: jobs of equal priority may be preempted by "
                "those of a lower level.",
     .live = true},
    {.section = "scheduler",
     .name = "interactive_gpus_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.interactive_gpus_max; },
     .meaning = "Maximum GPUs of an interactive job (`gpu-cli submit --now`).",
     .min = 0,
     .max = static_cast<double>(limits::kGpusPerJobMax),
     .live = true},
    {.section = "scheduler",
     .name = "interactive_minutes_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.interactive_minutes_max; },
     .meaning = "Maximum time limit of an interactive job in minutes; it must have one.",
     .min = 1,
     .max = 60 * 24 * 7,
     .live = true},
    {.section = "scheduler",
     .name = "interactive_wait_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.interactive_wait_seconds; },
     .meaning = "Seconds after which an interactive job that could not start fails; 0: interactive jobs are "
                "refused.",
     .min = 0,
     .max = static_cast<double>(limits::kInteractiveSecondsMax),
     .live = true},
    {.section = "scheduler",
     .name = "pool_online_percent",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.pool_online_percent; },
     .meaning =
         "Percentage of the GPUs in service for online work; if both percentages are 0 there are no pools.",
     .min = 0,
     .max = 100,
     .live = true},
    {.section = "scheduler",
     .name = "pool_batch_percent",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.pool_batch_percent; },
     .meaning = "Percentage for batch work; both together are at most 100.",
     .min = 0,
     .max = 100,
     .live = true},
    {.section = "scheduler",
     .name = "pool_mode",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.pool_mode; },
     .meaning = "Whether a pool may use idle GPUs of the other one until that reclaims them.",
     .one_of = "strict lending",
     .live = true},
    {.section = "scheduler",
     .name = "use_half_life_hours",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.use_half_life_hours; },
     .meaning = "Half-life, in hours, of a tenant's past usage in fair sharing.",
     .min = 1,
     .max = 24 * 366,
     .live = true},
    {.section = "scheduler",
     .name = "reservations",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.reservations; },
     .meaning = "Number of blocked jobs, from the head of the queue, whose start no later job may delay; 0: "
                "any job that fits starts.",
     .min = 0,
     .max = static_cast<double>(limits::kReservationsMax),
     .live = true},
    {.section = "scheduler",
     .name = "run_times",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.run_times; },
     .meaning = "Source of expected run times: learned from similar finished jobs, or always the time limit.",
     .one_of = "learned limits",
     .live = true},
    {.section = "scheduler",
     .name = "placement",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.placement; },
     .meaning = "Choice of a node: the fullest one that fits, or the one where the least is lost for the "
                "jobs that usually arrive; see [policies](../policies.md).",
     .one_of = "best_fit fgd least_value_lost",
     .live = true},
    {.section = "scheduler",
     .name = "specs_mb_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.specs_mb_max; },
     .meaning = "Maximum size, in MB, of the specifications of all jobs, including finished ones; beyond it "
                "submissions are refused with 429 and the oldest finished jobs are removed early. See [the "
                "limits of admission](../policies.md).",
     .min = 64,
     .max = kMillion},
    {.section = "scheduler",
     .name = "finished_jobs_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.finished_jobs_max; },
     .meaning = "Number of finished jobs that stay readable; the oldest are removed first.",
     .min = 0,
     .max = 100 * kMillion,
     .live = true},
    {.section = "scheduler",
     .name = "finished_jobs_days",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.finished_jobs_days; },
     .meaning = "Number of days that a finished job stays readable.",
     .min = 0,
     .max = 3'650,
     .live = true},
    {.section = "scheduler",
     .name = "node_lease_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.node_lease_ms; },
     .meaning = "Milliseconds without a heartbeat after which a node is unreachable and gets no new jobs.",
     .min = 1'000,
     .max = 3'600'000},
    {.section = "scheduler",
     .name = "grace_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.grace_ms; },
     .meaning =
         "Milliseconds between SIGTERM and SIGKILL when a job is stopped; 0: each agent's own `--grace-ms`.",
     .min = 0,
     .max = 86'400'000},
    {.section = "scheduler",
     .name = "drain_limit_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.drain_limit_seconds; },
     .meaning = "Seconds that a released GPU may take to show no process and baseline memory; after that it "
                "is quarantined.",
     .min = 1,
     .max = 86'400,
     .live = true},
    {.section = "scheduler",
     .name = "auto_drain_percent",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.auto_drain_percent; },
     .meaning = "Nodes on which jobs of several tenants fail to start are drained automatically, up to this "
                "percentage of all nodes, at least one; 0: never.",
     .min = 0,
     .max = 100,
     .live = true},
    {.section = "scheduler",
     .name = "snapshot_mb",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.snapshot_mb; },
     .meaning = "MiB of journal after which a snapshot is written; bounds the duration of a restart.",
     .min = 1,
     .max = 1 << 20},
    {.section = "scheduler",
     .name = "clock_jump_max_hours",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.clock_jump_max_hours; },
     .meaning = "Maximum difference, in hours, between the wall clock and the newest time in the journal; "
                "beyond it the clock is ignored and time advances without it until an operator accepts it.",
     .min = 1,
     .max = 24 * 366},
    {.section = "scheduler",
     .name = "scheduling_interval_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.scheduling_interval_ms; },
     .meaning = "Planning starts immediately at each event, so there is no interval to set.",
     .min = 1,
     .max = 3'600'000,
     .effect = ConfigEffect::kNone},
    {.section = "scheduler",
     .name = "enable_preemption",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.enable_preemption; },
     .meaning = "Whether a job of a tenant with can_preempt_others may preempt a running job of a tenant "
                "with allow_preemption."},
    {.section = "scheduler",
     .name = "preemption_protection_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preemption_protection_seconds; },
     .meaning = "Seconds after its start during which a job is not preempted.",
     .min = 0,
     .max = 31'536'000},
    {.section = "scheduler",
     .name = "preemption_wait_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preemption_wait_seconds; },
     .meaning = "A job that is expected to start within this many seconds preempts no other.",
     .min = 0,
     .max = 31'536'000},
    {.section = "scheduler",
     .name = "preemptions_per_job_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preemptions_per_job_max; },
     .meaning = "Maximum number of preemptions of one job.",
     .min = 0,
     .max = 1'000'000},
    {.section = "scheduler",
     .name = "preempt_grace_max_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preempt_grace_max_seconds; },
     .meaning = "Maximum grace period, in seconds, that a job may request between the notice of its "
                "preemption and its end (`--preempt-grace`); 0: none.",
     .min = 0,
     .max = static_cast<double>(limits::kPreemptGraceSecondsMax)},
    {.section = "scheduler",
     .name = "moves",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.moves; },
     .meaning = "What to do about free but scattered GPUs: `off`: nothing; `propose`: `gpu-cli moves` shows "
                "which running jobs could continue elsewhere; `act`: the scheduler moves them itself, within "
                "the limits of the next three keys. See [moves](moves.md).",
     .one_of = "off propose act"},
    {.section = "scheduler",
     .name = "moves_price_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.moves_price_max; },
     .meaning = "With `moves: act`: maximum GPU-seconds of unsaved work lost per GPU that starts.",
     .min = 0,
     .max = 31'536'000},
    {.section = "scheduler",
     .name = "moves_per_hour_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.moves_per_hour_max; },
     .meaning = "With `moves: act`: maximum number of jobs moved within any hour.",
     .min = 0,
     .max = 10'000},
    {.section = "scheduler",
     .name = "moves_rest_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.moves_rest_seconds; },
     .meaning = "Seconds after a move or preemption during which a job is not moved again.",
     .min = 0,
     .max = 31'536'000},
    {.section = "scheduler",
     .name = "preempt_webhook_url",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preempt_webhook_url; },
     .meaning = "`http://` URL that is notified of each preemption; empty: none."},
    {.section = "scheduler",
     .name = "preempt_webhook_hosts",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.preempt_webhook_hosts; },
     .meaning =
         "Hosts, as `host` or `host:port`, whose URLs jobs may use with `--preempt-webhook`; empty: none."},
    {.section = "scheduler",
     .name = "enable_gang_scheduling",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.enable_gang_scheduling; },
     .meaning = "Whether a job may run on several nodes; see [gangs](../policies.md#gangs)."},
    {.section = "scheduler",
     .name = "rack_label",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.rack_label; },
     .meaning = "Node label that holds the rack, for [gangs](../policies.md#gangs).",
     .live = true},
    {.section = "scheduler",
     .name = "block_label",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.block_label; },
     .meaning = "Node label that holds the block of racks.",
     .live = true},
    {.section = "scheduler",
     .name = "zone_label",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.zone_label; },
     .meaning = "Node label that holds the zone.",
     .live = true},
    {.section = "scheduler",
     .name = "enable_thermal_aware",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.enable_thermal_aware; },
     .meaning = "Whether a hot GPU gets no new jobs until it has cooled; running jobs continue. See "
                "[heat](../reference/heat.md)."},
    {.section = "scheduler",
     .name = "thermal_threshold",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.thermal_threshold; },
     .meaning = "Temperature, in degrees Celsius, above which a GPU is hot; 0: never. `auto`: each GPU's own "
                "slowdown limit less `thermal_auto_margin`, or 75 if its driver does not report the limit.",
     .min = 0,
     .max = 200,
     .automatic = -1},
    {.section = "scheduler",
     .name = "thermal_hysteresis",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.thermal_hysteresis; },
     .meaning = "Degrees below the threshold at which a hot GPU counts as cooled.",
     .min = 0,
     .max = 100},
    {.section = "scheduler",
     .name = "thermal_readings",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.thermal_readings; },
     .meaning = "Consecutive readings, one per heartbeat, that must agree before a GPU counts as hot or as "
                "cooled, so that a spike has no effect.",
     .min = 1,
     .max = 1000},
    {.section = "scheduler",
     .name = "thermal_auto_margin",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.thermal_auto_margin; },
     .meaning = "With `thermal_threshold: auto`: degrees below its own slowdown limit at which a GPU is hot.",
     .min = 0,
     .max = 100},
    {.section = "scheduler",
     .name = "watchdog_idle_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_idle_seconds; },
     .meaning = "Idle time of its GPUs, in seconds, after which a running job gets a warning; 0: never. See "
                "[GPU health](gpu-health.md#watchdogs).",
     .min = 0,
     .max = kWatchdogSecondsMax},
    {.section = "scheduler",
     .name = "watchdog_idle_action",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_idle_action; },
     .meaning = "What else is done with such a job: nothing, requeue it, or cancel it.",
     .one_of = kWatchActions},
    {.section = "scheduler",
     .name = "watchdog_hung_seconds",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_hung_seconds; },
     .meaning = "Time, in seconds, of fully busy GPUs without output after which a running job gets a "
                "warning; 0: never.",
     .min = 0,
     .max = kWatchdogSecondsMax},
    {.section = "scheduler",
     .name = "watchdog_hung_action",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_hung_action; },
     .meaning = "What else is done with such a job.",
     .one_of = kWatchActions},
    {.section = "scheduler",
     .name = "watchdog_seconds_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_seconds_max; },
     .meaning = "Maximum of these two times, in seconds, that a job may request for itself; 0: no more than "
                "the configured ones.",
     .min = 0,
     .max = kWatchdogSecondsMax},
    {.section = "scheduler",
     .name = "watchdog_may_soften",
     .slot = [](Config& c) -> ConfigSlot { return &c.scheduler.watchdog_may_soften; },
     .meaning = "Whether a job may request a milder action than the configured one."},

    // Who may submit how much.
    {.section = "admission",
     .name = "soft_queue",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.soft_queue; },
     .meaning = "Number of pending jobs above which each user's submissions are throttled and the others get "
                "429; 0: never.",
     .min = 0,
     .max = 100 * kMillion,
     .live = true},
    {.section = "admission",
     .name = "throttled_rate",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.throttled_rate; },
     .meaning = "Jobs per second that each user may submit while more than `soft_queue` jobs are pending.",
     .min = 0.001,
     .max = kMillion,
     .live = true},
    {.section = "admission",
     .name = "user_rate",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.user_rate; },
     .meaning = "Tokens per second that each user's bucket gains; a job costs one token, or the number in "
                "`task_costs`; 0: no bucket.",
     .min = 0,
     .max = kMillion,
     .live = true},
    {.section = "admission",
     .name = "user_burst",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.user_burst; },
     .meaning = "Capacity of a bucket in tokens: what a user may submit at once.",
     .min = 1,
     .max = kBillion,
     .live = true},
    {.section = "admission",
     .name = "user_daily",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.user_daily; },
     .meaning = "Tokens that a user may spend in a day (UTC); 0: no limit.",
     .min = 0,
     .max = 1'000 * kBillion,
     .live = true},
    {.section = "admission",
     .name = "task_costs",
     .slot = [](Config& c) -> ConfigSlot { return &c.admission.task_costs; },
     .meaning = "Cost of a job by its label `task_type`, as `type=tokens`; jobs of other types, or of none, "
                "cost one token.",
     .live = true},
    {.section = "journal",
     .name = "segment_mb",
     .slot = [](Config& c) -> ConfigSlot { return &c.journal.segment_mb; },
     .meaning = "Size of one journal file in MiB. Each is filled with zeros before it is used, so that a "
                "full disk shows then and not at a commit.",
     .min = 16,
     .max = 4'096},

    {.section = "api",
     .name = "address",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.address; },
     .meaning = "Address on which HTTP, gRPC and metrics listen. With any address but loopback, every call "
                "needs the token of `DATA_DIR/token`."},
    {.section = "api",
     .name = "http_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.http_port; },
     .meaning = "Port of the REST API; 0: any free port, written to `DATA_DIR/ports.json`.",
     .min = 0,
     .max = kPortMax},
    {.section = "api",
     .name = "grpc_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.grpc_port; },
     .meaning = "Port of the gRPC API and of the agents; 0: any free port, written to `DATA_DIR/ports.json`.",
     .min = 0,
     .max = kPortMax},
    {.section = "api",
     .name = "cors_enabled",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.cors_enabled; },
     .meaning = "Whether web pages of other origins may call the REST API."},
    {.section = "api",
     .name = "cors_origins",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.cors_origins; },
     .meaning = "Allowed origins, such as `https://dashboard.example`. `*`: any origin; for calls without "
                "the token any origin of this machine; not allowed if `address` is not loopback."},
    {.section = "api",
     .name = "token_required",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.token_required; },
     .meaning = "Whether calls need the token on loopback, too. If not, callers without a token have the "
                "rights of [anonymous callers](rest.md#who-calls)."},
    {.section = "api",
     .name = "anonymous_priority_tier",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.anonymous_priority_tier; },
     .meaning = "Highest `priority_tier` that callers without a credential may give a tenant. With `medium`, "
                "the default of all tenants, they precede nobody; existing clients ask for `high`.",
     .one_of = "low medium high critical"},
    {.section = "api",
     .name = "host_names",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.host_names; },
     .meaning =
         "Additional names in the Host header for which callers without the token are answered, besides "
         "those of loopback. Requests for other names may come from a foreign web page in a browser."},
    {.section = "api",
     .name = "copy_bytes_max",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.copy_bytes_max; },
     .meaning = "Maximum size, in bytes, of a file that `gpu-cli cp` copies out of a job.",
     .min = 0,
     .max = kBillion * 1'000},
    {.section = "api",
     .name = "rate_limit_rps",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.rate_limit_rps; },
     .meaning = "Maximum requests per second of one client address, with a burst of one second's worth; more "
                "get 429. 0: no limit.",
     .min = 0,
     .max = kBillion},
    {.section = "api",
     .name = "enable_tls",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.enable_tls; },
     .meaning = "Whether the APIs are encrypted.",
     .effect = ConfigEffect::kNotYetTrue},
    {.section = "api",
     .name = "tls_cert_path",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.tls_cert_path; },
     .meaning = "Certificate file (PEM).",
     .effect = ConfigEffect::kNone},
    {.section = "api",
     .name = "tls_key_path",
     .slot = [](Config& c) -> ConfigSlot { return &c.api.tls_key_path; },
     .meaning = "Private key file (PEM).",
     .effect = ConfigEffect::kNone},

    {.section = "metrics",
     .name = "enabled",
     .slot = [](Config& c) -> ConfigSlot { return &c.metrics.enabled; },
     .meaning = "Whether Prometheus metrics are served."},
    {.section = "metrics",
     .name = "port",
     .slot = [](Config& c) -> ConfigSlot { return &c.metrics.port; },
     .meaning = "Port of the metrics; 0: any free port, written to `DATA_DIR/ports.json`.",
     .min = 0,
     .max = kPortMax},
    {.section = "metrics",
     .name = "path",
     .slot = [](Config& c) -> ConfigSlot { return &c.metrics.path; },
     .meaning = "Path of the metrics."},
    {.section = "metrics",
     .name = "namespace",
     .slot = [](Config& c) -> ConfigSlot { return &c.metrics.name_space; },
     .meaning = "Prefix of every metric's name."},

    {.section = "log",
     .name = "level",
     .slot = [](Config& c) -> ConfigSlot { return &c.log.level; },
     .meaning = "Minimum level of the lines that are written.",
     .one_of = "debug info warning error",
     .live = true},
    {.section = "log",
     .name = "path",
     .slot = [](Config& c) -> ConfigSlot { return &c.log.path; },
     .meaning = "File to which JSON lines are appended; empty: standard error.",
     .live = true},

    {.section = "agent",
     .name = "node_id",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.node_id; },
     .meaning = "Name of a node. The scheduler does not need it; `gpu-agent` reads it from the environment.",
     .effect = ConfigEffect::kNone},
    {.section = "agent",
     .name = "heartbeat_interval_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.heartbeat_interval_ms; },
     .meaning = "Milliseconds between heartbeats of an agent, at most a third of `scheduler.node_lease_ms`. "
                "If not given, it is lowered to that third where needed.",
     .min = 100,
     .max = 300'000},
    {.section = "agent",
     .name = "metrics_interval_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.metrics_interval_ms; },
     .meaning = "Telemetry is sent with each heartbeat, so there is no interval to set.",
     .min = 100,
     .max = 600'000,
     .effect = ConfigEffect::kNone},
    {.section = "agent",
     .name = "accept_old_handshake",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.accept_old_handshake; },
     .meaning = "Whether agents of version 0.1.0 and before may prove the token in their way, during an "
                "upgrade. Anyone who connects then receives a proof against which tokens can be tried, and "
                "all calls need the token: such agents cannot tell jobs of anonymous callers from others."},
    {.section = "agent",
     .name = "health_check_interval_ms",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.health_check_interval_ms; },
     .meaning =
         "Milliseconds between checks of a node. The scheduler does not need it; `gpu-agent` reads it from "
         "the environment.",
     .min = 1,
     .max = 86'400'000,
     .effect = ConfigEffect::kNone},
    {.section = "agent",
     .name = "dcgm_enabled",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.dcgm_enabled; },
     .meaning = "Whether telemetry comes from DCGM.",
     .effect = ConfigEffect::kNone},
    {.section = "agent",
     .name = "dcgm_host_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.dcgm_host_port; },
     .meaning = "Address of DCGM.",
     .effect = ConfigEffect::kNone},
    {.section = "agent",
     .name = "container_runtime",
     .slot = [](Config& c) -> ConfigSlot { return &c.agent.container_runtime; },
     .meaning =
         "Container runtime that runs a job's image. The scheduler does not need it; `gpu-agent` reads "
         "it from the environment.",
     .effect = ConfigEffect::kNone},

    {.section = "database",
     .name = "host",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.host; },
     .meaning = "PostgreSQL server.",
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "port",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.port; },
     .meaning = "Its port.",
     .min = 0,
     .max = kPortMax,
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "user",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.user; },
     .meaning = "Its user.",
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "password",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.password; },
     .meaning = "Its password.",
     .secret = true,
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "database",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.database; },
     .meaning = "Its database.",
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "sslmode",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.sslmode; },
     .meaning = "How its connection is encrypted.",
     .one_of = "disable allow prefer require verify-ca verify-full",
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "max_open_conns",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.max_open_conns; },
     .meaning = "Maximum number of connections.",
     .min = 0,
     .max = 10'000,
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "max_idle_conns",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.max_idle_conns; },
     .meaning = "Maximum number of idle connections.",
     .min = 0,
     .max = 10'000,
     .effect = ConfigEffect::kNone},
    {.section = "database",
     .name = "conn_max_lifetime_mins",
     .slot = [](Config& c) -> ConfigSlot { return &c.database.conn_max_lifetime_mins; },
     .meaning = "Maximum age of a connection in minutes.",
     .min = 0,
     .max = 1'000'000,
     .effect = ConfigEffect::kNone},

    {.section = "redis",
     .name = "host",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.host; },
     .meaning = "Redis server.",
     .effect = ConfigEffect::kNone},
    {.section = "redis",
     .name = "port",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.port; },
     .meaning = "Its port.",
     .min = 0,
     .max = kPortMax,
     .effect = ConfigEffect::kNone},
    {.section = "redis",
     .name = "password",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.password; },
     .meaning = "Its password.",
     .secret = true,
     .effect = ConfigEffect::kNone},
    {.section = "redis",
     .name = "db",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.db; },
     .meaning = "Its database number.",
     .min = 0,
     .max = 1'000'000,
     .effect = ConfigEffect::kNone},
    {.section = "redis",
     .name = "pool_size",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.pool_size; },
     .meaning = "Maximum number of connections.",
     .min = 0,
     .max = 10'000,
     .effect = ConfigEffect::kNone},
    {.section = "redis",
     .name = "min_idle_conns",
     .slot = [](Config& c) -> ConfigSlot { return &c.redis.min_idle_conns; },
     .meaning = "Minimum number of idle connections.",
     .min = 0,
     .max = 10'000,
     .effect = ConfigEffect::kNone},

    {.section = "telemetry",
     .name = "tracing_enabled",
     .slot = [](Config& c) -> ConfigSlot { return &c.telemetry.tracing_enabled; },
     .meaning = "Whether traces are sent to Jaeger.",
     .effect = ConfigEffect::kNone},
    {.section = "telemetry",
     .name = "jaeger_endpoint",
     .slot = [](Config& c) -> ConfigSlot { return &c.telemetry.jaeger_endpoint; },
     .meaning = "URL of the Jaeger collector.",
     .effect = ConfigEffect::kNone},
    {.section = "telemetry",
     .name = "profiling_enabled",
     .slot = [](Config& c) -> ConfigSlot { return &c.telemetry.profiling_enabled; },
     .meaning = "Whether profiles are served.",
     .effect = ConfigEffect::kNone},
    {.section = "telemetry",
     .name = "profiling_port",
     .slot = [](Config& c) -> ConfigSlot { return &c.telemetry.profiling_port; },
     .meaning = "Port of the profiles.",
     .min = 0,
     .max = kPortMax,
     .effect = ConfigEffect::kNone},

    {.section = "kubernetes",
     .name = "in_cluster",
     .slot = [](Config& c) -> ConfigSlot { return &c.kubernetes.in_cluster; },
     .meaning = "Whether the scheduler runs in the cluster that it serves.",
     .effect = ConfigEffect::kNone},
    {.section = "kubernetes",
     .name = "kubeconfig_path",
     .slot = [](Config& c) -> ConfigSlot { return &c.kubernetes.kubeconfig_path; },
     .meaning = "Configuration file of the cluster's client.",
     .effect = ConfigEffect::kNone},
    {.section = "kubernetes",
     .name = "namespace",
     .slot = [](Config& c) -> ConfigSlot { return &c.kubernetes.name_space; },
     .meaning = "Namespace of the scheduler's own objects.",
     .effect = ConfigEffect::kNone},
};

std::string number_text(double value) {
  std::array<char, 64> digits;
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  CHECK(error == std::errc{});
  return {digits.data(), end};
}

/// A double-quoted YAML scalar.
std::string quoted(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct TextOf {
  std::optional<double> automatic;

  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const {
    return automatic && *value == *automatic ? "auto" : number_text(*value);
  }
  std::string operator()(const std::string* value) const { return quoted(*value); }
  std::string operator()(const std::vector<std::string>* value) const {
    std::string out = "[";
    for (const std::string& item : *value) {
      if (out.size() > 1) out += ", ";
      out += quoted(item);
    }
    return out + "]";
  }
};

}  // namespace

std::string ConfigKey::full_name() const {
  return section.empty() ? std::string(name) : std::string(section) + "." + std::string(name);
}

std::string ConfigKey::environment() const {
  std::string out(kConfigEnvironmentPrefix);
  for (const char c : full_name()) {
    out += c == '.' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

std::string ConfigKey::expectation() const {
  Config scratch;
  const ConfigSlot value = slot(scratch);
  const std::string range = " from " + number_text(min) + " to " + number_text(max);
  if (std::holds_alternative<bool*>(value)) return "true or false";
  if (std::holds_alternative<int64_t*>(value)) return "an integer" + range;
  if (std::holds_alternative<double*>(value)) return "a number" + range + (automatic ? ", or auto" : "");
  if (std::holds_alternative<std::string*>(value)) {
    if (one_of.empty()) return "a string";
    std::string out = "one of ";
    for (const char c : one_of) out += c == ' ' ? std::string(", ") : std::string(1, c);
    return out;
  }
  return "a list of strings";
}

std::span<const ConfigKey> config_keys() { return kKeys; }

const ConfigKey* find_config_key(std::string_view section, std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kKeys, [&](const ConfigKey& key) { return key.section == section && key.name == name; });
  return found == std::end(kKeys) ? nullptr : found;
}

bool is_config_section(std::string_view section) {
  return !section.empty() &&
         std::ranges::any_of(kKeys, [&](const ConfigKey& key) { return key.section == section; });
}

std::vector<ConfigChange> config_changes(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : kKeys) {
    std::string old_text = config_value_text(key, before);
    std::string new_text = config_value_text(key, after);
    if (old_text == new_text) continue;
    if (key.secret) {
      // Whether there is one may be known, and that it changed.
      for (std::string* text : {&old_text, &new_text}) {
        if (*text != "\"\"") *text = kConfigMask;
      }
    }
    changes.push_back({.key = &key, .before = std::move(old_text), .after = std::move(new_text)});
  }
  return changes;
}

size_t edit_distance(std::string_view from, std::string_view to) {
  // Three rows of the table are enough: a swap looks two rows back.
  std::vector<size_t> before_last(to.size() + 1);
  std::vector<size_t> last(to.size() + 1);
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j <= to.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[to.size()];
}

const ConfigKey* nearest_config_key(std::string_view section, std::string_view name) {
  // The right name in the wrong section is nearer than any misspelling.
  for (const ConfigKey& key : kKeys) {
    if (key.name == name && !key.section.empty() &&
        (section.empty() || edit_distance(section, key.section) <= 2))
      return &key;
  }
  const ConfigKey* best = nullptr;
  size_t best_distance = 0;
  for (const ConfigKey& key : kKeys) {
    const size_t distance = edit_distance(section, key.section) + edit_distance(name, key.name);
    if (best == nullptr || distance < best_distance) {
      best = &key;
      best_distance = distance;
    }
  }
  const size_t limit = std::max<size_t>(2, (section.size() + name.size()) / 3);
  if (best_distance <= limit) return best;
  for (const ConfigKey& key : kKeys) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::string config_value_text(const ConfigKey& key, const Config& config) {
  Config copy = config;  // A slot points into a Config that may be changed.
  return std::visit([&](const auto* value) { return TextOf{key.automatic}(value); }, key.slot(copy));
}

}  // namespace gpusched
