#include "base/text/task_worker.h"

#include "base/bytes.h"
#include "base/text/appended_environment.h"
#include "base/text/packed_field.h"

namespace gpusched {
namespace {

/// The value of an entry that is exactly as `appended_environment` packs it.
std::optional<std::string_view> late_value(std::string_view entry, std::string_view name) {
  ByteReader reader(entry);
  if (reader.varint() != kVariableValueTag) return std::nullopt;
  const std::string_view value = reader.bytes();
  if (!reader.ok() || reader.varint() != kVariableNameTag) return std::nullopt;
  const std::string_view found = reader.bytes();
  if (!reader.ok() || !reader.at_end() || found != name) return std::nullopt;
  return value;
}

}  // namespace

void add_worker(std::string& packed_spec, const WorkerRequest& worker) {
  if (!worker.command.empty()) packed_spec += appended_environment(kWorkerVariable, worker.command);
  packed_spec += appended_environment(kWorkerIdleVariable, worker.idle_ms);
  if (!worker.tasks.empty()) packed_spec += appended_environment(kWorkerTasksVariable, worker.tasks);
  if (!worker.health_ms.empty()) packed_spec += appended_environment(kWorkerHealthVariable, worker.health_ms);
  if (!worker.endpoint.empty()) packed_spec += appended_environment(kWorkerEndpointVariable, worker.endpoint);
}

void add_worker_owner(std::string& packed_spec, std::string_view owner) {
  if (worker_of(packed_spec)) packed_spec += appended_environment(kWorkerOwnerVariable, owner);
}

std::optional<WorkerRequest> worker_of(std::string_view packed_spec) {
  WorkerRequest worker;
  ByteReader reader(packed_spec);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!read_field(reader, tag, bytes)) return std::nullopt;
    if (tag != kEnvironmentTag) continue;
    if (const auto command = late_value(bytes, kWorkerVariable)) worker.command = *command;
    if (const auto idle = late_value(bytes, kWorkerIdleVariable)) worker.idle_ms = *idle;
    if (const auto tasks = late_value(bytes, kWorkerTasksVariable)) worker.tasks = *tasks;
    if (const auto health = late_value(bytes, kWorkerHealthVariable)) worker.health_ms = *health;
    if (const auto endpoint = late_value(bytes, kWorkerEndpointVariable)) worker.endpoint = *endpoint;
    if (const auto owner = late_value(bytes, kWorkerOwnerVariable)) worker.owner = *owner;
  }
  if (worker.command.empty() && worker.endpoint.empty()) return std::nullopt;
  return worker;
}

}  // namespace gpusched
