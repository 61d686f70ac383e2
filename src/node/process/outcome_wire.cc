#include "node/process/shim_spawner.h"

namespace gpusched {

v1::Outcome to_wire(const shim::Outcome& outcome) {
  v1::Outcome wire;
  wire.set_cause(static_cast<v1::Outcome::Cause>(outcome.cause));
  wire.set_exit_code(outcome.exit_code);
  wire.set_signal(outcome.signal);
  wire.set_detail(clean_text(outcome.detail, outcome.detail.size()));
  wire.set_started_unix_ns(outcome.started_unix_ns);
  wire.set_ended_unix_ns(outcome.ended_unix_ns);
  if (outcome.usage == shim::MeasuredUsage{}) return wire;
  v1::MeasuredUsage& usage = *wire.mutable_usage();
  usage.set_peak_memory_bytes(outcome.usage.peak_memory_bytes);
  usage.set_peak_of_process(outcome.usage.peak_of_process);
  usage.set_cpu_ns(outcome.usage.cpu_ns);
  return wire;
}

}  // namespace gpusched
