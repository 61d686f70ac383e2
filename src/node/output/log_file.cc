#include "node/output/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/civil_time.h"
#include "shim/attempt/log_bound.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr std::size_t kBlockBytes = 1 << 20;
constexpr std::size_t kTailBlockBytes = 256 << 10;
constexpr int64_t kTailBytesMax = int64_t{256} << 20;
constexpr int64_t kGrepBytesAtOnce = int64_t{64} << 20;
constexpr int64_t kLineBackMax = 64 << 10;

LogTrouble not_ours(const std::string& name) {
  return {.code = "log_not_found",
          .message =
              "the job has replaced its " + name + " with something that is not a regular file of its own"};
}

/// A link stands where the job's output goes to a file that it named.
LogTrouble elsewhere(int folder, const char* name) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = readlinkat(folder, name, target.data(), target.size() - 1);
  if (size <= 0) return not_ours(name);
  return {.code = "log_elsewhere",
          .message = std::string("the job writes its ") + name + " to " + target.data() +
                     " on its node, and the agent keeps no copy; read it there"};
}

/// When lines were there, by their offsets, which are asked for in their order.
class LineTimes {
 public:
  /// `otherwise`: for what is behind the last record.
  LineTimes(std::vector<shim::LogTime> times, bool of_stderr, int64_t otherwise)
      : times_(std::move(times)), stream_(of_stderr ? 1 : 0), otherwise_(otherwise) {}

  /// "2026-01-31T09:00:00Z " for the line that begins at the offset.
  std::string prefix(int64_t offset) {
    while (next_ < times_.size() && times_[next_].sizes[stream_] <= offset) ++next_;
    const int64_t unix_ns = next_ < times_.size() ? times_[next_].unix_ns : otherwise_;
    return utc_text(Time{unix_ns}) + " ";
  }

 private:
  std::vector<shim::LogTime> times_;
  std::size_t stream_;
  int64_t otherwise_;
  std::size_t next_ = 0;
};

/// The lines of `lines`, which begin at `base`, that hold `text`. `times` may be null.
void take_lines(std::string_view lines, int64_t base, std::string_view text, std::size_t size_max,
                LineTimes* times, LogLines& found) {
  std::size_t at = 0;
  while (at < lines.size()) {
    const void* const hit = memmem(lines.data() + at, lines.size() - at, text.data(), text.size());
    if (hit == nullptr) break;
    const auto where = static_cast<std::size_t>(static_cast<const char*>(hit) - lines.data());
    const std::size_t before = text.empty() ? std::string_view::npos : lines.rfind('\n', where);
    const std::size_t from = std::max(before == std::string_view::npos ? 0 : before + 1, at);
    const std::size_t after = lines.find('\n', where);
    const std::size_t to = after == std::string_view::npos ? lines.size() : after + 1;
    if (found.data.empty()) found.first = base + static_cast<int64_t>(from);
    if (times != nullptr) found.data += times->prefix(base + static_cast<int64_t>(from));
    found.data += lines.substr(from, to - from);
    at = to;
    if (found.data.size() < size_max) continue;
    found.next = base + static_cast<int64_t>(at);
    found.more = true;
    return;
  }
  found.next = base + static_cast<int64_t>(lines.size());
}

}  // namespace

std::variant<LogFile, LogTrouble> LogFile::open(const std::string& folder, bool of_stderr) {
  const char* const name = of_stderr ? shim::kStderrFile : shim::kStdoutFile;
  const int parent = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (parent < 0) {
    if (errno == ENOENT) return LogTrouble{};
    return LogTrouble{.code = "log_not_found",
                      .message = "cannot open " + folder + ": " + std::strerror(errno)};
  }
  // Never follow a link, never wait for a pipe.
  const int file = openat(parent, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const int error = errno;
  struct stat facts{};
  std::optional<LogTrouble> trouble;
  if (file < 0 && error == ELOOP) {
    trouble = elsewhere(parent, name);
  } else if (file < 0 && error == ENOENT) {
    trouble.emplace();
  } else if (file < 0) {
    trouble = {
        .code = "log_not_found",
        .message = std::string("cannot open the ") + name + " in " + folder + ": " + std::strerror(error)};
  } else if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    trouble = not_ours(name);
  }
  close(parent);
  if (trouble) {
    if (file >= 0) close(file);
    return std::move(*trouble);
  }
  LogFile log(folder, of_stderr, file);
  log.refresh();
  return log;
}

