#include "forecast/moves.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/limits.h"
#include "engine/policy/fragmentation/gradient.h"
#include "forecast/changes.h"
#include "forecast/move_search.h"

namespace gpusched::forecast {
namespace {

/// Jobs of one class that count for what comes.
constexpr uint64_t kCountedOfClassMax = 64;

/// Shapes of what the jobs that the state knows ask of a node.
std::vector<policy::PopularShape> shapes_of(const State& state) {
  std::vector<policy::PopularShape> shapes;
  for (const JobClass& known : state.classes) {
    if (known.references == 0 || known.parts.empty() || known.parts.front().gpu_count == 0) continue;
    const Part& part = known.parts.front();
    policy::TaskShape shape{.cpu_milli = part.cpu_milli,
                            .memory_mb = part.memory_mb,
                            .gpu_count = part.gpu_count,
                            .gpu_milli = part.is_share() ? part.gpu_milli : policy::kWholeMilli,
                            .device_memory_mb = part.is_share() ? part.gpu_share_mb : 0,
                            .device_classes = 0};
    for (std::size_t kind = 0; kind < state.device_classes.size(); ++kind) {
      if (state.device_classes[kind].serves(part)) shape.device_classes |= uint64_t{1} << kind;
    }
    shapes.push_back({.shape = shape, .weight = std::min(known.references, kCountedOfClassMax)});
  }
  return policy::commonest_of(std::move(shapes), 1'000);
}

/// Thousandths of free GPUs that the table's shapes cannot use.
int64_t unusable_in(const State& state, const policy::FragmentationTable& table) {
  int64_t sum = 0;
  for (const Node& node : state.nodes) {
    if (!node.in_service()) continue;
    uint64_t seen = 0;  // Classes of devices, of which there are few.
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
      const uint32_t kind = node.devices[i].device_class;
      if (kind >= 64 || ((seen >> kind) & 1) != 0) continue;
      seen |= uint64_t{1} << kind;
      policy::NodeSpace space{.cpu_milli = std::max<int64_t>(node.cpu_milli - node.cpu_milli_used, 0),
                              .memory_mb = std::max<int64_t>(node.memory_mb - node.memory_mb_used, 0),
                              .device_class = kind,
                              .device_count = static_cast<uint32_t>(node.devices.size())};
      for (std::size_t at = i; at < node.devices.size(); ++at) {
        if (node.devices[at].device_class == kind && ((node.free_mask >> at) & 1) != 0)
          space.milli[at] = static_cast<uint16_t>(policy::kWholeMilli);
      }
      sum += table.fragmented(space) / policy::FragmentationTable::kUnit;
    }
  }
  return sum;
}

int64_t gpus_free_in(const State& state) {
  int64_t free = 0;
  for (const Node& node : state.nodes) {
    if (node.in_service()) free += std::popcount(node.free_mask);
  }
  return free;
}

/// Ends the moved jobs where they run, and lets those start that do then.
void carry_out(World& scratch, const MoveProposal& proposal, Work& work) {
  MoveJobs command = proposal.command;
  command.by = "forecast";
  if (scratch.apply(command).rejection.has_value()) return;
  for (const Move& move : proposal.moves) {
    scratch.apply(AttemptEnded{.job = move.job,
                               .attempt = move.attempt,
                               .member = 0,
                               .node = move.from,
                               .outcome = {.cause = EndCause::kStopped, .detail = {}}});
    const Node& node = scratch.state().node_at(move.from);
    for (uint64_t rest = move.from_mask; rest != 0; rest &= rest - 1) {
      const auto index = static_cast<uint32_t>(std::countr_zero(rest));
      const Device& device = node.devices[index];
      if (device.state == DeviceState::kDraining)
        scratch.apply(DeviceReleased{.node = move.from, .device = index, .generation = device.generation});
    }
  }
  if (!scratch.settle(work)) return;
  scratch.move_to(scratch.now() + limits::kBackoffFirst);  // Those that are moved are in line then.
  scratch.settle(work);
}

void add_gain(const World& world, const policy::FragmentationTable& table, MoveProposal& proposal,
              Work& work) {
  World scratch = world.copy();
  carry_out(scratch, proposal, work);
  const auto is_moved = [&](JobId job) {
    return std::any_of(proposal.moves.begin(), proposal.moves.end(),
                       [&](const Move& move) { return move.job == job; });
  };
  proposal.starts.push_back(proposal.job());
  for (const JobId job : scratch.placed()) {
    if (job != proposal.job() && !is_moved(job)) proposal.starts.push_back(job);
  }
  for (const JobId job : proposal.starts)
    proposal.gpus_started += scratch.state().held_by(scratch.state().job_at(job)).gpus;
  proposal.unusable_after = unusable_in(scratch.state(), table);
  const Job& job = world.state().job_at(proposal.job());
  const bool first = world.state().class_of(job).waiting.front().job == job.id;
  if (first) proposal.otherwise = world.planner().reason(job.job_class).start;
}

/// Those for which moves are looked for, in the order of the line; each by its class, whose later jobs want
/// the same.
std::vector<JobId> gainers_of(const World& world, const MoveOptions& options, Work& work) {
  const State& state = world.state();
  std::vector<JobId> found;
  if (options.only.valid()) {
    const JobId subject = subject_of(state, options.only);
    if (subject.valid()) found.push_back(subject);
    return found;
  }
  for (OrderedJobs::Cursor at = state.line.begin(); !at.at_end() && found.size() < limits::kMoveGainersMax;
       at.next()) {
    if (!work.take(1)) break;
    const Job& job = state.job_at((*at).job);
    if (MoveSearch::may_gain(world, job)) found.push_back(job.id);
  }
  return found;
}

}  // namespace

std::string_view to_string(MoveObstacle obstacle) {
  switch (obstacle) {
    case MoveObstacle::kNotPreemptible:
      return "not_preemptible";
    case MoveObstacle::kExempt:
      return "exempt";
    case MoveObstacle::kEndsForGood:
      return "ends_for_good";
    case MoveObstacle::kGang:
      return "gang";
    case MoveObstacle::kShare:
      return "share";
    case MoveObstacle::kArranged:
      return "arranged";
    case MoveObstacle::kEnding:
      return "ending";
    case MoveObstacle::kJustStarted:
      return "just_started";
    case MoveObstacle::kEndedLately:
      return "ended_lately";
    case MoveObstacle::kEndedOften:
      return "ended_often";
    case MoveObstacle::kHigherPriority:
      return "higher_priority";
    case MoveObstacle::kNoOtherPlace:
      return "no_other_place";
    case MoveObstacle::kTooLate:
      return "too_late";
  }
  UNREACHABLE();
}

std::string_view describe(MoveObstacle obstacle) {
  switch (obstacle) {
    case MoveObstacle::kNotPreemptible:
      return "is not preemptible (its tenant's allow_preemption is off)";
    case MoveObstacle::kExempt:
      return "is exempt from preemption";
    case MoveObstacle::kEndsForGood:
      return "would be cancelled on preemption instead of continuing elsewhere";
    case MoveObstacle::kGang:
      return "is a gang";
    case MoveObstacle::kShare:
      return "has a share of a GPU";
    case MoveObstacle::kArranged:
      return "requests specific GPUs, a GPU layout or an exclusive node";
    case MoveObstacle::kEnding:
      return "is already being stopped or moved";
    case MoveObstacle::kJustStarted:
      return "has just started";
    case MoveObstacle::kEndedLately:
      return "was moved or preempted only recently";
    case MoveObstacle::kEndedOften:
      return "has reached the maximum number of preemptions";
    case MoveObstacle::kHigherPriority:
      return "has a higher priority";
    case MoveObstacle::kNoOtherPlace:
      return "does not fit elsewhere at the moment";
    case MoveObstacle::kTooLate:
      return "would give it back after the waiting job's deadline";
  }
  UNREACHABLE();
}

MovePlan plan_moves(const World& world, const MoveOptions& options, Work& work) {
  const State& state = world.state();
  MovePlan plan{.at = world.now(), .sequence = state.last.sequence, .proposals = {}, .unmoved = {}};
  const policy::FragmentationTable table(shapes_of(state));
  plan.gpus_free = gpus_free_in(state);
  plan.unusable = unusable_in(state, table);
  Places places(world);
  MoveSearch search(world, options, places, work);
  std::vector<uint32_t> in_vain;  // Classes.
  for (const JobId id : gainers_of(world, options, work)) {
    if (plan.proposals.size() >= std::min(options.proposals, limits::kMoveProposalsMax) || work.over) break;
    const Job& job = state.job_at(id);
    if (std::find(in_vain.begin(), in_vain.end(), job.job_class) != in_vain.end()) continue;
    if (!MoveSearch::may_gain(world, job)) {
      plan.unmoved.push_back({.job = id, .nearest = {}, .blockers = {}, .not_tried = true});
      continue;
    }
    std::optional<MoveProposal> found = search.cheapest(job);
    if (found.has_value()) {
      plan.proposals.push_back(std::move(*found));
      continue;
    }
    in_vain.push_back(job.job_class);
    plan.unmoved.push_back(search.nearest(job));
  }
  for (MoveProposal& proposal : plan.proposals) {
    proposal.unusable_before = plan.unusable;
    add_gain(world, table, proposal, work);
  }
  plan.stopped_early = search.stopped_early();
  return plan;
}

std::string describe(const State& state, const Unmoved& unmoved) {
  const auto name = [](JobId job) { return "job-" + std::to_string(job.value); };
  const Job* job = state.jobs.find(unmoved.job);
  if (unmoved.not_tried || job == nullptr) {
    return name(unmoved.job) +
           " does not wait for free resources on one node (see gpu-cli explain), so moves cannot help";
  }
  std::string text = unmoved.gpus_wanted > 0 ? std::to_string(unmoved.gpus_free) +
                                                   (unmoved.gpus_free == 1 ? " suitable GPU is free, but "
                                                                           : " suitable GPUs are free, but ")
                                             : std::string();
  const Node* node = state.find_node(unmoved.nearest);
  if (node == nullptr)
    return text + "no node that is in service and not reserved could have " + name(job->id);
  for (std::size_t i = 0; i < unmoved.blockers.size(); ++i) {
    const Unmoved::Blocker& one = unmoved.blockers[i];
    text += (i == 0 ? "" : i + 1 == unmoved.blockers.size() ? ", and " : ", ") + name(one.job);
    if (one.gpus > 0) {
      text += " holds " + std::to_string(one.gpus) + " of node " + node->name + " and ";
    } else {
      text += " on node " + node->name + " ";
    }
    text += std::string(describe(one.why));
  }
  if (unmoved.blockers.empty()) {
    text += unmoved.too_many
                ? "more jobs than may move at once would have to leave node " + node->name
                : "the jobs on node " + node->name + " do not all fit elsewhere at the same time";
  }
  return text;
}

bool is_worth_it(const World& world, const MoveProposal& proposal, const MoveBounds& bounds) {
  const Job* job = world.state().jobs.find(proposal.job());
  if (job == nullptr || world.now() < job->submitted_at + bounds.patience) return false;
  if (proposal.otherwise.valid() && proposal.otherwise < world.now() + bounds.soon) return false;
  return proposal.price.lost_gpu_ms <= bounds.price_max * 1'000 * proposal.gpus_started;
}

bool still_holds(const World& world, const MoveProposal& proposal, const MoveOptions& options) {
  Work work{.left = limits::kMoveWorkMax};
  Places places(world);
  MoveSearch search(world, options, places, work);
  return search.holds(proposal);
}

}  // namespace gpusched::forecast
