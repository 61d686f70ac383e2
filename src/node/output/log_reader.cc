#include "node/output/log_reader.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/check.h"
#include "node/output/log_file.h"
#include "node/output/log_retention.h"
#include "node/ports/system_clock.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr Duration kWaitMax = minutes(1);
constexpr Duration kAnswerPause = milliseconds(50);    ///< A follower is answered at most once in so long.
constexpr Duration kAbsentPause = milliseconds(50);    ///< Its shim has not made the file yet.
constexpr Duration kNoWatchPause = milliseconds(250);  ///< The kernel has no watch left.
constexpr Duration kSearchPatience = seconds(5);       ///< A longer search says how far it is.
constexpr int32_t kBytesDefault = 64 * 1024;
constexpr int32_t kBytesMax = 1024 * 1024;

Time now_of_clock() { return SystemClock().monotonic(); }

void signal_event(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(event, &one, sizeof one);
}

int32_t size_max_of(const v1::ReadLog& order) {
  return order.size_max() > 0 ? std::min(order.size_max(), kBytesMax) : kBytesDefault;
}

}  // namespace

LogReader::LogReader(std::string data_folder) : data_folder_(std::move(data_folder)) {
  done_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  inotify_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);  // Without one, waiting reads look now and then.
  CHECK(done_event_ >= 0);
  CHECK(wake_event_ >= 0);
}

LogReader::~LogReader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  signal_event(wake_event_);
  if (thread_.joinable()) thread_.join();
  for (const int descriptor : {done_event_, wake_event_, inotify_}) {
    if (descriptor >= 0) close(descriptor);
  }
}

void LogReader::read(const v1::ReadLog& order, AttemptLife life) {
  const Time now = now_of_clock();
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { run(); });
      pthread_setname_np(thread_.native_handle(), "logs");
    }
    const Duration wait = milliseconds(std::clamp<int64_t>(order.wait_ms(), 0, kWaitMax.ms()));
    orders_.push_back({.order = order,
                       .key = from_wire(order.key()),
                       .life = life,
                       .arrived = now,
                       .deadline = now + wait,
                       .due = now});
  }
  signal_event(wake_event_);
}

void LogReader::ended(const AttemptKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;
    ended_.push_back(key);
  }
  signal_event(wake_event_);
}

void LogReader::forget_reads() {
  const std::lock_guard lock(mutex_);
  forget_ = true;
  orders_.clear();
  done_.clear();
}

std::vector<v1::LogChunk> LogReader::take() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(done_event_, &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

// The thread.

void LogReader::run() {
  while (true) {
    pollfd sources[2] = {{.fd = wake_event_, .events = POLLIN, .revents = 0},
                         {.fd = inotify_, .events = POLLIN, .revents = 0}};
    poll(sources, 2, wait_ms(now_of_clock()));
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake_event_, &count, sizeof count);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    take_growth();
    take_orders();
    look(now_of_clock());
  }
}

int LogReader::wait_ms(Time now) const {
  if (dues_.empty()) return -1;
  return static_cast<int>(
      std::clamp<int64_t>(((dues_.begin()->first - now).ns + 999'999) / 1'000'000, 0, INT_MAX));
}

void LogReader::look_at(Reads::iterator read, Time when) {
  dues_.erase({read->second.due, read->first});
  read->second.due = when;
  dues_.insert({when, read->first});
}

void LogReader::take_orders() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(forget_, false)) {
    reads_.clear();
    dues_.clear();
    watchers_.clear();
  }
  for (Read& order : orders_) {
    const Time arrived = order.arrived;
    look_at(reads_.emplace(next_read_++, std::move(order)).first, arrived);
  }
  orders_.clear();
  if (ended_.empty()) return;
  const std::set<AttemptKey> over(ended_.begin(), ended_.end());
  ended_.clear();
  for (auto read = reads_.begin(); read != reads_.end(); ++read) {
    if (!over.contains(read->second.key)) continue;
    read->second.life = AttemptLife::kEnded;
    look_at(read, read->second.arrived);
  }
}

/// A watch fires once: between two answers a job's writing costs nothing here.
void LogReader::take_growth() {
  alignas(inotify_event) std::array<char, 16 * 1024> buffer;
  while (inotify_ >= 0) {
    const ssize_t size = ::read(inotify_, buffer.data(), buffer.size());
    if (size <= 0) return;
    for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(size);) {
      const auto* const event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += sizeof(inotify_event) + event->len;
      const auto found = watchers_.find(event->wd);
      if (found == watchers_.end()) continue;
      for (const uint64_t id : found->second) {
        const auto read = reads_.find(id);
        if (read != reads_.end()) look_at(read, read->second.arrived + kAnswerPause);
      }
      watchers_.erase(found);
    }
  }
}

void LogReader::look(Time now) {
  // Each once: who is not done has its next turn after the others.
  std::vector<uint64_t> due;
  for (auto next = dues_.begin(); next != dues_.end() && next->first <= now; ++next)
    due.push_back(next->second);
  for (const uint64_t id : due) {
    const auto read = reads_.find(id);
    if (!answer(read, now)) continue;
    dues_.erase({read->second.due, id});
    reads_.erase(read);
  }
}

