#include "api/backend/keys/key_uses.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "log/log.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kTitle = "gpu-scheduler key uses 1";
constexpr int64_t kSecondNs = 1'000'000'000;

Error failed(const std::string& what, const std::string& path) {
  return {.code = ErrorCode::kIo, .message = "cannot " + what + " " + path + ": " + std::strerror(errno)};
}

/// "7 1764067500": a key's number, and seconds since 1970.
bool parse_line(std::string_view line, KeyUse& use) {
  int64_t seconds = 0;
  const char* const end = line.data() + line.size();
  const auto number = std::from_chars(line.data(), end, use.key.value);
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != ' ') return false;
  const auto time = std::from_chars(number.ptr + 1, end, seconds);
  if (time.ec != std::errc() || time.ptr != end) return false;
  if (!use.key.valid() || seconds <= 0 || seconds > INT64_MAX / kSecondNs) return false;
  use.at = Time{seconds * kSecondNs};
  return true;
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return ::fsync(file) == 0;
}

}  // namespace

Result<KeyUses> read_key_uses(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) return KeyUses();
  std::ifstream in(path);
  if (!in) return failed("open", path);
  KeyUses uses;
  std::string line;
  bool good = std::getline(in, line) && line == kTitle;
  while (good && std::getline(in, line)) {
    KeyUse use;
    good = parse_line(line, use);
    uses.push_back(use);
  }
  if (good) return uses;
  return Error{.code = ErrorCode::kCorrupt,
               .message = path + " is no list of key uses: the list begins anew, and replaces it"};
}

Result<Unit> write_key_uses(const std::string& path, const KeyUses& uses) {
  std::string text(kTitle);
  text.push_back('\n');
  for (const KeyUse& use : uses) {
    text.append(std::to_string(use.key.value)).append(" ");
    text.append(std::to_string(use.at.ns / kSecondNs)).append("\n");
  }
  const std::string fresh = path + ".new";
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return failed("create", fresh);
  Result<Unit> done = Unit{};
  if (!write_all(file, text)) done = failed("write", fresh);
  ::close(file);
  if (done.ok() && std::rename(fresh.c_str(), path.c_str()) != 0) done = failed("rename", fresh);
  if (!done.ok()) ::unlink(fresh.c_str());
  return done;
}

KeyUseKeeper::KeyUseKeeper(std::string path, Duration every, std::function<KeyUses()> look)
    : path_(std::move(path)), every_(every), look_(std::move(look)), written_(look_()) {
  thread_ = std::thread([this] { loop(); });
}

void KeyUseKeeper::loop() {
  pthread_setname_np(pthread_self(), "key-uses");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::nanoseconds(every_.ns), [this] { return stopped_; })) {
    lock.unlock();
    write();
    lock.lock();
  }
}

void KeyUseKeeper::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  wake_.notify_all();
  thread_.join();
  write();
}

void KeyUseKeeper::write() {
  KeyUses now = look_();
  if (now == written_) return;
  const Result<Unit> done = write_key_uses(path_, now);
  if (done.ok()) {
    written_ = std::move(now);
  } else if (!failed_) {
    log_event(LogLevel::kWarning, "scheduler", "key_uses_not_written", {},
              {{"error", done.error().message},
               {"message", "when keys were last used is known until the scheduler stops"}});
  }
  failed_ = !done.ok();
}

}  // namespace gpusched::api
