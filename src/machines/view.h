#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "provision/decide.h"

namespace gpusched::machines {

/// Durations and moments are of the wall clock, as people are told them.
struct MachineView {
  std::string name, pool;
  std::string state;  ///< provisioning, ready, busy, draining, deprovisioning, unreachable
  Time asked_at;
  Time ready_at;  ///< Expected, of one that is provisioning; else when its node was first in service.
  bool has_node = false;
  std::string trouble;  ///< Fault of it or of its calls; empty: none.
  int64_t price_milli = 0;
  int64_t cost_micro = 0;  ///< Up to now.
};
struct PoolView {
  std::string name, driver;
  std::string region;  ///< Label `region` of its machines; empty: none.
  int64_t minimum = 0, maximum = 0, machines = 0;
  int64_t price_milli = 0, budget_milli = 0;
  int64_t cost_micro = 0;                    ///< Cost of all its machines, ever.
  int64_t made = 0, gone = 0, failures = 0;  ///< Machines ever, and calls that failed since the start.
  Duration boot;                             ///< Expected time to boot.
  bool open = true;                          ///< It may be asked for machines now.
  std::string trouble;
  std::vector<std::string> orphans;  ///< Machines that its provider lists as ours and nobody here knows.
};
struct MachinesView {
  std::vector<PoolView> pools;
  std::vector<MachineView> machines;
};

/// Outlook that machines give a waiting job.
struct JobOutlook {
  provision::Outlook outlook = provision::Outlook::kStarting;
  std::string pool;
  Duration ready_in;  ///< kStarting.
};

}  // namespace gpusched::machines
