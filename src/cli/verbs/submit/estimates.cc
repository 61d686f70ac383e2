#include "cli/verbs/submit/estimates.h"

#include <algorithm>
#include <iterator>

#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

std::string moment_text(const Json& value, Time now) {
  const Time time = parse_rfc3339(value.text());
  return time.valid() ? format_relative(time, now) + " (" + format_local(time) + ")" : "";
}

/// The words for the events that can end a wait.
struct EventWords {
  std::string_view event;
  std::string_view words;
};

constexpr EventWords kEvents[] = {
    {"JobEnded", "a job ends"},
    {"JobStarted", "a job starts"},
    {"JobReleased", "the job is released"},
    {"NodeAdded", "a node is added"},
    {"NodeBack", "a node comes back"},
    {"NodeLabeled", "a node gets the label"},
    {"NodeResumed", "a node is resumed"},
    {"DeviceHealthy", "a GPU is healthy again"},
    {"DeviceCooled", "a GPU cools down"},
    {"QuotaRaised", "the quota is raised"},
    {"WindowEnded", "the window of the GPU hours ends"},
    {"PoolChanged", "the pools are changed"},
    {"ReservationBegan", "the reservation begins"},
    {"ReservationEnded", "a reservation ends"},
    {"StartsResumed", "the cluster is resumed"},
    {"BackoffOver", "the pause before the next attempt ends"},
    {"BeginTime", "its begin time comes"},
};

/// ", by ending job-646 and 2 more"; empty: it starts without.
std::string ends_text(const Json& evidence) {
  const int64_t jobs = evidence["ends_jobs"].integer();
  if (jobs == 0) return "";
  const int64_t first = evidence["ends_job"].integer();
  return ", by ending " +
         (first == 0 ? std::string("a job of another tenant") : "job-" + std::to_string(first)) +
         (jobs == 1 ? "" : " and " + std::to_string(jobs - 1) + " more");
}

/// When the job starts, as a forecast says.
std::string estimate_text(const Json& estimate, Time now) {
  const std::string half = moment_text(estimate["p50"], now);
  const std::string later = moment_text(estimate["later_than"], now);
  if (half.empty()) return later.empty() ? "not known" : "later than " + later;
  const Time p50 = parse_rfc3339(estimate["p50"].text());
  std::string text = p50 > now ? "in about " + format_duration((p50.ns - now.ns) / 1'000'000'000) + " (" +
                                     format_local(p50) + ")"
                               : half;
  const Time p90 = parse_rfc3339(estimate["p90"].text());
  const Time latest = parse_rfc3339(estimate["at_latest"].text());
  if (latest.valid() && latest > p50) return text + ", " + format_relative(latest, now) + " at the latest";
  if (p90.valid() && p90 > p50) return text + ", " + format_relative(p90, now) + " in nine of ten cases";
  if (!p90.valid() && !later.empty()) return text + ", possibly later than " + later;
  return text;
}

}  // namespace

std::string start_text(const Json& answer, Time now) {
  const Json& estimate = answer["estimate"];
  if (answer["starts_now"].boolean()) return "now";
  if (has_no_start(answer)) {
    const auto& events = answer["lifted_by"].items();
    const bool by_nodes = std::ranges::all_of(events, [](const Json& event) {
      return event.text() == "NodeAdded" || event.text() == "NodeLabeled";
    });
    return by_nodes ? "never with the present nodes" : "not as long as nothing changes";
  }
  if (estimate["made_at"].text().empty()) {
    const std::string start = moment_text(answer["estimated_start"], now);
    return start.empty() ? "" : start + ", if running jobs end as expected";
  }
  return estimate_text(estimate, now) + ends_text(answer["evidence"]);
}

bool has_no_start(const Json& answer) {
  const Json& estimate = answer["estimate"];
  return estimate["stuck"].boolean() && estimate["p50"].text().empty() && !answer["starts_now"].boolean();
}

std::string event_words(std::string_view event) {
  const auto* const found = std::ranges::find(kEvents, event, &EventWords::event);
  return std::string(found == std::end(kEvents) ? event : found->words);
}

void add_outlook(const Json& answer, Record& record) {
  std::string help;
  for (const Json& event : answer["lifted_by"].items())
    help += (help.empty() ? "" : ", ") + event_words(event.text());
  record.add("Would help", help);
  std::string_view label = "Now with";
  for (const Json& change : answer["changes"].items()) {
    record.add(std::string(label), change["flags"].text() + " (on " + change["node_name"].text() + ")");
    label = "or";
  }
}

}  // namespace gpusched::cli
