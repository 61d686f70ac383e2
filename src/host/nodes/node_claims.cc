// Who may speak for a node, and for what was placed on it.
#include "base/limits.h"
#include "host/nodes/node_hub.h"

namespace gpusched {
namespace {

/// A connected agent that was silent for so many heartbeats may have been followed by another one.
constexpr int64_t kRivalBeats = 2;

}  // namespace

void name_cluster(const State& state, Time wall, std::string drawn, EngineConfig& config) {
  const bool begins = state.last.sequence < kFirstSequence;
  config.cluster = state.config.cluster.empty() ? std::move(drawn) : state.config.cluster;
  config.cluster_since = state.config.cluster_since;
  if (begins) config.cluster_since = wall;
}

std::string NodeHub::problem_of_cluster(const v1::Register& message) const {
  const std::string& ours = hooks_.state().config.cluster;
  if (message.cluster().empty() || ours.empty() || message.cluster() == ours) return {};
  return "this node belongs to the cluster " + message.cluster().substr(0, limits::kLabelBytesMax) +
         ", and this scheduler is that of " + ours +
         "; point the agent at its own scheduler, or, if that one's data is lost for good, remove the line "
         "'cluster' of the file identity in the agent's data folder and restart the agent: its jobs run on";
}

/// Placed before this journal began: whoever placed it may want it still.
bool NodeHub::is_foreign(const v1::AttemptOnNode& known) const {
  const Time since = hooks_.state().config.cluster_since;
  return !known.ended() && since.valid() && known.placed_at_ns() > 0 && known.placed_at_ns() < since.ns;
}

/// An operator wants the device back in service: what another scheduler left there ends now.
void NodeHub::take_back(NodeId node, uint32_t slot) {
  Session* session = session_of(node);
  if (session == nullptr) return;
  for (const Session::Foreign& foreign : session->foreign) {
    if (((foreign.slots >> slot) & 1) != 0)
      order_stop(*session, foreign.key, foreign.placed_at, StopReason::kAbandoned);
  }
  v1::SchedulerMessage check;
  ask_release(*session, slot, {}, check);
  if (check.has_check_release()) session->peer->send(check);
}

// Of an agent that was killed the stream ends with it, or falls silent for longer than a few heartbeats.
bool NodeHub::has_rival(const v1::Register& message) {
  const Node* node = hooks_.state().find_node_named(message.node_name());
  // Of another folder's agent the engine says better why it is refused.
  if (node == nullptr || message.process() == 0 || node->instance != message.instance()) return false;
  const Session* present = session_of(node->id);
  if (present == nullptr || present->process == 0 || present->process == message.process()) return false;
  return hooks_.monotonic() - heard_at_[node->id] < heartbeat_ * kRivalBeats;
}

bool NodeHub::is_of_another_node(const AttemptEnded& ended) const {
  const Attempt* attempt = hooks_.state().find_attempt(ended.job, ended.attempt);
  if (attempt == nullptr || ended.member >= attempt->members.size()) return false;
  if (!attempt->was_placed(ended.placed_at)) return false;
  const Member& member = attempt->members[ended.member];
  return member.node != ended.node && member.state != MemberState::kEnded;
}

}  // namespace gpusched
