#include "node/endpoints/endpoint_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "log/log.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr Duration kLookPauseMax = minutes(1);

/// Port that the shim noted for its attempt; nothing: it has none.
std::optional<ServicePort> noted_port(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  std::array<char, 512> bytes{};
  const ssize_t size = ::read(file, bytes.data(), bytes.size());
  close(file);
  std::string_view text(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (!text.ends_with('\n')) return std::nullopt;
  text.remove_suffix(1);
  return parse_service_port(text);
}

}  // namespace

EndpointWatch::EndpointWatch(std::string data_folder, const Clock& clock)
    : data_folder_(std::move(data_folder)), clock_(clock), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK(wake_ >= 0);
}

EndpointWatch::~EndpointWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  if (thread_.joinable()) thread_.join();
  close(wake_);
}

void EndpointWatch::began(const AttemptKey& key) {
  const std::optional<ServicePort> noted = noted_port(data_folder_ + '/' + shim::kAttemptsFolder + '/' +
                                                      shim::key_text(key) + '/' + shim::kPortFile);
  if (!noted) return;
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = endpoints_.try_emplace(key);
  if (!is_new) return;
  at->second.port = noted->ports.first;
  at->second.probe = noted->probe;
  at->second.next_call = clock_.monotonic();
  if (!noted->probe) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  eventfd_write(wake_, 1);
}

void EndpointWatch::ended(const AttemptKey& key) {
  const std::lock_guard lock(mutex_);
  endpoints_.erase(key);  // A call of it that is under way ends with it.
}

std::vector<EndpointReading> EndpointWatch::readings() {
  const std::lock_guard lock(mutex_);
  std::vector<EndpointReading> out;
  for (const auto& [key, endpoint] : endpoints_) {
    out.push_back({.key = key, .port = endpoint.port, .ready = endpoint.ready, .detail = endpoint.detail});
  }
  return out;
}

void EndpointWatch::take_answer(Endpoint& endpoint, const std::string& problem) {
  endpoint.call.reset();
  endpoint.give_up_at = kNever;
  if (problem.empty()) {
    endpoint.failures = 0;
    endpoint.ready = true;
    endpoint.detail.clear();
    return;
  }
  endpoint.failures += 1;
  if (endpoint.ready.value_or(false) && endpoint.failures < endpoint.probe->failures) return;
  endpoint.ready = false;
  endpoint.detail = problem;
}

void EndpointWatch::look_at(Endpoint& endpoint, Time now) {
  if (endpoint.call == nullptr && now >= endpoint.next_call) {
    endpoint.call = std::make_unique<ProbeCall>(*endpoint.probe, endpoint.port);
    endpoint.next_call = now + endpoint.probe->period;
    endpoint.give_up_at = now + endpoint.probe->timeout;
  }
  if (endpoint.call == nullptr) return;
  if (const std::optional<std::string> answer = endpoint.call->advance())
    return take_answer(endpoint, *answer);
  if (now >= endpoint.give_up_at) {
    take_answer(endpoint, "it did not answer within " + std::to_string(endpoint.probe->timeout.ms()) + " ms");
  }
}

void EndpointWatch::run() {
  std::vector<pollfd> sources;
  while (true) {
    sources.assign(1, {.fd = wake_, .events = POLLIN, .revents = 0});
    Duration pause = kLookPauseMax;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      const Time now = clock_.monotonic();
      for (auto& [key, endpoint] : endpoints_) {
        if (!endpoint.probe) continue;
        look_at(endpoint, now);
        const Time due = endpoint.call == nullptr ? endpoint.next_call : endpoint.give_up_at;
        pause = std::min(pause, due - now);
        if (endpoint.call != nullptr) {
          sources.push_back(
              {.fd = endpoint.call->descriptor(), .events = endpoint.call->events(), .revents = 0});
        }
      }
    }
    // A descriptor that is closed meanwhile, since its attempt ended, wakes us once too often at worst.
    poll(sources.data(), sources.size(), static_cast<int>(std::max<int64_t>(pause.ms(), 0)) + 1);
    eventfd_t count = 0;
    eventfd_read(wake_, &count);
  }
}

}  // namespace gpusched
