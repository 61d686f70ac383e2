#include "main/replicas/replica_folders.h"
#include "main/replicas/replica_process.h"

/// The same functions in a program that was built without the consensus of replicas.
namespace gpusched {
namespace {

Error built_without() {
  return {.code = ErrorCode::kUnavailable,
          .message =
              "this gpu-scheduler was built without the consensus of several schedulers: take the "
              "packaged one, or install cargo and build it again"};
}

}  // namespace

Result<ReplicaGroup> begin_group(const Config&, const std::string&) { return built_without(); }

Result<Unit> leave_group(const std::string&) { return built_without(); }

Result<backup::Summary> export_replica(const Config&, const std::string&, uint64_t, const std::string&,
                                       const backup::BackupOptions&) {
  return built_without();
}

Result<ReplicaGroup> join_group(const Config&, const std::string&, const std::string&) {
  return built_without();
}

Result<Unit> check_alone(const Config& config, const std::string& data_dir) {
  if (!config.replica.peers.empty()) return built_without();
  return check_folder_alone(data_dir);
}

Result<std::optional<int>> serve_as_replica(const ConfigInputs&, const Config& config,
                                            const std::string& data_dir, const ServiceNotifier&) {
  const Result<Unit> alone = check_alone(config, data_dir);
  if (!alone.ok()) return alone.error();
  return std::optional<int>();
}

}  // namespace gpusched
