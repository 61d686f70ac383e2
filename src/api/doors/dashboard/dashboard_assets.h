#pragma once

#include <span>
#include <string>
#include <string_view>

/// The dashboard's built files (web/dist), which are a part of the program: it serves them without a folder.
namespace gpusched::api {

/// One file, compressed by gzip.
struct DashboardAsset {
  std::string_view extension;     ///< Such as ".js".
  std::string_view content_type;  ///< In static storage.
  std::string_view bytes;         ///< In static storage.
  /// The path that it is served under. It has the content's hash, so that a browser may keep it for ever.
  std::string path;
};

/// All files: the script, the styles, the icon. Thread-safe.
std::span<const DashboardAsset> dashboard_assets();
/// The file of a path; null: there is none.
const DashboardAsset* find_dashboard_asset(std::string_view path);
/// The path of the only file with this extension, which must be there.
const std::string& dashboard_path(std::string_view extension);

}  // namespace gpusched::api
