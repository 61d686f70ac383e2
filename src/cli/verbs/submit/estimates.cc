#include "cli/verbs/submit/estimates.h"

#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

std::string moment_text(const Json& value, Time now) {
  const Time time = parse_rfc3339(value.text());
  return time.valid() ? format_relative(time, now) + " (" + format_local(time) + ")" : "";
}

}  // namespace

std::string estimate_text(const Json& estimate, Time now) {
  if (estimate["made_at"].text().empty()) return "";
  const std::string half = moment_text(estimate["p50"], now);
  const std::string most = moment_text(estimate["p90"], now);
  const std::string later = moment_text(estimate["later_than"], now);
  if (half.empty()) {
    if (estimate["stuck"].boolean()) return "never, as far as can be predicted; an operator has to act";
    return later.empty() ? "not known" : "later than " + later;
  }
  if (estimate["p50"].text() == estimate["p90"].text()) return half;
  return "median: " + half + "; " +
         (most.empty() ? "possibly later than " + later : "90th percentile: " + most);
}

namespace {

/// Nothing where it says no more than the estimate.
std::string latest_text(const Json& estimate, Time now) {
  const std::string latest = moment_text(estimate["at_latest"], now);
  if (latest.empty() || estimate["p50"].text() == estimate["at_latest"].text()) return "";
  return latest + ", if every job uses its full time limit";
}

}  // namespace

void add_outlook(const Json& answer, Time now, Record& record) {
  std::string evidence;
  for (const auto& [name, value] : answer["evidence"].members())
    evidence += (evidence.empty() ? "" : ", ") + name + "=" + std::to_string(value.integer());
  record.add("Evidence", evidence);
  record.add("Expected", estimate_text(answer["estimate"], now));
  record.add("At the latest", latest_text(answer["estimate"], now));
  if (answer["estimate"]["place"].integer() > 0 && !answer["starts_now"].boolean())
    record.add("Its turn", std::to_string(answer["estimate"]["place"].integer()));
  std::string_view label = "Now with";
  for (const Json& change : answer["changes"].items()) {
    record.add(std::string(label), change["flags"].text() + " (on " + change["node_name"].text() + ")");
    label = "or";
  }
}

}  // namespace gpusched::cli
