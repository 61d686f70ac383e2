#include "api/views/job_history.h"

#include <algorithm>

#include "api/contract/names.h"
#include "api/views/job_sentences.h"
#include "api/views/usage_view.h"
#include "base/utf8.h"

namespace gpusched::api {
namespace {

std::string placed_sentence(const State& state, const JobHistoryEntry& entry) {
  const Node* node = state.find_node(entry.node);
  std::string text =
      "placed on " + (node == nullptr ? std::string("a node that was removed") : "node " + node->name);
  if (entry.members > 1)
    text += ", with " + std::to_string(entry.members - 1) + " more " +
            (entry.members == 2 ? "member" : "members");
  return text;
}

std::string ended_sentence(const JobHistoryEntry& entry) {
  std::string text = end_sentence(entry.cause, entry.exit_code, entry.signal, entry.detail);
  if (entry.cause == EndCause::kExited && entry.exit_code == 0) text = "its command completed successfully";
  const std::string used = usage_sentence(usage_view(entry.usage));
  return used.empty() ? text : text + " (" + used + ")";
}

std::string finished_sentence(const JobHistoryEntry& entry) {
  std::string text(to_string(entry.state));
  if (entry.state != JobState::kCompleted && entry.reason != JobReason::kCancelled)
    text += " (" + std::string(to_string(entry.reason)) + ")";
  return text;
}

std::string asked(const std::string& what, const JobHistoryEntry& entry, bool of_array) {
  return what + (of_array ? " of its array" : "") + " was requested by " +
         (entry.by.empty() ? "an unknown caller" : entry.by);
}

std::string sentence_of(const State& state, const JobHistoryEntry& entry, bool of_array) {
  switch (entry.step) {
    case JobStep::kPlaced:
      return placed_sentence(state, entry);
    case JobStep::kStarted:
      return "started";
    case JobStep::kEnded:
      return ended_sentence(entry);
    case JobStep::kAbandoned:
      return "its node does not respond; the job continues without this attempt";
    case JobStep::kRequeued:
      return "waits again";
    case JobStep::kPreempted:
      return "was preempted by another job, and waits again";
    case JobStep::kHeldByFailure:
      return "waits again, and is held until it is released";
    case JobStep::kFinished:
      return finished_sentence(entry);
    case JobStep::kCancelAsked:
      return asked("cancellation", entry, of_array);
    case JobStep::kHoldAsked:
      return asked("hold", entry, of_array);
    case JobStep::kReleaseAsked:
      return asked("release", entry, of_array);
    case JobStep::kRequeueAsked:
      return asked("requeue", entry, of_array);
    case JobStep::kChangeAsked:
      return asked("a change", entry, of_array);
  }
  return {};
}

HistoryLine line_of(const State& state, const JobHistoryEntry& entry, bool of_array) {
  HistoryLine line{.at = entry.at,
                   .event = std::string(to_string(entry.step)),
                   .message = utf8_cleaned(sentence_of(state, entry, of_array)),
                   .attempt = entry.attempt,
                   .node = {},
                   .members = entry.members,
                   .exit_code = entry.exit_code,
                   .signal = entry.signal,
                   .by = utf8_cleaned(entry.by)};
  if (entry.step == JobStep::kEnded) {
    line.cause = to_string(entry.cause);
    line.usage = usage_view(entry.usage);
  }
  if (const Node* node = state.find_node(entry.node)) line.node = node->name;
  return line;
}

}  // namespace

HistoryView history_of(const State& state, const Job& job) {
  HistoryView out{.id = job.id, .dropped = 0, .lines = {}};
  const std::string by = utf8_cleaned(job.submitted_by.view());
  out.lines.push_back({.at = job.submitted_at,
                       .event = "submitted",
                       .message = by.empty() ? "submitted" : "submitted by " + by,
                       .by = by});
  const JobHistory history = job.timeline();
  out.dropped = history.dropped;
  for (const JobHistoryEntry& entry : history.entries) out.lines.push_back(line_of(state, entry, false));
  const Job* array = job.is_element() ? state.jobs.find(job.array) : nullptr;
  if (array == nullptr) return out;
  for (const JobHistoryEntry& entry : array->timeline().entries) {
    if (is_asked(entry.step)) out.lines.push_back(line_of(state, entry, true));
  }
  // Entries are kept by the millisecond, the submission by the nanosecond: it stays first.
  std::stable_sort(out.lines.begin() + 1, out.lines.end(),
                   [](const HistoryLine& a, const HistoryLine& b) { return a.at < b.at; });
  return out;
}

}  // namespace gpusched::api
