// A warning at submission: no registered node could ever run the job.
#include <algorithm>
#include <string>

#include "cli/commands.h"
#include "cli/terminal/text.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

constexpr int kLooksMax = 5;  // Until the planner has looked at the job.
constexpr Duration kPause = milliseconds(20);

/// The refusal that the same submission would get with --require-feasible, without its remedy; empty: none.
std::string refusal_of(Session& session, const std::string& body) {
  const std::size_t end = body.rfind('}');
  if (end == std::string::npos) return "";
  const Reply plan = session.send("POST", "/jobs:plan", body.substr(0, end) + R"(,"require_feasible":true})");
  if (plan) return "";
  const std::string& code = plan.trouble->code;
  if (code != "infeasible" && code != "image_unsupported") return "";
  return plan.trouble->sentence.substr(0, plan.trouble->sentence.rfind(';'));
}

}  // namespace

void warn_if_never(Session& session, const std::string& job, const std::string& body, bool waits) {
  Reply record = poll_job(session, job, Duration{});
  const auto unseen = [&record] {
    return record && record.json["state"].text() == "pending" && record.json["reason"].text() == "queued";
  };
  for (int looks = 1; unseen() && looks < kLooksMax; ++looks) {
    session.io().pause(kPause);
    record = poll_job(session, job, Duration{});
  }
  if (!record || record.json["state"].text() != "pending") return;
  const std::string reason = record.json["reason"].text();
  std::string sentence = record.json["message"].text();
  const auto warn = [&](const std::string& what) {
    session.io().err("gpu-cli: warning: " + printable(job + ": " + what) + "\n");
  };
  if (reason == "no_node" && !waits) return warn(sentence);
  const bool known = never_starts(record.json);
  // The planner does not look at these, or has not yet, and so does not know.
  constexpr std::string_view kUnseen[] = {"queued", "held", "begin", "dependency", "array", "paused"};
  if (!known && std::ranges::find(kUnseen, reason) == std::end(kUnseen)) return;
  const std::string refusal = refusal_of(session, body);
  if (!refusal.empty()) sentence = refusal;
  if (known || !refusal.empty())
    warn(sentence + "; it waits until one can; to end it: gpu-cli cancel " + job);
}

}  // namespace gpusched::cli
