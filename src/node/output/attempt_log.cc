#include "node/output/attempt_log.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "log/log.h"

namespace gpusched {
namespace {

constexpr std::string_view kMagic = "GPUATT02";
/// Before attempts' devices were named by uuid.
constexpr std::string_view kMagicBefore = "GPUATT01";
constexpr std::string_view kMagicOfAnyVersion = "GPUATT";
constexpr std::size_t kFrameBytes = 8;
constexpr std::size_t kRecordBytesMax = 1 << 20;
constexpr uint8_t kSnapshotBegin = 100;
constexpr uint8_t kSnapshotEnd = 101;
constexpr uint64_t kReserveBytes = 1 << 20;

[[noreturn]] void disk_failed(const std::string& what) {
  log_event(LogLevel::kError, "agent", "disk_failed", {}, {{"what", what}});
  log_flush();
  std::fprintf(stderr, "gpu-agent: %s; jobs continue, start the agent again once the disk works\n",
               what.c_str());
  std::_Exit(74);
}

std::string frame(std::string_view payload) {
  std::string bytes;
  ByteWriter out(bytes);
  out.fixed32(static_cast<uint32_t>(payload.size()));
  out.fixed32(crc32c(payload.data(), payload.size()));
  bytes += payload;
  return bytes;
}

/// The next whole record; nothing at the end or at a torn or damaged one.
std::optional<std::string_view> next_frame(std::string_view& bytes) {
  if (bytes.size() < kFrameBytes) return std::nullopt;
  ByteReader in(bytes);
  const uint32_t size = in.fixed32();
  const uint32_t sum = in.fixed32();
  if (size == 0 || size > kRecordBytesMax || size > in.remaining()) return std::nullopt;
  const std::string_view payload = bytes.substr(kFrameBytes, size);
  if (crc32c(payload.data(), payload.size()) != sum) return std::nullopt;
  bytes.remove_prefix(kFrameBytes + size);
  return payload;
}

/// How far the next whole record is behind a damaged one; all of them when there is none.
std::size_t bytes_to_next_frame(std::string_view bytes) {
  for (std::size_t at = 1; at + kFrameBytes <= bytes.size(); ++at) {
    std::string_view rest = bytes.substr(at);
    if (next_frame(rest)) return at;
  }
  return bytes.size();
}

std::vector<uint64_t> segment_numbers(const std::string& folder) {
  std::vector<uint64_t> numbers;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    uint64_t number = 0;
    if (!name.starts_with("attempts.") || !name.ends_with(".log")) continue;
    const char* const from = name.data() + 9;
    const char* const to = name.data() + name.size() - 4;
    const auto [end, error] = std::from_chars(from, to, number);
    if (error == std::errc{} && end == to) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

void sync_folder(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0 || fsync(file) != 0) disk_failed("cannot sync " + folder + ": " + errno_words());
  close(file);
}

}  // namespace

std::string encode_store_record(const StoreRecord& record) {
  std::string bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(record.kind));
  out.varint(record.key.job.value);
  out.varint(record.key.attempt);
  out.varint(record.key.member);
  switch (record.kind) {
    case StoreRecord::Kind::kBoot:
      out.bytes(record.boot_id);
      out.varint(record.epoch);
      break;
    case StoreRecord::Kind::kIntent:
      out.varint(record.devices.size());
      for (const HeldDevice& device : record.devices) {
        out.varint(device.index);
        out.varint(device.generation);
      }
      out.bytes(record.user);
      out.varint(record.cores.size());
      for (const uint32_t core : record.cores) out.varint(core);
      out.svarint(record.placed_at_ns);
      for (const HeldDevice& device : record.devices) {
        if (!device.is_share()) continue;
        out.varint(static_cast<uint64_t>(device.milli));
        out.varint(static_cast<uint64_t>(device.memory_mb));
      }
      if (std::none_of(record.devices.begin(), record.devices.end(),
                       [](const HeldDevice& device) { return device.is_slice(); }))
        break;
      for (const HeldDevice& device : record.devices) {
        out.bytes(device.mig_profile);
        out.varint(static_cast<uint64_t>(device.mig_start));
      }
      break;
    case StoreRecord::Kind::kDevices:
      out.varint(record.device_uuids.size());
      for (const std::string& uuid : record.device_uuids) out.bytes(uuid);
      break;
    case StoreRecord::Kind::kStarted:
      out.svarint(record.pid);
      out.svarint(record.started_unix_ns);
      out.svarint(record.shim.pid);
      out.varint(record.shim.start_ticks);
      if (!record.identity) break;
      out.varint(record.identity->uid);
      out.varint(record.identity->gid);
      out.varint(record.identity->groups.size());
      for (const uint32_t group : record.identity->groups) out.varint(group);
      break;
    case StoreRecord::Kind::kEnded:
      out.bytes(record.outcome.SerializeAsString());
      break;
    case StoreRecord::Kind::kProlog:
    case StoreRecord::Kind::kAcked:
    case StoreRecord::Kind::kClosed:
    case StoreRecord::Kind::kForgotten:
      break;
  }
  return bytes;
}

