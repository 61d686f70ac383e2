#pragma once

#include <cstdint>

#include "base/time.h"

/// The bounds of sessions and of files that are copied, apart from limits.h, so that few files see them.
namespace gpusched::limits {

inline constexpr uint32_t kSessionsPerJobMax = 8;
inline constexpr uint32_t kSessionsPerNodeMax = 64;
inline constexpr uint32_t kPortStreamsPerJobMax = 64;  ///< Connections to a job's ports.
inline constexpr uint32_t kPortStreamsPerNodeMax = 256;
inline constexpr uint32_t kSessionsMax = 1'024;                  ///< Sessions and ports of one scheduler.
inline constexpr int64_t kSessionCreditBytes = 256 * 1024;       ///< On their way, in each direction.
inline constexpr uint32_t kSessionPieceBytes = 32 * 1024;        ///< Bytes in one message.
inline constexpr uint32_t kSessionCommandBytesMax = 128 * 1024;  ///< Command and environment together.
inline constexpr Duration kSessionDetachedMax = hours(12);       ///< Without anybody; then it is ended.
inline constexpr uint32_t kFilesPerNodeMax = 32;                 ///< Read at a time.
inline constexpr uint32_t kFilePieceBytes = 128 * 1024;
inline constexpr uint32_t kPathBytesMax = 4'096;
inline constexpr Duration kFileIdleMax = seconds(60);            ///< Maximum time between two pieces.
inline constexpr int64_t kFileBytesDefault = int64_t{64} << 20;  ///< The largest file that is copied.

}  // namespace gpusched::limits
