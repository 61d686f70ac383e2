#include "node/core/telemetry.h"

#include <utility>

namespace gpusched::agent {
namespace {

constexpr std::size_t kProgressBytesMax = 4'096;

}  // namespace

void Telemetry::note_saved(const AttemptKey& key, int64_t unix_ns) {
  last_words_.push_back({.key = key, .unix_ns = unix_ns});
}

void Telemetry::add_saved(const SavedWork& work, v1::Heartbeat& out) {
  AttemptRow* const attempt = attempts_.find(work.key);
  if (attempt == nullptr || attempt->over() || attempt->saved_unix_ns == work.unix_ns) return;
  attempt->saved_unix_ns = work.unix_ns;
  v1::AttemptSaved& saved = *out.add_saved();
  *saved.mutable_key() = to_wire(work.key);
  saved.set_age_ms((ports_.clock.wall().ns - work.unix_ns) / 1'000'000);
  saved.set_placed_at_ns(attempt->placed_at_ns);
}

// Adds the saved work that running jobs reported since the last heartbeat.
void Telemetry::add_saved(v1::Heartbeat& out) {
  for (const SavedWork& work : std::exchange(last_words_, {})) add_saved(work, out);
  for (const SavedWork& work : ports_.spawner.saved()) add_saved(work, out);
}

void Telemetry::add_endpoints(v1::Heartbeat& out) const {
  if (ports_.endpoints == nullptr) return;
  for (EndpointReading& reading : ports_.endpoints->readings()) {
    const AttemptRow* const attempt = attempts_.find(reading.key);
    if (attempt == nullptr || attempt->over()) continue;
    v1::AttemptEndpoint& endpoint = *out.add_endpoints();
    *endpoint.mutable_key() = to_wire(reading.key);
    endpoint.set_placed_at_ns(attempt->placed_at_ns);
    endpoint.set_port(reading.port);
    endpoint.set_probed(reading.ready.has_value());
    endpoint.set_ready(reading.ready.value_or(false));
    endpoint.set_detail(clean_text(reading.detail, kProgressBytesMax));
  }
}

void Telemetry::send(uint64_t sequence) {
  v1::AgentMessage message;
  v1::Heartbeat& out = *message.mutable_heartbeat();
  out.set_sequence(sequence);
  for (uint32_t index = 0; index < watch_.facts().size(); ++index) {
    const DeviceReading& reading = watch_.last_reading(index);
    v1::DeviceTelemetry& device = *out.add_devices();
    device.set_index(index);
    device.set_utilization_percent(reading.utilization_percent.value_or(0));
    device.set_memory_used_mb(reading.memory_used_mb);
    device.set_temperature_celsius(reading.temperature_celsius.value_or(0));
    device.set_power_watts(reading.power_watts);
  }
  for (const Preparation& attempt : ports_.spawner.preparing()) {
    v1::AttemptProgress& progress = *out.add_progress();
    *progress.mutable_key() = to_wire(attempt.key);
    progress.set_message(clean_text(attempt.message, kProgressBytesMax));
  }
  slices_.add_progress(out);
  add_saved(out);
  activity_.add_to(out);
  add_endpoints(out);
  const HostLoad load = ports_.host.load();
  out.set_cpu_utilization(load.cpu);
  out.set_memory_utilization(load.memory);
  ports_.link.send(message);
}

}  // namespace gpusched::agent