std::optional<StoreRecord> decode_store_record(std::string_view bytes) {
  ByteReader in(bytes);
  StoreRecord record;
  const uint8_t kind = in.u8();
  if (kind < 1 || kind > 9) return std::nullopt;
  record.kind = static_cast<StoreRecord::Kind>(kind);
  record.key.job = JobId{in.varint()};
  record.key.attempt = static_cast<uint32_t>(in.varint());
  record.key.member = static_cast<uint32_t>(in.varint());
  switch (record.kind) {
    case StoreRecord::Kind::kBoot:
      record.boot_id = std::string(in.bytes());
      record.epoch = in.varint();
      break;
    case StoreRecord::Kind::kIntent:
      for (uint64_t count = in.varint(); count > 0 && in.ok(); --count) {
        HeldDevice device;
        device.index = static_cast<uint32_t>(in.varint());
        device.generation = static_cast<uint32_t>(in.varint());
        record.devices.push_back(device);
      }
      if (in.at_end()) break;  // Written before attempts had boxes.
      record.user = std::string(in.bytes());
      for (uint64_t count = in.varint(); count > 0 && in.ok(); --count) {
        record.cores.push_back(static_cast<uint32_t>(in.varint()));
      }
      if (!in.at_end()) record.placed_at_ns = in.svarint();  // Older agents did not write it.
      // An attempt has shares of its devices, or has them whole.
      for (std::size_t i = 0; i < record.devices.size() && !in.at_end(); ++i) {
        record.devices[i].share_of = record.key;
        record.devices[i].milli = static_cast<int32_t>(in.varint());
        record.devices[i].memory_mb = static_cast<int64_t>(in.varint());
      }
      for (std::size_t i = 0; i < record.devices.size() && !in.at_end(); ++i) {
        record.devices[i].mig_profile = std::string(in.bytes());
        record.devices[i].mig_start = static_cast<int32_t>(in.varint());
      }
      break;
    case StoreRecord::Kind::kDevices:
      for (uint64_t count = in.varint(); count > 0 && in.ok(); --count)
        record.device_uuids.emplace_back(in.bytes());
      break;
    case StoreRecord::Kind::kStarted:
      record.pid = in.svarint();
      record.started_unix_ns = in.svarint();
      if (in.at_end()) break;  // Older agents wrote no more.
      record.shim.pid = in.svarint();
      record.shim.start_ticks = in.varint();
      if (in.at_end()) break;
      record.identity.emplace();
      record.identity->uid = static_cast<uint32_t>(in.varint());
      record.identity->gid = static_cast<uint32_t>(in.varint());
      for (uint64_t count = in.varint(); count > 0 && in.ok(); --count) {
        record.identity->groups.push_back(static_cast<uint32_t>(in.varint()));
      }
      break;
    case StoreRecord::Kind::kEnded:
      if (!record.outcome.ParseFromString(std::string(in.bytes()))) in.fail();
      break;
    case StoreRecord::Kind::kProlog:
    case StoreRecord::Kind::kAcked:
    case StoreRecord::Kind::kClosed:
    case StoreRecord::Kind::kForgotten:
      break;
  }
  if (!in.ok()) return std::nullopt;
  return record;
}

