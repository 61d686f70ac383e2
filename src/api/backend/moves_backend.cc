// HostBackend: moves of running jobs, which are looked for on a copy of the state at the host's forecast
// service.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/views/forecast_views.h"
#include "api/views/state_views.h"
#include "base/digest.h"
#include "base/limits.h"

namespace gpusched::api {

std::string ProposedMoves::keep(const forecast::MoveProposal& proposal, Time now) {
  Digest digest;
  for (const PlanGroup& group : proposal.command.groups) mix_fields(digest, group);
  char text[24];
  std::snprintf(text, sizeof text, "move-%016llx", static_cast<unsigned long long>(digest.value()));
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) { return kept.id == text; });
  if (kept_.size() >= 4 * limits::kMoveProposalsMax) kept_.pop_front();
  kept_.push_back({.id = text, .at = now, .proposal = proposal});
  return text;
}

std::optional<forecast::MoveProposal> ProposedMoves::find(const std::string& id, Time now) const {
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : kept_) {
    if (kept.id == id && now <= kept.at + limits::kMoveProposalKept) return kept.proposal;
  }
  return std::nullopt;
}

void ProposedMoves::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const Kept& kept) { return kept.id == id; });
}

namespace {

std::vector<std::string> gpus_of(const std::string& node, uint64_t mask) {
  std::vector<std::string> out;
  for (; mask != 0; mask &= mask - 1)
    out.push_back(gpu_name(node, static_cast<uint32_t>(std::countr_zero(mask))));
  return out;
}

std::string node_of(const State& state, NodeId id) {
  const Node* node = state.find_node(id);
  return node == nullptr ? std::string() : node->name;
}

MoveProposalView view_of(const State& state, const forecast::MoveProposal& proposal, std::string id) {
  const MemberPlacement& gets = proposal.command.groups.front().members.front();
  MoveProposalView out{.id = std::move(id),
                       .job = proposal.job(),
                       .node_name = node_of(state, gets.node),
                       .gpus = {},
                       .moves = {},
                       .lost_gpu_ms = proposal.price.lost_gpu_ms,
                       .starts = proposal.starts,
                       .gpus_started = proposal.gpus_started,
                       .otherwise = proposal.otherwise == kNever ? Time{} : proposal.otherwise,
                       .unusable_milli_before = proposal.unusable_before,
                       .unusable_milli_after = proposal.unusable_after};
  out.gpus = gpus_of(out.node_name, gets.device_mask);
  for (const forecast::Move& move : proposal.moves) {
    MoveView one{.job = move.job,
                 .from_node = node_of(state, move.from),
                 .to_node = node_of(state, move.to),
                 .from_gpus = {},
                 .to_gpus = {},
                 .gpu_count = move.price.gpus,
                 .lost_gpu_ms = move.price.lost_gpu_ms,
                 .saved = move.saved,
                 .ended_before = move.price.ended_before};
    one.from_gpus = gpus_of(one.from_node, move.from_mask);
    one.to_gpus = gpus_of(one.to_node, move.to_mask);
    out.moves.push_back(std::move(one));
  }
  return out;
}

std::string_view word_of(MoveTuning::Mode mode) {
  switch (mode) {
    case MoveTuning::Mode::kOff:
      return "off";
    case MoveTuning::Mode::kPropose:
      return "propose";
    case MoveTuning::Mode::kAct:
      return "act";
  }
  UNREACHABLE();
}

std::string summary_of(const forecast::MovePlan& plan) {
  const std::size_t count = plan.proposals.size();
  if (count == 1) return "one waiting job could start at once";
  if (count > 1) return std::to_string(count) + " waiting jobs could start at once";
  if (plan.unmoved.empty()) return "no waiting job could start after moves";
  return "no move would let a waiting job start";
}

std::optional<ApiError> switched_off(MoveTuning::Mode mode) {
  if (mode != MoveTuning::Mode::kOff) return std::nullopt;
  return ApiError{
      ErrorKind::kPermissionDenied,
      "moves are disabled; set scheduler.moves to propose or act in the scheduler's configuration"};
}

ApiError stale(const std::string& id) {
  return {ErrorKind::kMoveStale,
          "the proposal " + id +
              " is unknown, too old or no longer valid; request new proposals with gpu-cli moves",
          "id"};
}

}  // namespace

