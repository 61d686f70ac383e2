#pragma once

#include <string>
#include <string_view>

#include "api/views/viewer.h"
#include "host/readers/observer.h"

/// Puts a job's state, its reason to wait and its moves into words, for a viewer.
namespace gpusched::api {

/// Names an attempt's end, without what its node said of it.
std::string end_sentence(EndCause cause, int32_t exit_code, int32_t signal);
/// The same with what its node said of it; where that tells all, it stands alone.
std::string end_sentence(EndCause cause, int32_t exit_code, int32_t signal, std::string_view detail);
/// The reason without what the viewer may not know.
WaitReason shown_to(const Viewer& viewer, const State& state, const WaitReason& reason);
/// Whether the node is past its lease, and nobody declared it dead.
bool is_silent(const Node& node);
/// The sentence on a job that was last known to run on a node that does not report since `heard`; not valid:
/// it is not known when that was.
std::string silence_of(const Node& node, const Job& job, Time heard);
/// Where it runs, or why it does not. `node`: of its last attempt; null: it has none.
std::string message_of(const Observer::View& view, const Job& job, const Node* node, const Viewer& viewer);
/// A sentence of the job's last move; empty: it was never moved, and no other for it.
std::string move_of(const State& state, const Job& job, const Viewer& viewer);
/// For a job that no node could ever run: the node that could run most of it. Empty: some node could run it.
/// Looks at all nodes: not for lists.
std::string nearest_of(const Observer::View& view, const Job& job);

}  // namespace gpusched::api
