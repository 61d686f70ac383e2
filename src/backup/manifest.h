#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpusched::backup {

inline constexpr const char* kManifestName = "MANIFEST";
inline constexpr uint64_t kManifestBytesMax = uint64_t{16} << 20;

/// One file of a backup.
struct ManifestFile {
  std::string path;  ///< Relative to the data folder, such as "journal/VERSION".
  uint64_t bytes = 0;
  std::string sha256;  ///< 64 hexadecimal digits.
};

/// The list of a backup's files, its last one; lines of text (docs/operate/back-up.md).
struct Manifest {
  std::string version;    ///< Version of the program that made the backup.
  std::string taken;      ///< When, as RFC 3339.
  uint64_t position = 0;  ///< The last journal record in it.
  std::vector<ManifestFile> files;
};

/// True for a path that stays in its folder and is one word of a line.
bool is_safe_path(std::string_view path);
std::string encode_manifest(const Manifest& manifest);
/// Untrusted bytes. kCorrupt: cut off or altered, or no manifest. kVersion: of a newer format.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace gpusched::backup