Result<std::unique_ptr<AttemptLog>> AttemptLog::open(const std::string& data_folder) {
  std::unique_ptr<AttemptLog> log(new AttemptLog(data_folder));
  if (const Result<Unit> loaded = log->load(); !loaded) return loaded.error();
  Result<Unit> begun = log->begin_segment();
  const auto is_full = [&begun] { return !begun && begun.error().code == ErrorCode::kStorageFull; };
  if (is_full() && log->give_up_reserve()) begun = log->begin_segment();
  if (is_full() && log->whole_segment_ > 0) begun = log->go_on_in_old_segment();
  if (!begun) return begun.error();
  if (fdatasync(log->file_) != 0) {
    return Error{.code = ErrorCode::kIo, .message = "cannot sync " + data_folder + ": " + errno_words()};
  }
  sync_folder(data_folder);
  log->remove_segments_before(log->segment_);
  log->segment_is_new_ = false;
  log->make_reserve();
  log->synced_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(log->synced_event_ >= 0);
  log->syncer_ = std::thread([raw = log.get()] { raw->run_sync(); });
  return log;
}

AttemptLog::~AttemptLog() {
  if (syncer_.joinable()) {
    flush();
    sync();
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    syncer_.join();
  }
  if (file_ >= 0) close(file_);
  if (synced_event_ >= 0) close(synced_event_);
}

std::string AttemptLog::segment_path(uint64_t number) const {
  return data_folder_ + "/attempts." + std::to_string(number) + ".log";
}

Result<Unit> AttemptLog::load() {
  for (const uint64_t number : segment_numbers(data_folder_)) {
    if (const Result<Unit> loaded = load_segment(number); !loaded) return loaded;
    segment_ = number;
  }
  return Unit{};
}

