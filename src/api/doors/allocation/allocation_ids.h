#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The ids of the allocation door: UUIDs of version 8 (RFC 9562), made of the cluster's name and a number
/// that never changes. Nothing is stored: a restarted scheduler makes the same ones, and another cluster
/// others. They are no secrets.
namespace gpusched::api {

enum class AllocationIdKind : uint8_t {
  kGpu = 1,           ///< The number is the job's.
  kOrganization = 2,  ///< The tenant's.
  kKey = 3,           ///< The API key's.
  kUser = 4,          ///< A digest of the owner's name: it leads back to nobody.
  kPerson = 5,        ///< The recorded person's.
};

/// `number` is below 2^62: all but its upper two bits are kept.
std::string allocation_id(std::string_view cluster, AllocationIdKind kind, uint64_t number);
/// The number of an id of that cluster and kind. Upper and lower case letters are the same. Nothing when it
/// is another's, or no UUID. Takes untrusted bytes.
std::optional<uint64_t> number_of_allocation_id(std::string_view cluster, AllocationIdKind kind,
                                                std::string_view id);
/// The user's id: of the owner's name; of a recorded person the one that it has there.
std::string allocation_user_id(std::string_view cluster, std::string_view owner);

}  // namespace gpusched::api
