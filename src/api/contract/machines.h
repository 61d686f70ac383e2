#pragma once

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "machines/view.h"

/// Machines that come from providers and go back.
namespace gpusched::api {

/// Thread-safe; returns at once.
class MachineBackend {
 public:
  virtual ~MachineBackend() = default;
  /// All pools and machines, by name; without pools both are empty.
  virtual void list_machines(const CallerPtr& caller, Done<machines::MachinesView> done) = 0;
};

}  // namespace gpusched::api
