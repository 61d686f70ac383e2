#include "api/backend/keys/open_under_keys.h"

namespace gpusched::api {

std::shared_ptr<void> OpenUnderKeys::add(KeyId key, Open open) {
  const std::lock_guard lock(mutex_);
  const Place place{key, next_++};
  if (open.expires_at.valid()) expiring_.emplace(open.expires_at, place);
  open_.emplace(place, std::move(open));
  return {nullptr, [self = shared_from_this(), place](void*) { self->remove(place); }};
}

void OpenUnderKeys::remove(const Place& place) {
  Open last;  // Let go outside the lock.
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(place);
  if (found == open_.end()) return;
  if (found->second.expires_at.valid()) expiring_.erase({found->second.expires_at, place});
  last = std::move(found->second);
  open_.erase(found);
}

void OpenUnderKeys::look_at(KeyId key, const Why& why) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    auto at = open_.lower_bound({key, 0});
    while (at != open_.end() && at->first.first == key) {
      std::optional<ApiError> error = why(at->second);
      if (!error) {
        ++at;
        continue;
      }
      if (at->second.expires_at.valid()) expiring_.erase({at->second.expires_at, at->first});
      ended.emplace_back(std::move(at->second), std::move(*error));
      at = open_.erase(at);
    }
  }
  tell(ended);
}

void OpenUnderKeys::expire(Time now, const std::function<ApiError(KeyId)>& why) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    while (!expiring_.empty() && expiring_.begin()->first <= now) {
      const auto found = open_.find(expiring_.begin()->second);
      ended.emplace_back(std::move(found->second), why(found->first.first));
      open_.erase(found);
      expiring_.erase(expiring_.begin());
    }
  }
  tell(ended);
}

void OpenUnderKeys::tell(const Ended& ended) {
  for (const auto& [open, error] : ended) open.end(error);
}

std::size_t OpenUnderKeys::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

}  // namespace gpusched::api
