#pragma once

#include <optional>
#include <string>

#include "api/contract/moves.h"
#include "gpusched/v1/scheduler.pb.h"

/// Moves of running jobs in the native API's messages.
namespace gpusched::api {

/// Takes the job's name, which may be empty, into the request; checks all of it.
std::optional<ApiError> read_moves(const std::string& job, MovesRequest& request);
Answer<ApplyMoves> read_apply(const v1::ApplyMovesRequest& message);
void write_moves(const MovesView& moves, v1::Moves& out);
void write_move_proposal(const MoveProposalView& proposal, v1::MoveProposal& out);

}  // namespace gpusched::api
