#pragma once

#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "model/types.h"

/// How ids, devices and times are spelt at the doors.
namespace gpusched::api {

inline std::string job_name(JobId id) { return "job-" + std::to_string(id.value); }
inline std::string tenant_name(TenantId id) {
  return id == kDefaultTenant ? std::string("default") : "tenant-" + std::to_string(id.value);
}
inline std::string gpu_name(std::string_view node, uint32_t index) {
  return std::string(node) + "-gpu-" + std::to_string(index);
}
/// "connected", "unreachable", "lost" or "dead".
inline std::string_view contact_name(NodeState contact) {
  return contact == NodeState::kReady ? std::string_view("connected") : to_string(contact);
}
/// Whole seconds, rounded up: "12s".
inline std::string duration_text(Duration duration) {
  return std::to_string((duration.ns + 999'999'999) / 1'000'000'000) + "s";
}

}  // namespace gpusched::api
