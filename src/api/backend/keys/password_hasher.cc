#include "api/backend/keys/password_hasher.h"

#include <utility>

#include "sign/keys/password.h"

namespace gpusched::api {

PasswordHasher::~PasswordHasher() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

bool PasswordHasher::hash(std::string password, HashDone done) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kWaitingMax) return false;
    waiting_.push_back({.password = std::move(password), .done = std::move(done)});
    if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  changed_.notify_one();
  return true;
}

void PasswordHasher::run(const std::stop_token& stop) {
  for (;;) {
    Waiting next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
      if (stop.stop_requested()) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next.done(sign::hash_password(next.password));
  }
}

}  // namespace gpusched::api
