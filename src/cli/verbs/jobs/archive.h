#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpusched::cli {

/// One file of an archive.
struct ArchiveFile {
  std::string name;
  std::string data;
};

/// A .tar.gz of regular files of mode 0600 below `folder` (ustar; gzip without compression, so that it needs
/// no library and every tool reads it). Names with the folder have at most 99 bytes.
std::string make_archive(std::string_view folder, const std::vector<ArchiveFile>& files, Time when);

/// IEEE 802.3, as gzip has it.
uint32_t crc32_of(std::string_view data);

}  // namespace gpusched::cli
