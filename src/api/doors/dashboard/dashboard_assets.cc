#include "api/doors/dashboard/dashboard_assets.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

// The build compresses web/dist into this folder; see src/api/CMakeLists.txt.
#define GPUSCHED_ASSET(name, file)                   \
  __asm__(                                           \
      ".section .rodata\n"                           \
      ".global gpusched_dashboard_" #name            \
      "\n"                                           \
      ".global gpusched_dashboard_" #name            \
      "_end\n"                                       \
      "gpusched_dashboard_" #name                    \
      ":\n"                                          \
      ".incbin \"" GPUSCHED_DASHBOARD_DIR "/" file   \
      "\"\n"                                         \
      "gpusched_dashboard_" #name                    \
      "_end:\n"                                      \
      ".byte 0\n"                                    \
      ".previous\n");                                \
  extern "C" const char gpusched_dashboard_##name[]; \
  extern "C" const char gpusched_dashboard_##name##_end[];

GPUSCHED_ASSET(script, "app.js.gz")
GPUSCHED_ASSET(styles, "app.css.gz")
GPUSCHED_ASSET(icon, "icon.svg.gz")

namespace gpusched::api {
namespace {

constexpr std::size_t kHashBytes = 8;

DashboardAsset asset(std::string_view extension, std::string_view content_type, const char* begin,
                     const char* end) {
  const std::string_view bytes(begin, static_cast<std::size_t>(end - begin));
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash;
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  std::array<char, 2 * kHashBytes + 1> text;
  sodium_bin2hex(text.data(), text.size(), hash.data(), kHashBytes);
  return {.extension = extension,
          .content_type = content_type,
          .bytes = bytes,
          .path = "/ui/assets/" + std::string(text.data()) + std::string(extension)};
}

}  // namespace

std::span<const DashboardAsset> dashboard_assets() {
  static const std::vector<DashboardAsset> kAssets = {
      asset(".js", "text/javascript; charset=utf-8", gpusched_dashboard_script,
            gpusched_dashboard_script_end),
      asset(".css", "text/css; charset=utf-8", gpusched_dashboard_styles, gpusched_dashboard_styles_end),
      asset(".svg", "image/svg+xml", gpusched_dashboard_icon, gpusched_dashboard_icon_end)};
  return kAssets;
}

const DashboardAsset* find_dashboard_asset(std::string_view path) {
  const auto all = dashboard_assets();
  const auto found = std::ranges::find(all, path, &DashboardAsset::path);
  return found == all.end() ? nullptr : &*found;
}

const std::string& dashboard_path(std::string_view extension) {
  const auto all = dashboard_assets();
  const auto found = std::ranges::find(all, extension, &DashboardAsset::extension);
  CHECK(found != all.end());
  return found->path;
}

}  // namespace gpusched::api