LogFile::LogFile(LogFile&& other) noexcept
    : folder_(std::move(other.folder_)),
      of_stderr_(other.of_stderr_),
      file_(std::exchange(other.file_, -1)),
      size_(other.size_),
      blocks_bytes_(other.blocks_bytes_),
      modified_unix_ns_(other.modified_unix_ns_) {}

LogFile::~LogFile() {
  if (file_ >= 0) close(file_);
}

void LogFile::refresh() {
  struct stat facts{};
  if (fstat(file_, &facts) != 0) return;
  size_ = facts.st_size;
  blocks_bytes_ = int64_t{facts.st_blocks} * 512;
  modified_unix_ns_ = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
}

int64_t LogFile::oldest() const {
  if (blocks_bytes_ >= size_) return 0;
  const off_t data = lseek(file_, 0, SEEK_DATA);
  if (data >= 0) return data;
  return errno == ENXIO ? size_ : 0;
}

std::string LogFile::read(int64_t offset, std::size_t size_max) const {
  std::string data;
  if (offset >= size_) return data;
  data.resize(std::min(size_max, static_cast<std::size_t>(size_ - offset)));
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t got =
        pread(file_, data.data() + done, data.size() - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  data.resize(done);
  return data;
}

int64_t LogFile::tail(int64_t lines) const {
  const int64_t stop = std::max(oldest(), size_ - kTailBytesMax);
  int64_t end = size_;
  // The line feed at the very end begins no line.
  if (end > stop && read(end - 1, 1) == "\n") end -= 1;
  while (end > stop) {
    const int64_t from = std::max(stop, end - static_cast<int64_t>(kTailBlockBytes));
    const std::string block = read(from, static_cast<std::size_t>(end - from));
    for (std::size_t at = block.rfind('\n'); at != std::string::npos;
         at = at == 0 ? std::string::npos : block.rfind('\n', at - 1)) {
      if (--lines == 0) return from + static_cast<int64_t>(at) + 1;
    }
    end = from;
  }
  return stop;
}

int64_t LogFile::since(int64_t unix_ns) const {
  if (modified_unix_ns_ < unix_ns) return size_;
  int64_t offset = 0;
  int64_t before = 0;
  for (const shim::LogTime& time : times()) {
    if (time.unix_ns < before) return 0;  // A clock that stepped back, or a job that wrote there: all of it.
    before = time.unix_ns;
    if (time.unix_ns <= unix_ns) offset = time.sizes[of_stderr_ ? 1 : 0];
  }
  return line_begin(std::clamp<int64_t>(offset, 0, size_));
}

std::vector<shim::LogTime> LogFile::times() const {
  const int file =
      ::open((folder_ + "/" + shim::kLogTimesFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return {};
  std::vector<shim::LogTime> times(shim::LogBound::kTimesMax);
  const ssize_t got = pread(file, times.data(), times.size() * sizeof(shim::LogTime), 0);
  close(file);
  times.resize(got <= 0 ? 0 : static_cast<std::size_t>(got) / sizeof(shim::LogTime));
  return times;
}

int64_t LogFile::line_begin(int64_t offset) const {
  if (offset <= 0) return 0;
  const int64_t from = std::max<int64_t>(0, offset - kLineBackMax);
  const std::string block = read(from, static_cast<std::size_t>(offset - from));
  const std::size_t feed = block.rfind('\n');
  return feed == std::string::npos ? offset : from + static_cast<int64_t>(feed) + 1;
}

LogLines LogFile::grep(int64_t offset, std::string_view text, std::size_t size_max, bool partial,
                       bool timestamps) const {
  std::optional<LineTimes> times;
  if (timestamps) times.emplace(this->times(), of_stderr_, modified_unix_ns_);
  LogLines found{.first = offset, .next = offset};
  while (found.next < size_) {
    if (found.next - offset >= kGrepBytesAtOnce) {
      found.more = true;
      break;
    }
    const std::string block = read(found.next, kBlockBytes);
    if (block.empty()) break;
    const bool full = block.size() == kBlockBytes;
    const std::size_t feed = block.rfind('\n');
    std::size_t end = feed == std::string::npos ? 0 : feed + 1;
    if ((end == 0 && full) || (!full && partial)) end = block.size();
    if (end == 0) break;
    take_lines(std::string_view(block).substr(0, end), found.next, text, size_max, times ? &*times : nullptr,
               found);
    if (found.more) break;
  }
  if (found.data.empty()) found.first = offset;
  return found;
}

}  // namespace gpusched
