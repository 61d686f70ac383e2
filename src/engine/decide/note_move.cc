#include "engine/decide/note_move.h"

#include <string>

#include "base/check.h"

namespace gpusched {
namespace {

std::string names_of(const std::vector<Preemption>& jobs) {
  std::string names;
  for (const Preemption& one : jobs)
    names += (names.empty() ? "job-" : ", job-") + std::to_string(one.job.value);
  return names;
}

/// As versions before feature level 7 kept a move: as the sentence that they showed.
std::string move_sentence(const Promise& promise, const Node* from, const Node& to) {
  std::string text;
  if (promise.moves) {
    text = "moved from node " + (from == nullptr ? std::string("?") : from->name) + " to node " + to.name +
           " so that job-" + std::to_string(promise.moved_for.value) + " can start";
  } else {
    text = names_of(promise.victims) + " moved away from node " + to.name + " for it";
  }
  text += ", by " + promise.moved_by;
  if (!promise.moved_why.empty()) text += ": " + promise.moved_why;
  return text;
}

}  // namespace

void note_move(State& state, const Promise& promise) {
  Job& job = state.job_at(promise.job);
  const Node& to = state.node_at(promise.members.front().node);
  const Node* from = state.find_node(job.node);  // It may have been removed since.
  job.moved_at = promise.since;
  if (state.config.feature_level < 7) {
    job.move_detail = Blob(move_sentence(promise, from, to));
    return;
  }
  MoveRecord record{.moved = promise.moves,
                    .from = promise.moves && from != nullptr ? from->name : std::string(),
                    .to = to.name,
                    .others = {},
                    .by = promise.moved_by,
                    .why = promise.moved_why};
  if (promise.moves) record.others.push_back(promise.moved_for);
  for (const Preemption& victim : promise.victims) record.others.push_back(victim.job);
  job.set_move_record(record);
}

}  // namespace gpusched
