#include "node/process/user_directory.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace gpusched {
namespace {

constexpr Duration kRemembered = minutes(1);
constexpr std::size_t kKnownMax = 10'000;
constexpr std::size_t kBufferBytesFirst = 4'096;
constexpr std::size_t kBufferBytesMax = 1 << 20;
constexpr int kGroupsFirst = 64;
constexpr int kGroupsMax = 65'536;

UserFacts facts_of(const passwd& entry) {
  UserFacts facts{.name = entry.pw_name, .home = entry.pw_dir, .shell = entry.pw_shell};
  if (facts.home.empty()) facts.home = "/";
  if (facts.shell.empty()) facts.shell = "/bin/sh";
  facts.credentials = {.uid = entry.pw_uid, .gid = entry.pw_gid};
  std::vector<gid_t> groups(kGroupsFirst);
  int count = kGroupsFirst;
  while (getgrouplist(entry.pw_name, entry.pw_gid, groups.data(), &count) < 0 && count <= kGroupsMax) {
    groups.resize(static_cast<std::size_t>(count) + kGroupsFirst);
    count = static_cast<int>(groups.size());
  }
  groups.resize(static_cast<std::size_t>(count));
  facts.credentials.groups.assign(groups.begin(), groups.end());
  return facts;
}

/// `ask` is getpwnam_r or getpwuid_r with its first argument.
template <typename Ask>
Result<UserFacts> ask_machine(const std::string& who, Ask ask) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(kBufferBytesFirst);
  int error = 0;
  while ((error = ask(&entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kBufferBytesMax) {
    buffer.resize(buffer.size() * 2);
  }
  if (found != nullptr) return facts_of(*found);
  if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) {
    return Error{.code = ErrorCode::kNotFound, .message = "this node has no user '" + who + "'"};
  }
  return Error{.code = ErrorCode::kIo,
               .message = "this node cannot look up the user '" + who + "': " + std::strerror(error)};
}

template <typename Value>
bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

/// Whether jobs may run as a user that is there and is not root.
Result<Unit> check_allowed(const UserFacts& facts, const UserPolicy& policy) {
  const uint32_t uid = facts.credentials.uid;
  // The system takes this number for none: whoever becomes it stays who it was.
  if (uid == UINT32_MAX || facts.credentials.gid == UINT32_MAX)
    return invalid_argument("this node does not run jobs as '" + facts.name +
                            "', which has no usable uid: correct that user");
  if (contains(policy.allowed_users, facts.name)) return Unit{};
  if (uid < policy.floor.uid) {
    return invalid_argument("this node does not run jobs as '" + facts.name + "', a system user (" +
                            std::to_string(uid) + " is below " + std::to_string(policy.floor.uid) +
                            "): give the user of a person, or start the node's agent with --allow-user " +
                            facts.name + " or a lower --user-min-uid");
  }
  if (policy.allowed_users.empty() && policy.allowed_groups.empty()) return Unit{};
  const std::vector<uint32_t>& groups = facts.credentials.groups;
  const bool member = std::any_of(groups.begin(), groups.end(),
                                  [&](uint32_t group) { return contains(policy.allowed_groups, group); });
  if (member || contains(policy.allowed_groups, facts.credentials.gid)) return Unit{};
  return invalid_argument("this node does not run jobs as '" + facts.name +
                          "', which is neither allowed by --allow-user nor a member of a group of "
                          "--allow-group: give another user, or have the node's operator add this one");
}

/// All groups of a user but the system's: to be in docker, disk or lxd is to be root.
void drop_system_groups(shim::Credentials& credentials, const UserPolicy& policy) {
  std::erase_if(credentials.groups, [&](uint32_t group) {
    return group != credentials.gid && group < policy.floor.gid && !contains(policy.kept_groups, group);
  });
}

}  // namespace

UserDirectory::UserDirectory(const Clock& clock, Look look) : clock_(clock), look_(std::move(look)) {}

