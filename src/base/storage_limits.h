#pragma once

#include <cstdint>

#include "base/time.h"

/// The bounds of what the scheduler keeps, and of its clock; apart from limits.h, so that few files see them.
namespace gpusched::limits {

// Snapshots.
inline constexpr uint64_t kSnapshotEveryMin = uint64_t{1} << 20;  ///< Bytes of journal, smallest volume.
inline constexpr Duration kSnapshotRetryFirst = seconds(2);       ///< Delay after a failed one; doubling.
inline constexpr Duration kSnapshotRetryMax = minutes(5);         ///< Maximum of that delay.
inline constexpr Duration kSnapshotPressFirst = seconds(1);       ///< Delay on a full volume; doubling.
inline constexpr Duration kSnapshotPressMax = minutes(1);         ///< Maximum of that delay.
/// Size of the volume of a scheduler's folder below which `doctor` and the log warn.
inline constexpr uint64_t kVolumeBytesMin = uint64_t{1} << 30;

// The clock.
inline constexpr Time kTimeMin{1'704'067'200'000'000'000};  ///< 2024: no scheduler's first start was before.
/// How far the wall clock may be from the newest time in the journal, by default, before an operator has to
/// accept it.
inline constexpr Duration kClockJumpMax = hours(24 * 7);

}  // namespace gpusched::limits
