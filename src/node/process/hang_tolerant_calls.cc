#include "node/process/hang_tolerant_calls.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

namespace gpusched {

struct HangTolerantCalls::Shared {
  std::mutex mutex;
  std::condition_variable answered;
  std::set<std::string> under_way;
};

HangTolerantCalls::HangTolerantCalls() : shared_(std::make_shared<Shared>()) {}

std::optional<std::string> HangTolerantCalls::ask(const std::string& key, std::function<std::string()> call,
                                                  Duration wait) {
  struct Answer {
    std::optional<std::string> text;
  };
  const auto answer = std::make_shared<Answer>();
  std::unique_lock lock(shared_->mutex);
  if (shared_->under_way.size() >= static_cast<std::size_t>(kHangingMax)) return std::nullopt;
  if (!shared_->under_way.insert(key).second) return std::nullopt;
  try {
    std::thread([shared = shared_, answer, key, call = std::move(call)] {
      std::string text = call();
      const std::lock_guard guard(shared->mutex);
      answer->text = std::move(text);
      shared->under_way.erase(key);
      shared->answered.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // No thread is to be had now.
    shared_->under_way.erase(key);
    return std::nullopt;
  }
  shared_->answered.wait_for(lock, std::chrono::nanoseconds(wait.ns),
                             [&] { return answer->text.has_value(); });
  return answer->text;
}

}  // namespace gpusched
