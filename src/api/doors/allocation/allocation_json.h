#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/jobs.h"
#include "api/contract/keys.h"
#include "api/contract/nodes.h"
#include "api/contract/tenants.h"
#include "base/time.h"

/// The allocation door's JSON. A record of the door is one lease: a job that holds `count` devices of one
/// node.
namespace gpusched::api {

/// The body of POST /allocate: one job. `request_key` empty: none. An organization is named by its id at this
/// door, or as elsewhere.
Answer<SubmitRequest> parse_allocation(std::string_view body, std::string_view request_key,
                                       std::string_view cluster = {});
/// The body of a renewal: how long the lease shall last from now on.
Answer<Duration> parse_renewal(std::string_view body);
/// Whether a heartbeat's body is an object, or empty. Nobody reads its contents.
std::optional<ApiError> check_heartbeat(std::string_view body);
Answer<TenantRequest> parse_organization(std::string_view body);
/// The body of POST /api-keys. The key is its user's, or nobody's; then its name is drawn, or follows from
/// `repeats`, the words that every repetition of the request has: so there is never a second key.
Answer<KeyRequest> parse_allocation_key(std::string_view body, std::string_view cluster,
                                        std::string_view repeats = {});

/// The first bytes of the text's hash, at most 16.
std::string short_hash(std::string_view text, std::size_t bytes);
/// The label that leads from an Idempotency-Key to its lease.
std::string request_label(std::string_view request_key);

/// Known facts about devices, by their names: "<node>-gpu-<index>".
struct DeviceFacts {
  std::string uuid;
  std::string_view health = "UNKNOWN";
  bool is_busy = false;
};
using DeviceTable = std::map<std::string, DeviceFacts, std::less<>>;
DeviceTable devices_of(const std::vector<NodeView>& nodes);

/// Facts beside the job that a lease is shown with.
struct LeaseScene {
  std::string cluster;  ///< Its name.
  const DeviceTable* devices = nullptr;
  Time last_seen = {};  ///< The newest heartbeat of its holder; none: there was none.
  Time now = {};        ///< Time of the look.
};
/// "PROVISIONING" and so on.
std::string_view lease_status(const JobView& job, const DeviceTable& devices);
/// "HEALTHY" and so on: that of its worst device. UNKNOWN of a lease without devices.
std::string_view lease_health(const JobView& job, const DeviceTable& devices);
bool is_lease_status(std::string_view word);
bool is_lease_health(std::string_view word);

std::string allocated_json(const std::string& cluster, JobId job);
std::string lease_json(const JobView& job, const LeaseScene& scene);
/// A list of records that are JSON already.
std::string list_json(const std::vector<std::string>& records);
std::string organization_json(const std::string& cluster, const TenantView& tenant);
std::string key_json(const std::string& cluster, const KeyView& key);

}  // namespace gpusched::api
