#pragma once

#include <string>

#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/types.h"

/// How ids, devices and times are spelt at the doors.
namespace gpusched::api {

/// An element by its array and index, for as long as nobody looked up its own id: "job-12[3]".
inline constexpr uint64_t kElementName = uint64_t{1} << 63;
inline constexpr int kElementIndexBits = 22;
constexpr JobId element_name(JobId array, int64_t index) {
  return JobId{kElementName | array.value << kElementIndexBits | static_cast<uint64_t>(index)};
}
constexpr bool is_element_name(JobId id) { return (id.value & kElementName) != 0; }
constexpr JobId array_of_name(JobId id) { return JobId{(id.value & ~kElementName) >> kElementIndexBits}; }
constexpr int64_t index_of_name(JobId id) {
  return static_cast<int64_t>(id.value & ((uint64_t{1} << kElementIndexBits) - 1));
}

inline std::string job_name(JobId id) {
  if (!is_element_name(id)) return "job-" + std::to_string(id.value);
  return "job-" + std::to_string(array_of_name(id).value) + "[" + std::to_string(index_of_name(id)) + "]";
}
/// "reservation-<digits>"
inline std::string reservation_name(uint64_t id) { return "reservation-" + std::to_string(id); }

/// "key-<digits>"
inline std::string key_name(KeyId id) { return "key-" + std::to_string(id.value); }

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
