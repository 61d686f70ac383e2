#pragma once

#include "engine/messages/events.h"
#include "model/state.h"

/// Keeps a job's last move and the entries of its timeline. Timelines are part of the state since feature
/// level 7; before, nothing is noted (docs/adr/jobs.md).
namespace gpusched {

/// Keeps with the promise's job that it goes on elsewhere, or that others do for it.
void note_move(State& state, const Promise& promise);

/// When and by whom it was submitted, and who owns it. The job is not part of the state yet.
void note_submitted(State& state, Job& job, const JobSubmitted& event);
/// A submission's answer, by its owner's key.
void note_remembered(State& state, const RequestRemembered& event);
void note_placed(const State& state, Job& job, const AttemptPlaced& event);
/// A step that says nothing beside its time, of the job's last attempt.
void note_step(const State& state, Job& job, JobStep step, Time at);
/// The end of its attempt, that it waits again, and what it keeps of what it had. Before the job is in line.
void note_requeued(State& state, Job& job, const JobRequeued& event);
/// The end of its attempt, if it has one, and its own. Before the job's state changes.
void note_finished(const State& state, Job& job, const JobFinished& event);
void note_asked(const State& state, Job& job, const JobAsked& event);

}  // namespace gpusched
