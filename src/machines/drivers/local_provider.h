#pragma once

#include <sys/types.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "machines/drivers/provider.h"

namespace gpusched::machines {

struct LocalProviderOptions {
  std::string folder;  ///< Absolute; one folder a machine below it, named as the machine.
  /// Program and first arguments of an agent, which make it find its scheduler. Any thread.
  std::function<std::vector<std::string>()> agent;
  Duration delay = {};              ///< Before the agent starts, as a machine takes time to boot.
  Duration patience = seconds(10);  ///< Before an agent that is told to end is killed.
};

/// "Machines" of this computer: each is a `gpu-agent` with simulated GPUs of the pool's shape, in a session
/// of its own, which outlives the scheduler. For trials, demonstrations and tests.
///
/// A machine exists while its process holds the lock of its folder, so that no second one can be started,
/// whoever was killed and when. A file `fail` in the folder above lets `create` fail: its text is `quota`,
/// `invalid` or `unavailable`.
class LocalProvider final : public Provider {
 public:
  explicit LocalProvider(LocalProviderOptions options) : options_(std::move(options)) {}

  ProviderAnswer create(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer describe(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer destroy(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer list(const provision::Pool& pool) override;

 private:
  ProviderAnswer start(const provision::Pool& pool, const std::string& name, int lock);
  std::string place(const std::string& name) const { return options_.folder + "/" + name; }
  /// Takes note of the ends of processes that this object started.
  void reap();

  const LocalProviderOptions options_;
  std::mutex mutex_;
  std::set<pid_t> children_;
};

}  // namespace gpusched::machines
