#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/messages/commands.h"
#include "replay/scheduler/engine_replay.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// Contents of a scheduler's own journal: the work that ended, what it ran on, and how it went.
struct JournalTrace {
  Trace trace;  ///< A job's queue is its tenant, its size its GPUs, or its cores where it asked for none.
  std::vector<JobRequest> requests;   ///< By job: its parts, priority and limit.
  std::vector<RegisterNode> nodes;    ///< As they were known last.
  std::vector<CreateTenant> tenants;  ///< By number; parents by number.
  EngineConfig config;                ///< The last one.
  ReplayOutcome as_it_was;            ///< When the jobs really started and ended.
  int64_t gpus = 0;                   ///< GPUs of all nodes; their cores if they have none.
  uint64_t unfinished = 0;            ///< Jobs that wait or run still, or never ran: not in the trace.
};

/// Reads a data folder, or the journal in it, beside a running scheduler too: takes no lock and changes
/// nothing. Records that were compacted away are not told; then it begins with the oldest snapshot that the
/// journal goes on from. Arrays' elements are jobs like others; a job's last attempt counts, what was lost
/// before does not. kNotFound, kIo, kCorrupt, kVersion, with a sentence that says where.
Result<JournalTrace> read_journal_trace(const std::string& folder);

/// Options under which the trace is replayed on the nodes and with the tenants that it tells of.
ReplayOptions options_of(const JournalTrace& journal);

}  // namespace gpusched::replay
