#include "api/doors/native/native_moves.h"

#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/doors/native/native_views.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

double gpus_of(int64_t milli) { return static_cast<double>(milli) / 1'000.0; }
double gpu_seconds_of(int64_t gpu_ms) { return static_cast<double>(gpu_ms) / 1'000.0; }

}  // namespace

std::optional<ApiError> read_moves(const std::string& job, MovesRequest& request) {
  if (!job.empty()) {
    const auto id = parse_job_id(job);
    if (!id) return ApiError{ErrorKind::kJobNotFound, "no such job: " + job, "job_id"};
    request.job = *id;
  }
  if (request.moves_max < 0 || request.moves_max > static_cast<int64_t>(limits::kMovesMax)) {
    return ApiError{ErrorKind::kInvalidArgument,
                    "moves_max must be a number from 1 to " + std::to_string(limits::kMovesMax), "moves_max"};
  }
  return std::nullopt;
}

Answer<ApplyMoves> read_apply(const v1::ApplyMovesRequest& message) {
  if (message.id().empty() || message.id().size() > limits::kNameBytesMax)
    return ApiError{ErrorKind::kInvalidArgument, "id must be that of a proposal, as gpu-cli moves shows it",
                    "id"};
  if (message.by().size() > limits::kNameBytesMax) {
    return ApiError{ErrorKind::kInvalidArgument,
                    "by is longer than " + std::to_string(limits::kNameBytesMax) + " bytes; shorten it",
                    "by"};
  }
  if (message.reason().size() > limits::kLabelBytesMax) {
    return ApiError{ErrorKind::kInvalidArgument,
                    "reason is longer than " + std::to_string(limits::kLabelBytesMax) + " bytes; shorten it",
                    "reason"};
  }
  return ApplyMoves{
      .id = message.id(), .by = message.by().empty() ? "operator" : message.by(), .reason = message.reason()};
}

void write_move_proposal(const MoveProposalView& proposal, v1::MoveProposal& out) {
  out.set_id(proposal.id);
  out.set_job_id(job_name(proposal.job));
  out.set_node_name(proposal.node_name);
  for (const std::string& gpu : proposal.gpus) out.add_gpus(gpu);
  for (const MoveView& move : proposal.moves) {
    v1::JobMove& one = *out.add_moves();
    one.set_job_id(job_name(move.job));
    one.set_from_node(move.from_node);
    for (const std::string& gpu : move.from_gpus) one.add_from_gpus(gpu);
    one.set_to_node(move.to_node);
    for (const std::string& gpu : move.to_gpus) one.add_to_gpus(gpu);
    one.set_gpu_count(move.gpu_count);
    one.set_lost_gpu_seconds(gpu_seconds_of(move.lost_gpu_ms));
    one.set_saved(move.saved);
    one.set_ended_before(static_cast<int32_t>(move.ended_before));
  }
  out.set_lost_gpu_seconds(gpu_seconds_of(proposal.lost_gpu_ms));
  for (const JobId job : proposal.starts) out.add_starts(job_name(job));
  out.set_gpus_started(proposal.gpus_started);
  if (proposal.otherwise.valid()) write_time(proposal.otherwise, *out.mutable_otherwise_at());
  out.set_unusable_gpus_before(gpus_of(proposal.unusable_milli_before));
  out.set_unusable_gpus_after(gpus_of(proposal.unusable_milli_after));
}

void write_moves(const MovesView& moves, v1::Moves& out) {
  if (moves.at.valid()) write_time(moves.at, *out.mutable_made_at());
  out.set_mode(std::string(moves.mode));
  for (const MoveProposalView& proposal : moves.proposals)
    write_move_proposal(proposal, *out.add_proposals());
  for (const MovesView::Unmoved& one : moves.unmoved) {
    v1::Moves::Unmoved& unmoved = *out.add_unmoved();
    unmoved.set_job_id(job_name(one.job));
    unmoved.set_message(one.message);
  }
  out.set_gpus_free(moves.gpus_free);
  out.set_unusable_gpus(gpus_of(moves.unusable_milli));
  out.set_stopped_early(moves.stopped_early);
  out.set_message(moves.message);
}

}  // namespace gpusched::api
