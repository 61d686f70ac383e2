#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "node/ports/ports.h"
#include "node/process/cgroup_tree.h"
#include "node/process/core_pool.h"
#include "node/process/device_rules.h"
#include "node/process/user_directory.h"
#include "node/watch/device_watch.h"

namespace gpusched {

/// An operator's settings for the boxes of a node's attempts.
struct BoxOptions {
  std::string default_user = {};  ///< User of jobs that name none, where the agent is root.
  bool allow_root_jobs = false;
  std::optional<uint32_t> user_min_uid = {};  ///< Not given: as /etc/login.defs says.
  std::vector<std::string> allowed_users = {};
  std::vector<std::string> allowed_groups = {};
  std::vector<std::string> kept_groups = {"video", "render"};  ///< GPUs' device nodes are theirs.
  int64_t processes_max = 32'768;                              ///< With threads, per attempt; 0: none.
  int64_t shm_mb = 0;       ///< Size of a private /dev/shm; 0: half of the memory.
  bool private_shm = true;  ///< Where the agent may mount; and so System V's memory and the like.
  bool private_tmp = false;
  bool allow_set_user_id = false;  ///< Else jobs gain nothing by such programs.
  int32_t oom_score = 300;         ///< Jobs go before the machine's own services.
  bool cpu_is_most = false;
  bool bind_cores = true;
  bool device_fence = true;
  bool use_cgroups = true;
  bool default_memory = true;  ///< Jobs that name no memory have a limit by their share of the node.
  std::vector<std::string> device_rules = {};  ///< Beside the common ones: "c 10:237 rwm", or a node.
  std::map<uint32_t, std::vector<std::string>> gpu_nodes =
      {};                                               ///< Further device nodes that belong to a GPU.
  std::map<std::string, int64_t> limits = {};           ///< By setrlimit's names; -1: unlimited.
  std::map<std::string, std::string> environment = {};  ///< Variables of every job, before its own.
};

/// Facts of this machine and this agent for BoxPlanner.
struct BoxFacts {
  std::string data_folder;
  std::string instance;
  std::vector<DeviceFacts> devices = {};
  bool simulated_gpus = false;
  int64_t cpus_offered = 0;
  int64_t memory_mb_offered = 0;
  int64_t memory_mb_total = 0;
};

/// `BoxMaker` of a real machine. Not thread-safe.
class BoxPlanner final : public BoxMaker {
 public:
  /// Finds out what this machine allows and prepares the data folder. An error names the option at fault.
  static Result<std::unique_ptr<BoxPlanner>> open(BoxOptions options, BoxFacts facts, const Clock& clock);
  ~BoxPlanner() override;

  Result<BoxPlan> plan(const v1::StartAttempt& order, const v1::JobSpec& spec,
                       const std::vector<MadeSlice>& slices) override;
  void keep(const AttemptKey& key, const std::vector<uint32_t>& cores) override;
  void release(const AttemptKey& key) override;
  std::vector<std::string> features() const override;

  const CgroupTree& cgroups() const { return cgroups_; }
  bool fences_devices() const { return options_.device_fence && cgroups_.can_fence(); }
  bool switches_users() const { return policy_.is_root; }
  bool mounts_private() const { return can_mount_; }

 private:
  BoxPlanner(BoxOptions options, BoxFacts facts, const Clock& clock);
  Result<Unit> prepare();
  Result<Unit> prepare_users();
  void prepare_folders() const;
  Result<Unit> check_way_of(const UserFacts& user) const;
  int64_t memory_mb_of(const v1::StartAttempt& order, const v1::JobSpec& spec) const;
  std::vector<uint32_t> cores_near(const v1::StartAttempt& order) const;
  Result<std::vector<shim::ResourceLimit>> limits_of(const v1::JobSpec& spec) const;
  std::optional<std::vector<shim::DeviceRule>> devices_of(const v1::StartAttempt& order,
                                                          const std::vector<MadeSlice>& slices);

  const BoxOptions options_;
  const BoxFacts facts_;
  UserPolicy policy_;
  UserDirectory users_;
  CgroupTree cgroups_;
  std::vector<shim::DeviceRule> common_rules_;
  std::map<std::string, GpuPlace> gpu_places_;
  std::unique_ptr<CorePool> cores_;  ///< Null: attempts have no cores of their own.
  bool can_mount_ = false;
  bool can_raise_limits_ = false;
};

}  // namespace gpusched