Result<UserFacts> UserDirectory::find(const std::string& name) {
  const Time now = clock_.monotonic();
  if (const auto known = known_.find(name); known != known_.end() && now < known->second.until) {
    return known->second.facts;
  }
  Result<UserFacts> facts = look_(name);
  if (!facts) return facts;
  if (known_.size() >= kKnownMax) known_.clear();
  known_[name] = {.facts = *facts, .until = now + kRemembered};
  return facts;
}

Result<UserFacts> UserDirectory::look_up_user(const std::string& name) {
  Result<UserFacts> facts =
      ask_machine(name, [&name](passwd* entry, char* buffer, std::size_t size, passwd** found) {
        return getpwnam_r(name.c_str(), entry, buffer, size, found);
      });
  if (facts || facts.error().code != ErrorCode::kNotFound) return facts;
  // As for `id`, a number is a uid where it is nobody's name.
  uid_t uid = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data(), end, uid);
  if (name.empty() || failure != std::errc{} || stop != end) return facts;
  return ask_machine(name, [uid](passwd* entry, char* buffer, std::size_t size, passwd** found) {
    return getpwuid_r(uid, entry, buffer, size, found);
  });
}

UserFacts UserDirectory::own() {
  const uid_t uid = geteuid();
  Result<UserFacts> facts =
      ask_machine(std::to_string(uid), [uid](passwd* entry, char* buffer, std::size_t size, passwd** found) {
        return getpwuid_r(uid, entry, buffer, size, found);
      });
  if (facts) return *facts;
  return {.name = std::to_string(uid),
          .home = "/",
          .shell = "/bin/sh",
          .credentials = {.uid = uid, .gid = getegid()}};
}

Result<UserFacts> choose_user(const std::string& wanted, const UserPolicy& policy, UserDirectory& directory,
                              bool never_root) {
  if (!policy.is_root) {
    if (wanted.empty() || wanted == policy.own_name) return UserDirectory::own();
    return invalid_argument("this node's agent runs as '" + policy.own_name + "' and cannot run jobs as '" +
                            wanted + "': give no user, or run the agent as root");
  }
  std::string name = wanted.empty() ? policy.default_user : wanted;
  if (name.empty() && policy.allow_root_jobs && !never_root) name = "root";
  if (name.empty()) {
    return invalid_argument(
        "the job names no user and this node has no default: give one, or start its agent with "
        "--default-user");
  }
  Result<UserFacts> facts = directory.find(name);
  if (!facts && facts.error().code == ErrorCode::kNotFound) {
    return invalid_argument("this node has no user '" + name +
                            "': give an existing one, or add that user there");
  }
  if (!facts) return facts;
  if (facts->credentials.uid == 0 && !policy.allow_root_jobs) {
    return invalid_argument("this node does not run jobs as '" + name +
                            "', which is root: give another user, or start its agent with --allow-root-jobs");
  }
  if (facts->credentials.uid == 0 && never_root) {
    return invalid_argument(
        (wanted.empty() ? std::string("this node's default user") : "'" + name + "'") +
        " is root, and whoever submitted the job may not be root: submit it with the token, " +
        (wanted.empty() ? "or start the agent with another --default-user" : "or give another user"));
  }
  if (facts->credentials.uid == 0) return facts;
  if (const Result<Unit> allowed = check_allowed(*facts, policy); !allowed) return allowed.error();
  drop_system_groups(facts->credentials, policy);
  return facts;
}

std::optional<uint32_t> group_number(const std::string& name) {
  group entry{};
  group* found = nullptr;
  std::vector<char> buffer(kBufferBytesFirst);
  while (getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == ERANGE &&
         buffer.size() < kBufferBytesMax) {
    buffer.resize(buffer.size() * 2);
  }
  if (found == nullptr) return std::nullopt;
  return found->gr_gid;
}

}  // namespace gpusched
