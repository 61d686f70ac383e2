#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched::backup {

inline constexpr std::size_t kTarBlock = 512;

/// The header of a file in a tar archive (POSIX.1-1988 ustar; sizes over 8 GiB as GNU tar writes them).
struct TarHeader {
  std::string path;
  uint64_t bytes = 0;
  bool is_file = true;  ///< False: a folder, a link or something else, without a use here.
};

/// Zero bytes behind a file of so many bytes.
constexpr std::size_t tar_padding(uint64_t bytes) { return (kTarBlock - bytes % kTarBlock) % kTarBlock; }
/// kInvalidArgument: the path has over 99 bytes.
Result<std::string> encode_tar_header(const TarHeader& header);
/// Untrusted bytes of one block. Nothing: it is no header.
std::optional<TarHeader> parse_tar_header(std::string_view block);

}  // namespace gpusched::backup