bool LogReader::answer(Reads::iterator at, Time now) {
  Read& read = at->second;
  const bool may_wait = read.life == AttemptLife::kRunning && now < read.deadline;
  if (may_wait && reads_.size() > kWaitingMax) {
    refuse(read, "unavailable", "too many readers follow output on this node; try again later");
    return true;
  }
  const std::string folder = data_folder_ + "/" + shim::kAttemptsFolder + "/" + shim::key_text(read.key);
  std::variant<LogFile, LogTrouble> opened = LogFile::open(folder, read.order.stderr());
  if (LogFile* const file = std::get_if<LogFile>(&opened)) return answer_from(*file, at, now);
  LogTrouble trouble = std::get<LogTrouble>(opened);
  if (trouble.code.empty() && may_wait) {
    look_at(at, std::min(now + kAbsentPause, read.deadline));
    return false;
  }
  if (trouble.code.empty() && read.life != AttemptLife::kRunning) trouble = why_not_there(read);
  if (!trouble.code.empty()) {
    refuse(read, trouble.code, trouble.message);
    return true;
  }
  v1::LogChunk chunk;
  chunk.set_at_end(read.life != AttemptLife::kRunning);  // It never wrote anything.
  finish(read, std::move(chunk));
  return true;
}

LogTrouble LogReader::why_not_there(const Read& read) const {
  const std::string note = removed_log_note(data_folder_, read.key);
  if (!note.empty()) {
    return {
        .code = "log_removed",
        .message = "the output of attempt " + to_string(read.key) + " was removed by retention on " + note};
  }
  if (read.life == AttemptLife::kEnded) return {};
  return {.code = "log_not_found",
          .message = "attempt " + to_string(read.key) + " has no output on this node, or it was removed"};
}

/// Finds where the first answer begins.
void LogReader::begin(const LogFile& file, Read& read) {
  const v1::ReadLog& order = read.order;
  const bool chosen = order.tail_lines() > 0 || order.since_unix_ns() > 0;
  int64_t offset = order.tail_lines() > 0 ? 0 : std::max<int64_t>(order.offset(), 0);
  if (order.since_unix_ns() > 0) offset = std::max(offset, file.since(order.since_unix_ns()));
  if (order.tail_lines() > 0) offset = std::max(offset, file.tail(order.tail_lines()));
  offset = std::min(offset, file.size());
  const int64_t oldest = file.oldest();
  if (oldest > offset && !chosen) read.skipped += oldest - offset;
  read.order.set_offset(std::max(offset, oldest));
  read.began = true;
}

v1::LogChunk LogReader::take_piece(const LogFile& file, const Read& read, bool partial, bool& more) {
  const int64_t offset = read.order.offset();
  const auto size_max = static_cast<std::size_t>(size_max_of(read.order));
  v1::LogChunk chunk;
  chunk.set_offset(offset);
  if (read.order.grep().empty() && !read.order.timestamps()) {
    chunk.set_data(file.read(offset, size_max));
    chunk.set_next_offset(offset + static_cast<int64_t>(chunk.data().size()));
    return chunk;
  }
  LogLines lines = file.grep(offset, read.order.grep(), size_max, partial, read.order.timestamps());
  more = lines.more;
  chunk.set_offset(lines.first);
  chunk.set_next_offset(lines.next);
  chunk.set_data(std::move(lines.data));
  return chunk;
}

bool LogReader::answer_from(LogFile& file, Reads::iterator at, Time now) {
  Read& read = at->second;
  if (!read.began) begin(file, read);
  const bool over = read.life != AttemptLife::kRunning;
  const bool may_wait = !over && now < read.deadline;
  bool more = false;
  v1::LogChunk chunk = take_piece(file, read, over || read.order.wait_ms() <= 0, more);
  const int64_t size_seen = file.size();
  file.refresh();
  if (const int64_t oldest = file.oldest(); oldest > read.order.offset()) {
    // The shim gave bytes back meanwhile: what was read may be a hole.
    read.skipped += oldest - read.order.offset();
    read.order.set_offset(oldest);
    look_at(at, now);
    return false;
  }
  if (chunk.data().empty()) {
    const bool patient = now - read.arrived < kSearchPatience;
    if (more && patient) {
      read.order.set_offset(chunk.next_offset());
      look_at(at, now);
      return false;
    }
    if (!more && may_wait) {
      read.order.set_offset(chunk.next_offset());
      wait_for_growth(file, at, size_seen, now);
      return false;
    }
  }
  chunk.set_at_end(over && chunk.next_offset() >= file.size());
  finish(read, std::move(chunk));
  return true;
}

void LogReader::wait_for_growth(LogFile& file, Reads::iterator at, int64_t size_seen, Time now) {
  // By its descriptor: whatever is under the name now, this is what was read.
  const std::string path = "/proc/self/fd/" + std::to_string(file.descriptor());
  const int watch = inotify_ < 0 ? -1 : inotify_add_watch(inotify_, path.c_str(), IN_MODIFY | IN_ONESHOT);
  if (watch >= 0) {
    std::vector<uint64_t>& waiting = watchers_[watch];
    std::erase_if(waiting, [this](uint64_t id) { return !reads_.contains(id); });  // Answered since.
    waiting.push_back(at->first);
  }
  file.refresh();
  Time due = watch < 0 ? now + kNoWatchPause : kNever;
  if (file.size() != size_seen)
    due = at->second.arrived + kAnswerPause;  // It grew before the watch was there.
  look_at(at, std::min(due, at->second.deadline));
}

void LogReader::refuse(const Read& read, const std::string& code, const std::string& message) {
  v1::LogChunk chunk;
  chunk.set_code(code);
  chunk.set_error(clean_text(message, 4'096));
  finish(read, std::move(chunk));
}

void LogReader::finish(const Read& read, v1::LogChunk chunk) {
  chunk.set_request(read.order.request());
  chunk.set_skipped(read.skipped);
  if (chunk.next_offset() == 0) {
    chunk.set_offset(read.order.offset());
    chunk.set_next_offset(read.order.offset());
  }
  {
    const std::lock_guard lock(mutex_);
    if (forget_) return;
    done_.push_back(std::move(chunk));
  }
  signal_event(done_event_);
}

}  // namespace gpusched
