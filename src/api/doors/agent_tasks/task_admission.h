#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/ids.h"
#include "base/time.h"

namespace gpusched::api {

/// As `TaskType` of the wire; what is not known costs as `kOther`.
enum class TaskKind : uint8_t { kUnspecified, kEmbedding, kLlm, kDiffusion, kOther };
inline constexpr std::size_t kTaskKinds = 5;

/// How much of it is let in.
struct TaskLimits {
  int64_t queue_size = 1'000;        ///< Pending tasks of one tenant.
  double tokens_per_second = 100;    ///< Gain of each user's bucket; 0: no bucket.
  int64_t tokens_burst = 1'000;      ///< Capacity of a bucket.
  int64_t tokens_daily = 1'000'000;  ///< Spending of a user in a day (UTC); 0: no limit.
  std::array<int64_t, kTaskKinds> costs = {1, 1, 5, 10, 1};
  std::size_t users_max = 20'000;  ///< Users whose spending is remembered, over all tenants.
};

/// Answers to refused tasks; existing clients compare them.
inline constexpr std::string_view kQueueIsFull = "queue is full";
inline constexpr std::string_view kInsufficientToken = "insufficient token";

/// Whether tasks are let in: first the queue is looked at, then the user's tokens. The spending of users is
/// kept in memory alone. When there are too many, the tenant with most users loses those who came longest
/// ago: no tenant's users wash away those of another with fewer. Pure; not thread-safe.
class TaskAdmission {
 public:
  explicit TaskAdmission(TaskLimits limits) : limits_(limits) {}

  /// Lets the task in and takes its tokens, or says why not. `waiting`: the tenant's pending tasks without
  /// this one; `now` of a clock that never goes back, `wall` says which day it is.
  std::optional<std::string_view> admit(TenantId tenant, const std::string& user, TaskKind kind,
                                        int64_t waiting, Time now, Time wall);
  /// Gives back the tokens of a task that was let in and then refused by somebody else.
  void give_back(TenantId tenant, const std::string& user, TaskKind kind);

  std::size_t users() const { return users_.size(); }

 private:
  using UserKey = std::pair<TenantId, std::string>;
  struct User {
    double tokens = 0;
    Time filled_at;
    int64_t day = 0, spent = 0;
    std::list<UserKey>::iterator recent;  ///< Its place in the tenant's list.
  };

  User& user_at(const UserKey& key, Time now);
  void forget_one();
  int64_t cost_of(TaskKind kind) const { return limits_.costs[static_cast<std::size_t>(kind)]; }

  const TaskLimits limits_;
  std::map<UserKey, User> users_;
  std::map<TenantId, std::list<UserKey>> recent_;      ///< The newest user stands first.
  std::set<std::pair<std::size_t, TenantId>> counts_;  ///< Number of a tenant's users.
};

}  // namespace gpusched::api
