#pragma once

#include <atomic>
#include <string_view>

#include "host/core/interfaces.h"
#include "model/state.h"

namespace gpusched::api {

/// Whether any node runs jobs that name no user: an agent of root's does so with a default user alone. While
/// there is no node nobody knows. Filled on the observer's thread, asked on any.
class NamelessJobs {
 public:
  void fill(const State& state);
  void observe(const State& state, const Changes& changes);

  /// `anonymous`: of callers without a credential, whose jobs are never root's.
  bool possible(bool anonymous) const {
    return (anonymous ? anonymous_ : any_).load(std::memory_order_acquire);
  }

 private:
  std::atomic<bool> any_{true}, anonymous_{true};
};

}  // namespace gpusched::api