void HostBackend::get_moves(const CallerPtr& caller, MovesRequest request, Done<MovesView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeMoves, "request proposals of moves"))
    return done(std::move(*refused));
  if (!request.tenant.empty()) {
    return done(ApiError{ErrorKind::kPermissionDenied,
                         "moves concern the jobs of all tenants and are for operators only; remove tenant_id",
                         "tenant_id"});
  }
  if (auto off = switched_off(host_.forecasts().tuning().moves.mode)) return done(std::move(*off));
  const auto look = [this, request, done](uint64_t sequence) {
    const auto question = [this, request, done](ForecastService::Table& table) -> ForecastService::Answer {
      const forecast::World& world = table.world();
      forecast::MoveOptions options = table.move_options();
      options.only = request.job;
      if (request.moves_max > 0) options.moves_max = static_cast<std::size_t>(request.moves_max);
      forecast::Work work{.left = limits::kMoveWorkMax};
      const forecast::MovePlan plan = forecast::plan_moves(world, options, work);
      MovesView out{.at = plan.at,
                    .mode = word_of(host_.forecasts().tuning().moves.mode),
                    .proposals = {},
                    .unmoved = {},
                    .gpus_free = plan.gpus_free,
                    .unusable_milli = plan.unusable,
                    .stopped_early = plan.stopped_early,
                    .message = summary_of(plan)};
      for (const forecast::MoveProposal& proposal : plan.proposals)
        out.proposals.push_back(view_of(world.state(), proposal, moves_->keep(proposal, world.now())));
      for (const forecast::Unmoved& one : plan.unmoved)
        out.unmoved.push_back({.job = one.job, .message = describe(world.state(), one)});
      if (out.proposals.empty() && !out.unmoved.empty()) out.message += ": " + out.unmoved.front().message;
      return [done, out = std::move(out)] { done(out); };
    };
    host_.forecasts().ask(sequence, {}, question, [done](const Error& error) { done(no_forecast(error)); });
  };
  if (sheds_read(done)) return;
  read([caller, request, look, done](const Observer::View& view) {
    if (request.job.valid()) {
      const auto found = find_job(view.state, *caller, access::Action::kSeeJob, request.job, "");
      if (!found) return done(found.error());
    }
    look(view.state.last.sequence);
  });
}

void HostBackend::apply_moves(const CallerPtr& caller, ApplyMoves request, Done<MoveProposalView> done) {
  if (auto refused = refuse(*caller, access::Action::kMoveJobs, "move jobs"))
    return done(std::move(*refused));
  if (auto off = switched_off(host_.forecasts().tuning().moves.mode)) return done(std::move(*off));
  const auto kept = std::make_shared<ApplyMoves>(std::move(request));
  const auto question = [this, caller, kept, done](ForecastService::Table& table) -> ForecastService::Answer {
    const forecast::World& world = table.world();
    const std::optional<forecast::MoveProposal> found = moves_->find(kept->id, world.now());
    if (!found || !forecast::still_holds(world, *found, table.move_options()))
      return [kept, done] { done(stale(kept->id)); };
    MoveJobs command = found->command;
    command.by = kept->by;
    command.why = kept->reason;
    return [this, caller, kept, done, command = std::move(command),
            shown = view_of(world.state(), *found, kept->id)] {
      propose(*caller, command, [this, kept, shown, done](Result<Decided> decided) {
        if (auto refused = refusal(decided)) return done(std::move(*refused));
        moves_->forget(kept->id);
        done(shown);
      });
    };
  };
  host_.forecasts().ask(answered_.load(std::memory_order_acquire), {}, question,
                        [done](const Error& error) { done(no_forecast(error)); });
}

}  // namespace gpusched::api
