#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "provision/capacity.h"
#include "provision/demand.h"
#include "provision/pool.h"

namespace gpusched::provision {

/// A pool, with what is known of its provider at present.
struct PoolNow {
  Pool pool;
  Duration boot;     ///< Time to boot as learned, else as configured.
  bool open = true;  ///< Its provider can be asked for machines now.
};

/// A machine that was asked for and is not known to be gone.
struct Machine {
  std::string name;
  std::string pool;
  bool ending = false;  ///< Its end was decided, for good. It still counts.
  Time asked_at;
  std::optional<MachineNode> node;  ///< Nothing: no node of that name came yet.
  Time quiet_since;                 ///< Time since when its node is quiet; not valid: it is not.
};

/// Time on one clock, which may be any.
struct Situation {
  Time now;
  std::vector<PoolNow> pools;
  std::vector<Machine> machines;
  std::vector<Demand> demand;
  std::vector<Capacity> free;  ///< Room on nodes that are no machine in `machines` which is quiet.
};

/// Outlook that machines give the waiting jobs of one class.
enum class Outlook : uint8_t {
  kStarting = 1,  ///< A machine for the first of them is coming.
  kAtMaximum,     ///< A pool could hold it, and has all the machines that it may have.
  kOverBudget,    ///< A pool could hold it, and has no budget for another machine.
  kUnavailable,   ///< A pool could hold it, and its provider cannot be asked now.
};
std::string_view to_string(Outlook outlook);
struct ClassOutlook {
  uint32_t job_class = 0;
  Outlook outlook = Outlook::kStarting;
  std::string pool;
  Time ready_at;  ///< kStarting: expected time at which the last of its machines is in service.
};

/// A machine to be returned, and why.
struct Ending {
  std::string machine;
  std::string why;       ///< One sentence without a full stop.
  bool of_node = false;  ///< It has a node, which must be seen drained and quiet once more before the end.
};

struct Decisions {
  std::vector<std::string> create;  ///< A pool for each machine to be asked for.
  std::vector<std::string> drain;   ///< Machines that were idle for so long.
  std::vector<std::string> resume;  ///< Machines that drain by us and are needed again.
  std::vector<Ending> end;
  std::vector<ClassOutlook> outlooks;
};

/// Decides what to do now; the same situation has the same answer. A pool never gets more machines than its
/// maximum or its budget, and no machine ends that has a node on which something runs.
///
/// Scale-out: waiting jobs are laid, in line, on machines that are coming or idle, gangs on free resources of
/// all nodes too, and what is left on new machines of the cheapest pools that could hold it. A job that does
/// not fit whole gets no machine. Scale-in: a machine that was quiet for the pool's time and that no waiting
/// job needs is drained; one that is drained and quiet ends.
Decisions decide(const Situation& situation);

}  // namespace gpusched::provision
