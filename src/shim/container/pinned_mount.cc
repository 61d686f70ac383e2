#include "shim/container/pinned_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

namespace gpusched::shim {
namespace {

/// Where a link of /proc leads; empty when it does not say.
std::string target_of(const std::string& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = readlink(link.c_str(), text.data(), text.size());
  return size <= 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
}

/// 0, or errno. Mounts below the source come along, and stay there when this goes.
int mount_at(const std::string& source, int file, const std::string& place) {
  struct stat facts{};
  if (fstat(file, &facts) != 0) return errno;
  if (S_ISDIR(facts.st_mode)) {
    if (mkdir(place.c_str(), 0700) != 0 && errno != EEXIST) return errno;
  } else {
    const int made = open(place.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (made < 0) return errno;
    close(made);
  }
  if (mount(source.c_str(), place.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) return errno;
  return mount(nullptr, place.c_str(), nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : errno;
}

}  // namespace

Result<std::string> pin_mount(const std::string& mount, const std::string& place, bool seen) {
  const std::size_t colon = mount.find(':');
  const std::string source = mount.substr(0, colon);
  const auto refuse = [&source](const std::string& why) {
    return Error{
        .code = ErrorCode::kPermissionDenied,
        .message =
            "'" + source + "' is not mounted: " + why +
            " since the job was assigned to this node; submit it again once the path no longer changes"};
  };
  const int file = open(source.c_str(), O_PATH | O_CLOEXEC);
  if (file < 0) return refuse("it no longer exists (" + std::string(strerrordesc_np(errno)) + ")");
  const std::string opened = "/proc/self/fd/" + std::to_string(file);
  // The source is the real path that was allowed: what is found elsewhere was reached by a link.
  const bool stayed = target_of(opened) == source;
  const int error = stayed && seen ? mount_at(opened, file, place) : 0;
  close(file);
  if (!stayed) return refuse("it points elsewhere");
  if (error == EPERM || !seen) return mount;
  if (error != 0) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "cannot mount '" + source + "' for the container: " + strerrordesc_np(error)};
  }
  return place + mount.substr(colon);
}

void release_pins(const std::string& folder) {
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    umount2(entry.path().c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    // A mounted entry is neither an empty folder nor a file that may be removed.
    if (rmdir(entry.path().c_str()) != 0) unlink(entry.path().c_str());
  }
  rmdir(folder.c_str());
}

bool shares_the_machines_mounts() {
  const std::string own = target_of("/proc/self/ns/mnt");
  return !own.empty() && own == target_of("/proc/1/ns/mnt");
}

}  // namespace gpusched::shim
