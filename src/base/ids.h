#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace gpusched {

/// A typed id. Its value is the sequence number of the command that created the thing, so no counter exists
/// and no id is used twice. Zero means "none". Ids of different things do not compare.
template <typename Tag>
struct Id {
  uint64_t value = 0;

  constexpr bool valid() const { return value != 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using TenantId = Id<struct TenantTag>;
using JobId = Id<struct JobTag>;
using NodeId = Id<struct NodeTag>;

/// The tenant that exists from the first moment on; jobs without a tenant belong to it.
inline constexpr TenantId kDefaultTenant{1};

/// The first command's sequence number. One is taken by the state that exists before any command.
inline constexpr uint64_t kFirstSequence = 2;

/// Names one member of one attempt: every message between scheduler and node carries it, so each may be
/// repeated.
struct AttemptKey {
  JobId job;
  uint32_t attempt = 0;  ///< 1 for the first try.
  uint32_t member = 0;   ///< 0 in a job of one member.

  friend constexpr auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

}  // namespace gpusched

template <typename Tag>
struct std::hash<gpusched::Id<Tag>> {
  std::size_t operator()(gpusched::Id<Tag> id) const noexcept {
    uint64_t x = id.value * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};

template <>
struct std::hash<gpusched::AttemptKey> {
  std::size_t operator()(const gpusched::AttemptKey& key) const noexcept {
    uint64_t x = (key.job.value ^ (uint64_t{key.attempt} << 40) ^ (uint64_t{key.member} << 52)) *
                 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(x ^ (x >> 29));
  }
};
