#pragma once

#include "api/contract/health.h"
#include "api/contract/machines.h"
#include "machines/machines.h"

namespace gpusched::api {

/// The doors' questions about machines.
class MachineService final : public MachineBackend {
 public:
  /// `machines` must outlive it; null: no pools are configured.
  explicit MachineService(const machines::Machines* machines) : machines_(machines) {}

  void list_machines(const CallerPtr& caller, Done<machines::MachinesView> done) override;
  void add_metrics(MetricsView& metrics) const;

 private:
  const machines::Machines* const machines_;
};

}  // namespace gpusched::api
