#include "pilot/monitors/log_tailer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "pilot/monitors/path_search.h"

namespace gpusched::pilot {

struct LogTailer::File {
  explicit File(int open) : descriptor(open) {}
  ~File() { ::close(descriptor); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const int descriptor;
  std::string path;
  int64_t offset = 0;
  bool is_listed = true;    ///< The last search found it.
  bool skips_line = false;  ///< It is read from the middle of a line.
  anticipate::LineSplitter lines;
};

LogTailer::LogTailer(std::vector<std::string> patterns, bool is_history, OpenFile open)
    : patterns_(std::move(patterns)), is_history_(is_history), open_(std::move(open)) {}

LogTailer::~LogTailer() = default;

std::vector<int> LogTailer::descriptors() const {
  return watch_.descriptor() < 0 ? std::vector<int>() : std::vector<int>{watch_.descriptor()};
}

void LogTailer::look(Time now, const Sink& sink) {
  constexpr Duration kSearchEvery = seconds(2);
  if (watch_.changed() || is_first_ || now - searched_at_ >= kSearchEvery) search(now);
  for (const auto& [inode, file] : files_) read(*file, sink);
  // One that was removed, or renamed to what nobody follows, has been read to its end.
  std::erase_if(files_, [](const auto& entry) { return !entry.second->is_listed; });
}

void LogTailer::search(Time now) {
  const FoundPaths found = search_paths(patterns_);
  watch_.watch(found.folders);
  for (const auto& [inode, file] : files_) file->is_listed = false;
  for (const std::string& path : found.files) {
    struct stat facts{};
    if (::stat(path.c_str(), &facts) != 0) continue;
    const auto known = files_.find({facts.st_dev, facts.st_ino});
    if (known != files_.end()) {
      known->second->path = path;
      known->second->is_listed = true;
      continue;
    }
    const int open = open_(path);
    if (open < 0) continue;
    auto file = std::make_unique<File>(open);
    if (::fstat(open, &facts) != 0 || !S_ISREG(facts.st_mode)) continue;
    file->path = path;
    file->offset = is_first_ ? facts.st_size : 0;
    files_.insert_or_assign({facts.st_dev, facts.st_ino}, std::move(file));
  }
  searched_at_ = now;
  is_first_ = false;
}

void LogTailer::read(File& file, const Sink& sink) {
  struct stat facts{};
  if (::fstat(file.descriptor, &facts) != 0) return;
  if (facts.st_size < file.offset) {
    file.offset = 0;
    file.lines.reset();
  }
  if (facts.st_size - file.offset > kBehindBytesMax) {
    const int64_t from = facts.st_size - kReadBytesMax;
    passed_over_bytes_ += from - file.offset;
    file.offset = from;
    file.lines.reset();
    file.skips_line = true;
  }
  std::array<char, 65'536> piece;
  std::size_t told = 0;
  for (int64_t read_bytes = 0; read_bytes < kReadBytesMax;) {
    const ssize_t got = ::pread(file.descriptor, piece.data(), piece.size(), file.offset);
    if (got <= 0) break;
    file.offset += got;
    read_bytes += got;
    std::string_view bytes(piece.data(), static_cast<std::size_t>(got));
    if (file.skips_line) {
      const std::size_t end = bytes.find('\n');
      if (end == std::string_view::npos) continue;
      bytes.remove_prefix(end + 1);
      file.skips_line = false;
    }
    for (std::string& line : file.lines.feed(bytes)) {
      if (is_history_) line = history_command(std::move(line));
      if (!line.empty() && told++ < kLinesMax) sink({.origin = file.path, .bytes = std::move(line)});
    }
  }
}

std::string history_command(std::string line) {
  const auto digits = [&](std::size_t from) {
    return std::min(line.find_first_not_of("0123456789", from), line.size());
  };
  if (line.starts_with("#") && line.size() > 1 && digits(1) == line.size()) return {};
  if (!line.starts_with(": ")) return line;
  const std::size_t colon = digits(2);
  if (colon == 2 || colon >= line.size() || line[colon] != ':') return line;
  const std::size_t semicolon = digits(colon + 1);
  return semicolon < line.size() && line[semicolon] == ';' ? line.substr(semicolon + 1) : line;
}

}  // namespace gpusched::pilot
