#include "journal/spare_segments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

namespace gpusched {
namespace {

constexpr std::size_t kSegmentDigits = 16;
constexpr std::string_view kSegmentSuffix = ".seg";
/// Between two of these the disk serves commits: a whole segment at once would delay them.
constexpr uint64_t kFillStepBytes = 1u << 20;

}  // namespace

std::string segment_name(uint64_t index) {
  std::string digits = std::to_string(index);
  CHECK(digits.size() <= kSegmentDigits);
  return std::string(kSegmentDigits - digits.size(), '0') + digits + std::string(kSegmentSuffix);
}

std::optional<uint64_t> parse_segment_name(const std::string& name) {
  if (name.size() != kSegmentDigits + kSegmentSuffix.size() || !name.ends_with(kSegmentSuffix))
    return std::nullopt;
  uint64_t index = 0;
  const char* end = name.data() + kSegmentDigits;
  const auto parsed = std::from_chars(name.data(), end, index);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return index;
}

SpareSegments::SpareSegments(Disk& disk, Options options, uint64_t next_index, std::deque<SpareSegment> ready)
    : disk_(disk), options_(std::move(options)), ready_(std::move(ready)), next_index_(next_index) {
  CHECK(options_.segment_bytes > 0);
  if (options_.background) thread_ = std::thread([this] { run(); });
}

SpareSegments::~SpareSegments() {
  stopping_ = true;
  {
    const std::lock_guard guard(mutex_);
    work_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Result<SpareSegment> SpareSegments::take() {
  std::unique_lock lock(mutex_);
  const Result<Unit> there = wait_for_one(lock);
  if (!there) return there.error();
  SpareSegment spare = std::move(ready_.front());
  ready_.pop_front();
  work_.notify_all();
  return spare;
}

Result<Unit> SpareSegments::check_room() {
  std::unique_lock lock(mutex_);
  return wait_for_one(lock);
}

Result<Unit> SpareSegments::wait_for_one(std::unique_lock<std::mutex>& lock) {
  if (!options_.background) {
    while (step(lock, true)) {
    }
  }
  done_.wait(lock, [this] { return failure_.has_value() || ready_.size() > options_.reserve; });
  if (!ready_.empty()) return Unit{};
  return Error{
      .code = ErrorCode::kStorageFull,
      .message = "the journal's reserve is used up and no segment can be added: " + failure_->message};
}

void SpareSegments::wait_for_reserve() {
  std::unique_lock lock(mutex_);
  if (!options_.background) {
    while (step(lock, true)) {
    }
  }
  done_.wait(lock, [this] { return failure_.has_value() || ready_.size() >= options_.reserve; });
}

void SpareSegments::discard(std::vector<std::string> paths) {
  {
    const std::lock_guard guard(mutex_);
    for (std::string& path : paths) discarded_.push_back(std::move(path));
    retry_removals();
    retry_now_ = true;
    work_.notify_all();
  }
  if (!options_.background) maintain();
}

void SpareSegments::maintain() {
  std::unique_lock lock(mutex_);
  retry_removals();
  retry_now_ = true;
  if (options_.background) {
    work_.notify_all();
    return;
  }
  while (step(lock, true)) {
  }
}

std::string SpareSegments::reason() const {
  const std::lock_guard guard(mutex_);
  return failure_ ? failure_->message : std::string();
}

uint32_t SpareSegments::ready() const {
  const std::lock_guard guard(mutex_);
  return static_cast<uint32_t>(ready_.size());
}

void SpareSegments::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool retry_failed = std::exchange(retry_now_, false);
    if (step(lock, retry_failed)) continue;
    const auto due = [this] {
      return stopping_ || retry_now_ || !discarded_.empty() || (short_of_spares() && !failure_);
    };
    if (!failure_ && undeleted_.empty()) {
      work_.wait(lock, due);
      continue;
    }
    if (work_.wait_for(lock, std::chrono::nanoseconds(options_.retry.ns), due)) continue;
    retry_now_ = true;
    retry_removals();
  }
}

void SpareSegments::retry_removals() {
  for (std::string& path : undeleted_) discarded_.push_back(std::move(path));
  undeleted_.clear();
}

bool SpareSegments::step(std::unique_lock<std::mutex>& lock, bool retry_failed) {
  if (!discarded_.empty()) {
    std::string path = std::move(discarded_.front());
    discarded_.pop_front();
    lock.unlock();
    // Not synced: a file that stays or comes back does no harm, since the folder says what is not needed.
    const Result<Unit> removed = disk_.remove(path);
    lock.lock();
    if (!removed && removed.error().code != ErrorCode::kNotFound) undeleted_.push_back(std::move(path));
    return true;
  }
  if (!short_of_spares()) return false;
  if (failure_ && !retry_failed) return false;
  const uint64_t index = next_index_;
  lock.unlock();
  Result<SpareSegment> made = make(index);
  lock.lock();
  if (stopping_) return false;
  if (made) {
    next_index_ += 1;
    ready_.push_back(std::move(*made));
    // One that fits says nothing about the rest of the reserve.
    if (!short_of_spares()) failure_.reset();
    retry_now_ = failure_.has_value();
  } else {
    failure_ = made.error();
  }
  space_.store(failure_ ? JournalSpace::kReserveOnly : JournalSpace::kOpen, std::memory_order_relaxed);
  done_.notify_all();
  return made.ok();
}

Result<SpareSegment> SpareSegments::make(uint64_t index) {
  SpareSegment spare{.index = index,
                     .path = options_.dir + "/" + segment_name(index),
                     .bytes = options_.segment_bytes,
                     .file = nullptr};
  if (options_.lock != nullptr) {
    const Result<Unit> ours = options_.lock->check();
    if (!ours) return ours.error();
  }
  const std::string temporary = spare.path + ".tmp";
  Result<std::unique_ptr<DiskFile>> file = disk_.open(temporary, DiskOpen::kCreate);
  if (!file) return file.error();
  const Result<Unit> filled = fill(**file);
  if (!filled) {
    (void)disk_.remove(temporary).ok();
    return filled.error();
  }
  const Result<Unit> renamed = disk_.rename(temporary, spare.path);
  if (!renamed) return renamed.error();
  const Result<Unit> synced = disk_.sync_dir(options_.dir);
  if (!synced) return synced.error();
  spare.file = std::move(*file);
  return spare;
}

Result<Unit> SpareSegments::fill(DiskFile& file) {
  Result<Unit> done = file.allocate(options_.segment_bytes);
  for (uint64_t at = 0; done && at < options_.segment_bytes; at += kFillStepBytes) {
    if (stopping_) return Error{.code = ErrorCode::kUnavailable, .message = "the journal is closing"};
    done = write_zeros(file, at, std::min(options_.segment_bytes, at + kFillStepBytes));
    if (done) done = file.fdatasync();
  }
  return done;
}

}  // namespace gpusched
