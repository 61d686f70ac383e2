#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "ops/local_peer.h"
#include "shim/box.h"

namespace gpusched {

/// A user as the machine's name service knows it.
struct UserFacts {
  std::string name;
  std::string home;
  std::string shell;
  shim::Credentials credentials;  ///< With all groups.
};

/// Users by name, asked of the name service (NSS: files, LDAP, ...) and remembered for a minute, since a
/// directory may be slow. Not thread-safe.
class UserDirectory {
 public:
  using Look = std::function<Result<UserFacts>(const std::string& name)>;
  /// `look` is for tests; by default the machine is asked.
  explicit UserDirectory(const Clock& clock, Look look = look_up_user);

  /// kNotFound: the machine knows no such user.
  Result<UserFacts> find(const std::string& name);

  /// Asks the machine.
  static Result<UserFacts> look_up_user(const std::string& name);
  /// The user of this process; its number as its name when the machine does not know it.
  static UserFacts own();

 private:
  struct Known {
    UserFacts facts;
    Time until;
  };
  const Clock& clock_;
  Look look_;
  std::map<std::string, Known> known_;
};

/// Rules for the users of jobs on this node.
struct UserPolicy {
  bool is_root = false;           ///< The agent can switch users.
  std::string own_name;           ///< Name of the agent's user.
  std::string default_user = {};  ///< User of jobs that name none; empty: none.
  bool allow_root_jobs = false;   ///< Uid 0 may be asked for, and is what jobs run as that name none.
  /// Below it are the system's users, who own services, and groups, some of which are as good as root: jobs
  /// run as none of the former, and have none of the latter, unless they are named below.
  ops::IdFloor floor = {};
  std::vector<std::string> allowed_users = {};  ///< Allowed whatever their number; see allowed_groups.
  std::vector<uint32_t> allowed_groups = {};    ///< With either list jobs run as those users alone.
  std::vector<uint32_t> kept_groups = {};       ///< Groups that jobs keep though they are below the floor.
};

/// The user that a job runs as that asks for `wanted`; empty: the agent's. `never_root`: the submitter may
/// not be root. An error is one sentence that says what to do.
Result<UserFacts> choose_user(const std::string& wanted, const UserPolicy& policy, UserDirectory& directory,
                              bool never_root = false);
/// The number of a group that this machine knows.
std::optional<uint32_t> group_number(const std::string& name);

}  // namespace gpusched