Result<Unit> AttemptLog::load_segment(uint64_t number) {
  std::ifstream in(segment_path(number), std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return Error{.code = ErrorCode::kIo, .message = "cannot read " + segment_path(number)};
  std::string_view rest = text;
  if (!rest.starts_with(kMagic) && !rest.starts_with(kMagicBefore)) {
    if (!rest.starts_with(kMagicOfAnyVersion))
      return Unit{};  // Torn before its first record: older ones hold all.
    return Error{.code = ErrorCode::kVersion,
                 .message = segment_path(number) + " was written by a newer gpu-agent: start that version"};
  }
  take_segment(text, number);
  return Unit{};
}

void AttemptLog::take_segment(std::string_view text, uint64_t number) {
  std::string_view rest = text.substr(kMagic.size());
  std::optional<std::vector<StoreRecord>> snapshot;  // It counts when it is whole.
  bool damaged = false;                              // Inside the snapshot that is read.
  std::size_t passed_over = 0;
  while (!rest.empty()) {
    const std::optional<std::string_view> payload = next_frame(rest);
    const std::optional<StoreRecord> record = payload ? decode_store_record(*payload) : std::nullopt;
    const uint8_t kind = payload ? static_cast<uint8_t>(payload->front()) : uint8_t{0};
    if (kind == kSnapshotBegin) {
      snapshot.emplace();
      damaged = false;
    } else if (kind == kSnapshotEnd && snapshot) {
      if (!damaged) image_ = StoreImage{};
      for (const StoreRecord& one : *snapshot) image_.apply(one);
      snapshot.reset();
      whole_segment_ = number;
    } else if (record && snapshot) {
      snapshot->push_back(*record);
    } else if (record) {
      image_.apply(*record);
    } else if (!payload) {
      const std::size_t skipped = bytes_to_next_frame(rest);
      if (skipped == rest.size()) break;
      rest.remove_prefix(skipped);
      passed_over += skipped;
      damaged = true;
    } else {
      damaged = true;
    }
  }
  if (whole_segment_ == number) whole_bytes_ = text.size() - rest.size();
  if (passed_over > 0) {
    log_event(LogLevel::kError, "agent", "records_damaged", {},
              {{"file", segment_path(number)},
               {"bytes", passed_over},
               {"why", "the damaged records are lost; the records after them were read"}});
  }
  if (rest.empty()) return;
  log_event(LogLevel::kWarning, "agent", "torn_tail_cut", {},
            {{"file", segment_path(number)}, {"offset", text.size() - rest.size()}, {"bytes", rest.size()}});
}

namespace {

/// Hands over the records that an attempt consists of, but for that it is closed.
template <typename Add>
void add_attempt(const AttemptKey& key, const StoredAttempt& attempt, Add&& add) {
  add({.kind = StoreRecord::Kind::kIntent,
       .key = key,
       .devices = attempt.devices,
       .user = attempt.user,
       .cores = attempt.cores,
       .placed_at_ns = attempt.placed_at_ns});
  if (!attempt.device_uuids.empty())
    add({.kind = StoreRecord::Kind::kDevices, .key = key, .device_uuids = attempt.device_uuids});
  if (attempt.prolog) add({.kind = StoreRecord::Kind::kProlog, .key = key});
  if (attempt.pid != 0) {
    add({.kind = StoreRecord::Kind::kStarted,
         .key = key,
         .pid = attempt.pid,
         .started_unix_ns = attempt.started_unix_ns,
         .identity = attempt.identity,
         .shim = attempt.shim});
  }
  if (attempt.outcome) add({.kind = StoreRecord::Kind::kEnded, .key = key, .outcome = *attempt.outcome});
  if (attempt.acked) add({.kind = StoreRecord::Kind::kAcked, .key = key});
}

}  // namespace

std::string AttemptLog::snapshot() const {
  std::string bytes(kMagic);
  const auto add = [&bytes](const StoreRecord& record) { bytes += frame(encode_store_record(record)); };
  const auto add_attempts = [&](bool of_earlier_boot) {
    for (const auto& [key, attempt] : image_.attempts) {
      if (attempt.of_earlier_boot == of_earlier_boot) add_attempt(key, attempt, add);
    }
  };
  bytes += frame(std::string(1, static_cast<char>(kSnapshotBegin)));
  // Attempts before the record of the boot are of earlier ones.
  add_attempts(true);
  if (image_.epoch > 0) {
    add({.kind = StoreRecord::Kind::kBoot, .boot_id = image_.boot_id, .epoch = image_.epoch});
  }
  add_attempts(false);
  for (const AttemptKey& key : image_.closed) {
    if (image_.attempts.contains(key)) add({.kind = StoreRecord::Kind::kClosed, .key = key});
  }
  bytes += frame(std::string(1, static_cast<char>(kSnapshotEnd)));
  return bytes;
}

Result<Unit> AttemptLog::begin_segment() {
  const uint64_t number = segment_ + 1;
  const std::string path = segment_path(number);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
  if (file < 0)
    return Error{.code = ErrorCode::kIo, .message = "cannot create " + path + ": " + errno_words()};
  const std::string bytes = snapshot();
  if (write_some(file, bytes) != bytes.size()) {
    close(file);
    unlink(path.c_str());
    return Error{.code = ErrorCode::kStorageFull,
                 .message = "the disk of " + data_folder_ + " is full; free some space there"};
  }
  segment_bytes_ = bytes.size();
  reserved_bytes_ = 0;
  reserve(file);
  // Only now: a sync of this file stands for everything before it, and lets older segments go.
  const std::lock_guard lock(mutex_);
  if (file_ >= 0) close(file_);
  file_ = file;
  segment_ = number;
  segment_is_new_ = true;
  return Unit{};
}

/// Goes on in the old segment: preallocated space behind its end, and what the next writes find, must do.
Result<Unit> AttemptLog::go_on_in_old_segment() {
  const std::string path = segment_path(whole_segment_);
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0 || lseek(file, static_cast<off_t>(whole_bytes_), SEEK_SET) < 0) {
    if (file >= 0) close(file);
    return Error{.code = ErrorCode::kIo, .message = "cannot open " + path + ": " + errno_words()};
  }
  struct stat facts{};
  if (fstat(file, &facts) == 0) reserved_bytes_ = static_cast<uint64_t>(facts.st_blocks) * 512;
  log_event(LogLevel::kError, "agent", "disk_full", {},
            {{"file", path},
             {"why", "no space for a new segment: continuing in the old one; free some space there"}});
  // One that was begun and never became whole has nothing that this one lacks.
  for (const uint64_t number : segment_numbers(data_folder_)) {
    if (number > whole_segment_) unlink(segment_path(number).c_str());
  }
  segment_ = whole_segment_;
  segment_bytes_ = whole_bytes_;
  file_ = file;
  return Unit{};
}

