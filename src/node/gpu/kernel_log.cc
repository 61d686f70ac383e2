#include "node/gpu/kernel_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "log/log.h"

namespace gpusched {
namespace {

constexpr std::size_t kRecordBytes = 8'192;
constexpr std::size_t kTakenAtOnce = 4'096;  ///< Records, or pieces of a file.
constexpr std::size_t kRestBytesMax = 16'384;

/// "6,1234,98765,-;text": the record's number.
std::optional<uint64_t> number_of(std::string_view record) {
  const std::size_t comma = record.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  record.remove_prefix(comma + 1);
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(record.data(), record.data() + record.size(), number);
  if (error != std::errc{} || end == record.data() + record.size() || *end != ',') return std::nullopt;
  return number;
}

}  // namespace

Result<KernelLog> KernelLog::open(const std::string& path, uint64_t position) {
  const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat facts{};
  if (file < 0 || fstat(file, &facts) != 0) {
    const std::string why = std::strerror(errno);
    if (file >= 0) close(file);
    return Error{.code = ErrorCode::kUnavailable, .message = "cannot read " + path + ": " + why};
  }
  const bool records = S_ISCHR(facts.st_mode);
  if (!records && position == 0) position = static_cast<uint64_t>(facts.st_size);
  return KernelLog(file, records, position);
}

KernelLog::KernelLog(KernelLog&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      records_(other.records_),
      position_(other.position_),
      rest_(std::move(other.rest_)) {}

KernelLog::~KernelLog() {
  if (file_ >= 0) close(file_);
}

std::vector<XidLine> KernelLog::take() {
  std::vector<XidLine> lines;
  if (records_) {
    take_records(lines);
  } else {
    take_lines(lines);
  }
  return lines;
}

void KernelLog::take_records(std::vector<XidLine>& lines) {
  std::array<char, kRecordBytes> buffer;
  for (std::size_t i = 0; i < kTakenAtOnce; ++i) {
    const ssize_t size = read(file_, buffer.data(), buffer.size());
    if (size < 0 && (errno == EPIPE || errno == EINTR)) continue;  // Records were lost: go on behind them.
    if (size <= 0) return;
    const std::string_view record(buffer.data(), static_cast<std::size_t>(size));
    const std::optional<uint64_t> number = number_of(record);
    if (!number || *number < position_) continue;
    position_ = *number + 1;
    if (std::optional<XidLine> line = parse_xid_line(record)) lines.push_back(std::move(*line));
  }
}

void KernelLog::take_lines(std::vector<XidLine>& lines) {
  struct stat facts{};
  if (fstat(file_, &facts) != 0) return;
  if (static_cast<uint64_t>(facts.st_size) < position_) position_ = 0, rest_.clear();
  std::array<char, kRecordBytes> buffer;
  for (std::size_t i = 0; i < kTakenAtOnce; ++i) {
    const ssize_t size =
        pread(file_, buffer.data(), buffer.size(), static_cast<off_t>(position_ + rest_.size()));
    if (size <= 0) return;
    rest_.append(buffer.data(), static_cast<std::size_t>(size));
    std::size_t from = 0;
    for (std::size_t end = 0; (end = rest_.find('\n', from)) != std::string::npos; from = end + 1) {
      const std::string_view text = std::string_view(rest_).substr(from, end - from);
      if (std::optional<XidLine> line = parse_xid_line(text)) lines.push_back(std::move(*line));
    }
    if (rest_.size() - from > kRestBytesMax) from = rest_.size();  // No line is as long.
    position_ += from;
    rest_.erase(0, from);
  }
}

std::string FaultFile::load() {
  std::ifstream file(path_, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

void FaultFile::save(const std::string& text) {
  const std::string fresh = path_ + ".new";
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = file >= 0 &&
                       write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fdatasync(file) == 0;
  if (file >= 0) close(file);
  if (written && std::rename(fresh.c_str(), path_.c_str()) == 0) return;
  log_event(LogLevel::kError, "agent", "faults_not_kept", {},
            {{"file", path_}, {"why", std::strerror(errno)}});
}

}  // namespace gpusched
