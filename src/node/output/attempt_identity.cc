#include "node/output/attempt_identity.h"

#include <sys/stat.h>
#include <unistd.h>

#include "node/process/user_directory.h"
#include "shim/protocol.h"

namespace gpusched {

Result<shim::Credentials> identity_of(const AttemptKey& key, const AttemptProcess& process,
                                      const std::string& data_folder) {
  if (geteuid() != 0) return shim::Credentials{.uid = geteuid(), .gid = getegid()};
  if (process.identity) return *process.identity;
  if (!process.user.empty()) {
    const Result<UserFacts> found = UserDirectory::look_up_user(process.user);
    if (found) return found->credentials;
    return Error{
        .code = ErrorCode::kNotFound,
        .message = "the job's user '" + process.user + "' does not exist on its node, or no longer exists"};
  }
  // Its shim gave it this folder, inside one that only root may change.
  const std::string work =
      data_folder + "/" + shim::kAttemptsFolder + "/" + to_string(key) + "/" + shim::kWorkFolder;
  struct stat facts{};
  if (lstat(work.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))
    return shim::Credentials{.uid = facts.st_uid, .gid = facts.st_gid};
  return Error{.code = ErrorCode::kNotFound, .message = "the node no longer knows which user the job ran as"};
}

}  // namespace gpusched