bool AttemptLog::give_up_reserve() { return unlink((data_folder_ + "/reserve").c_str()) == 0; }

/// Makes the reserve of real blocks: a file of holes keeps nothing free.
void AttemptLog::make_reserve() const {
  const std::string path = data_folder_ + "/reserve";
  struct stat facts{};
  if (stat(path.c_str(), &facts) == 0 && static_cast<uint64_t>(facts.st_blocks) * 512 >= kReserveFileBytes)
    return;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  const bool made = fallocate(file, 0, 0, static_cast<off_t>(kReserveFileBytes)) == 0;
  close(file);
  if (!made) unlink(path.c_str());
}

void AttemptLog::remove_segments_before(uint64_t number) const {
  for (const uint64_t old : segment_numbers(data_folder_)) {
    if (old < number) unlink(segment_path(old).c_str());
  }
}

uint64_t AttemptLog::append(const StoreRecord& record) {
  buffer_ += frame(encode_store_record(record));
  image_.apply(record);
  return ++position_;
}

bool AttemptLog::flush() {
  const bool replaced = segment_bytes_ + buffer_.size() > segment_bytes_max_ && replace_segment();
  if (!replaced) {
    segment_bytes_ += buffer_.size();
    reserve(file_);
    std::size_t written = write_some(file_, buffer_);
    if (written < buffer_.size() && give_up_reserve())
      written += write_some(file_, std::string_view(buffer_).substr(written));
    if (written < buffer_.size()) {
      segment_bytes_ -= buffer_.size() - written;
      buffer_.erase(0, written);  // The rest of a record may wait: it is read as torn until it comes.
      return false;
    }
  }
  buffer_.clear();
  flushed_ = position_;
  return true;
}

/// The snapshot holds what the buffer says, so that the buffer need not be written.
bool AttemptLog::replace_segment() {
  if (const Result<Unit> begun = begin_segment(); !begun) {
    if (begun.error().code != ErrorCode::kStorageFull) disk_failed(begun.error().message);
    return false;
  }
  // A snapshot as large as a segment would be written again at once: the limit follows what must be kept.
  segment_bytes_max_ = std::max(segment_bytes_max_, segment_bytes_ * 4);
  buffer_.clear();
  flushed_ = position_;
  make_reserve();
  sync();
  return true;
}

/// Room for the next records, so that ends are recorded though a job filled the disk meanwhile.
void AttemptLog::reserve(int file) {
  if (segment_bytes_ + kReserveBytes / 2 <= reserved_bytes_) return;
  const auto end = static_cast<off_t>(segment_bytes_ + kReserveBytes);
  // If that is not possible, records wait for room, and what relies on them with them.
  if (fallocate(file, FALLOC_FL_KEEP_SIZE, 0, end) == 0) reserved_bytes_ = segment_bytes_ + kReserveBytes;
}

/// How many bytes the disk had room for.
std::size_t AttemptLog::write_some(int file, std::string_view bytes) const {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == ENOSPC || errno == EDQUOT) break;
    disk_failed("cannot write to " + data_folder_ + ": " + errno_words());
  }
  return done;
}

void AttemptLog::sync() {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = std::max(wanted_, flushed_);
  }
  wake_.notify_one();
}

void AttemptLog::run_sync() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || segment_is_new_ || wanted_ > synced_position(); });
    if (wanted_ <= synced_position() && !segment_is_new_) return;
    const uint64_t position = wanted_;
    const uint64_t number = segment_;
    const bool is_new = segment_is_new_;
    const int file = dup(file_);  // The writer may begin a new segment meanwhile.
    lock.unlock();
    if (file < 0 || fdatasync(file) != 0)
      disk_failed("cannot sync " + segment_path(number) + ": " + errno_words());
    close(file);
    if (is_new) {
      sync_folder(data_folder_);
      remove_segments_before(number);
    }
    lock.lock();
    if (is_new && number == segment_) segment_is_new_ = false;
    synced_.store(position, std::memory_order_release);
    const uint64_t one = 1;
    if (write(synced_event_, &one, sizeof one) < 0) CHECK(errno == EAGAIN);
  }
}

}  // namespace gpusched
