#pragma once

#include <optional>

#include "base/time.h"
#include "engine/messages/commands.h"
#include "engine/messages/events.h"
#include "engine/messages/rejection.h"
#include "model/state.h"

namespace gpusched {

/// The outcome of a command.
struct Applied {
  std::optional<Rejection> rejection;
  uint64_t first_id = 0;  ///< Id of the created job, tenant or node; consecutive for a batch.
  uint32_t id_count = 0;
  bool repeated = false;  ///< The answer of an earlier command with the same request key.
};

/// Looks and answers: appends the events that the command causes, or says no and appends nothing. The state
/// is untouched either way. Not for CommitPlan, whose groups are decided one after the other: see `apply`.
Applied decide(const State& state, const Command& command, Stamp stamp, Events& events);

/// The remembered submission of the same owner with the same key, which `decide` answers again; null:
/// none.
const RememberedRequest* remembered_request(const State& state, const SubmitJobs& command);

/// Changes the state by one event, and mixes it into the state's digest.
void evolve(State& state, const Event& event);

/// Decides and evolves one command on every replica and on replay; appends its events to `events`.
/// `stamp.sequence` must follow `state.last`, and `stamp.at` not precede it.
Applied apply(State& state, const Command& command, Stamp stamp, Events& events);

/// The observer's half of `apply`: the same events, without deciding them again.
void follow(State& state, const Event* events, std::size_t count, Stamp last);

/// The settings that a Configure with `asked` leaves, with `now` before it: what commands of their own have
/// set stays. Pure.
EngineConfig config_taken(const EngineConfig& now, EngineConfig asked);

}  // namespace gpusched
