#include "pilot/monitors/folder_watch.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace gpusched::pilot {

FolderWatch::FolderWatch() : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {}

FolderWatch::~FolderWatch() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FolderWatch::watch(const std::vector<std::string>& folders) {
  if (descriptor_ < 0) return;
  constexpr uint32_t kWhat = IN_MODIFY | IN_CLOSE_WRITE | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE;
  std::set<std::pair<std::string, int>> now;
  std::set<int> used;
  for (const std::string& folder : folders) {
    // A folder that is watched keeps its number; one that came again under its name gets another.
    const int number = ::inotify_add_watch(descriptor_, folder.c_str(), kWhat | IN_ONLYDIR);
    if (number < 0) continue;
    now.emplace(folder, number);
    used.insert(number);
  }
  for (const auto& [folder, number] : watched_) {
    if (!used.contains(number)) ::inotify_rm_watch(descriptor_, number);
  }
  watched_ = std::move(now);
}

bool FolderWatch::changed() {
  alignas(inotify_event) std::array<char, 16'384> events;
  constexpr int kReadsMax = 64;  // The rest tells it again.
  bool any = false;
  for (int count = 0; count < kReadsMax && descriptor_ >= 0; ++count) {
    if (::read(descriptor_, events.data(), events.size()) <= 0) break;
    any = true;
  }
  return any;
}

}  // namespace gpusched::pilot
