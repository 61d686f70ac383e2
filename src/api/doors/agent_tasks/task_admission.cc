#include "api/doors/agent_tasks/task_admission.h"

#include <algorithm>

namespace gpusched::api {
namespace {

int64_t day_of(Time wall) { return wall.ns / hours(24).ns; }

}  // namespace

std::optional<std::string_view> TaskAdmission::admit(TenantId tenant, const std::string& name, TaskKind kind,
                                                     int64_t waiting, Time now, Time wall) {
  if (waiting >= limits_.queue_size) return kQueueIsFull;
  User& user = user_at({tenant, name}, now);
  const int64_t cost = cost_of(kind);
  if (const int64_t today = day_of(wall); user.day != today) user.day = today, user.spent = 0;
  const bool has_bucket = limits_.tokens_per_second > 0;
  const auto most = static_cast<double>(limits_.tokens_burst);
  if (has_bucket) {
    const double gained = static_cast<double>(std::max<int64_t>((now - user.filled_at).ns, 0)) * 1e-9 *
                          limits_.tokens_per_second;
    user.tokens = std::min(most, user.tokens + gained);
    user.filled_at = std::max(user.filled_at, now);
    // A task that costs more than a bucket holds passes when that is full: else it could never pass.
    if (user.tokens < std::min(static_cast<double>(cost), most)) return kInsufficientToken;
  }
  if (limits_.tokens_daily > 0 && user.spent + cost > limits_.tokens_daily) return kInsufficientToken;
  if (has_bucket) user.tokens -= static_cast<double>(cost);
  user.spent += cost;
  return std::nullopt;
}

void TaskAdmission::give_back(TenantId tenant, const std::string& name, TaskKind kind) {
  const auto at = users_.find({tenant, name});
  if (at == users_.end()) return;
  const int64_t cost = cost_of(kind);
  at->second.tokens =
      std::min(static_cast<double>(limits_.tokens_burst), at->second.tokens + static_cast<double>(cost));
  at->second.spent = std::max<int64_t>(at->second.spent - cost, 0);
}

TaskAdmission::User& TaskAdmission::user_at(const UserKey& key, Time now) {
  if (const auto at = users_.find(key); at != users_.end()) {
    std::list<UserKey>& of_tenant = recent_.at(key.first);
    of_tenant.splice(of_tenant.begin(), of_tenant, at->second.recent);
    return at->second;
  }
  if (users_.size() >= limits_.users_max) forget_one();
  std::list<UserKey>& of_tenant = recent_[key.first];
  counts_.erase({of_tenant.size(), key.first});
  of_tenant.push_front(key);
  counts_.emplace(of_tenant.size(), key.first);
  User& user = users_[key];
  user = {.tokens = static_cast<double>(limits_.tokens_burst), .filled_at = now, .recent = of_tenant.begin()};
  return user;
}

void TaskAdmission::forget_one() {
  if (counts_.empty()) return;
  const auto [count, tenant] = *counts_.rbegin();
  counts_.erase({count, tenant});
  std::list<UserKey>& of_tenant = recent_.at(tenant);
  users_.erase(of_tenant.back());
  of_tenant.pop_back();
  if (of_tenant.empty()) {
    recent_.erase(tenant);
  } else {
    counts_.emplace(of_tenant.size(), tenant);
  }
}

}  // namespace gpusched::api
