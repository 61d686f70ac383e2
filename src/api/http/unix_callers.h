#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api/contract/caller.h"
#include "sign/peer_credential.h"

namespace gpusched::api {

/// Questions to the machine's name service (NSS: files, LDAP, ...). It may take its time.
struct UnixNames {
  /// A name by which nodes find just this user; nothing: it has none.
  std::function<std::optional<std::string>(uid_t uid)> name_of;
  std::function<std::optional<gid_t>(const std::string& group)> number_of;
  /// All groups of a user: where the kernel does not tell those of a process.
  std::function<std::vector<gid_t>(const std::string& user, gid_t main)> groups_of;
};
UnixNames machine_names();

struct UnixCallersOptions {
  std::string admin_group;     ///< Its members are administrators; empty: nobody is by a group.
  bool has_persons = true;     ///< Others than administrators are somebody.
  bool has_anonymous = false;  ///< See access::unix_person.
  UnixNames names = machine_names();
};

/// Turns the processes on the other end of Unix sockets into callers. Uid 0, the user of this process and the
/// members of the group are administrators; all others are persons. Names are remembered for a minute and
/// asked on a thread of its own, so that a directory that is away holds up nobody who has connected before.
/// Thread-safe.
class UnixCallers {
 public:
  /// Null: a user of whom nobody knows who it is, as good as without a credential.
  using Done = std::function<void(CallerPtr)>;

  explicit UnixCallers(UnixCallersOptions options);
  /// Waits for the question that is under way; the others are forgotten.
  ~UnixCallers();

  /// Calls `done`: at once when it is known, else later from another thread.
  void caller_of(const sign::PeerCredential& peer, Done done);

 private:
  struct Known {
    CallerPtr person = nullptr, admin = nullptr;
    int64_t until_ns = 0;
  };
  struct Question {
    sign::PeerCredential peer;
    Done done;
  };

  void run();
  CallerPtr ask(const sign::PeerCredential& peer);
  std::optional<CallerPtr> known_of(const sign::PeerCredential& peer);

  const UnixCallersOptions options_;
  const CallerPtr root_, own_;
  std::mutex mutex_;  ///< Guards all below but the thread.
  std::unordered_map<uid_t, Known> known_;
  std::optional<gid_t> admin_group_;
  int64_t admin_group_until_ns_ = 0;
  std::condition_variable asked_;
  std::deque<Question> questions_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace gpusched::api
