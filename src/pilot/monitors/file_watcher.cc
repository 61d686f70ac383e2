#include "pilot/monitors/file_watcher.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>

#include "base/digest.h"
#include "pilot/monitors/notebook.h"
#include "pilot/monitors/path_search.h"

namespace gpusched::pilot {
namespace {

std::optional<std::string> content_of(int descriptor, std::size_t size) {
  std::string text(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const ssize_t count = ::pread(descriptor, text.data() + got, size - got, static_cast<off_t>(got));
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  text.resize(got);
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end != 0) lines.emplace_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

uint64_t hash_of(std::string_view text) {
  Digest digest;
  digest.mix(text);
  return digest.value();
}

}  // namespace

FileWatcher::FileWatcher(std::vector<std::string> patterns, std::vector<std::string> suffixes, OpenFile open)
    : patterns_(std::move(patterns)), suffixes_(std::move(suffixes)), open_(std::move(open)) {}

std::vector<int> FileWatcher::descriptors() const {
  return watch_.descriptor() < 0 ? std::vector<int>() : std::vector<int>{watch_.descriptor()};
}

void FileWatcher::look(Time now, const Sink& sink) {
  constexpr Duration kSearchEvery = seconds(5);
  if (!watch_.changed() && !is_first_ && now - searched_at_ < kSearchEvery) return;
  const FoundPaths found = search_paths(patterns_);
  watch_.watch(found.folders);
  for (auto& [path, file] : files_) file.is_listed = false;
  for (const std::string& path : found.files) {
    const bool is_read = suffixes_.empty() || std::ranges::any_of(suffixes_, [&](const std::string& end) {
                           return path.ends_with(end);
                         });
    if (is_read) look_at(path, sink);
  }
  std::erase_if(files_, [](const auto& entry) { return !entry.second.is_listed; });
  searched_at_ = now;
  is_first_ = false;
}

void FileWatcher::look_at(const std::string& path, const Sink& sink) {
  const int open = open_(path);
  if (open < 0) return;
  struct stat facts{};
  const bool fits = ::fstat(open, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size <= kWatchedBytesMax;
  File& file = files_[path];
  file.is_listed = true;
  const Version version{facts.st_ino, facts.st_size,
                        facts.st_mtim.tv_sec * 1'000'000'000 + facts.st_mtim.tv_nsec};
  if (!fits || version == file.version) {
    ::close(open);
    return;
  }
  const std::optional<std::string> text = content_of(open, static_cast<std::size_t>(facts.st_size));
  ::close(open);
  if (!text) return;
  file.version = version;
  std::optional<std::vector<std::string>> units;
  if (path.ends_with(".ipynb")) {
    units = code_cells(*text);
    if (!units) return;  // It is being written: the next change tells.
  } else {
    units = lines_of(*text);
  }
  std::set<uint64_t> hashes;
  std::string news;
  for (const std::string& unit : *units) {
    const uint64_t hash = hash_of(unit);
    hashes.insert(hash);
    if (!file.known.contains(hash)) news += unit + "\n";
  }
  file.known = std::move(hashes);
  if (!news.empty() && !is_first_) sink({.origin = path, .bytes = std::move(news), .has_lines = true});
}

}  // namespace gpusched::pilot
