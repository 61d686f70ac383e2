#include "api/http/unix_callers.h"

#include <grp.h>
#include <pthread.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/time.h"

namespace gpusched::api {
namespace {

constexpr Duration kRemembered = minutes(1);
constexpr std::size_t kKnownMax = 4'096;
constexpr std::size_t kBufferBytesFirst = 4'096;
constexpr std::size_t kBufferBytesMax = 1 << 20;
constexpr int kGroupsFirst = 64;
constexpr int kGroupsMax = 65'536;
constexpr std::size_t kNameBytesMax = 64;

int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Calls one of the reentrant functions of pwd.h and grp.h, `ask(entry, buffer, size, found)`, with room
/// enough.
template <typename Entry, typename Ask>
bool look_up(Entry& entry, std::vector<char>& buffer, Ask ask) {
  Entry* found = nullptr;
  buffer.resize(kBufferBytesFirst);
  while (ask(&entry, buffer.data(), buffer.size(), &found) == ERANGE && buffer.size() < kBufferBytesMax)
    buffer.resize(buffer.size() * 2);
  return found != nullptr;
}

/// Whether it can only be taken for a name: not for a number, and not for "all users".
bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (!letter(name.front())) return false;
  return std::ranges::all_of(name, [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '@' || c == '$' || c == '\\';
  });
}

std::optional<std::string> name_of(uid_t uid) {
  std::vector<char> buffer;
  passwd entry{};
  const bool has_name = look_up(entry, buffer, [uid](auto... room) { return getpwuid_r(uid, room...); });
  if (!has_name || !is_plain_name(entry.pw_name)) return std::nullopt;
  const std::string name = entry.pw_name;
  // If two users have one name, the machine means the first by it.
  const bool back =
      look_up(entry, buffer, [&name](auto... room) { return getpwnam_r(name.c_str(), room...); });
  return back && entry.pw_uid == uid ? std::optional(name) : std::nullopt;
}

std::optional<gid_t> number_of(const std::string& group_name) {
  std::vector<char> buffer;
  group entry{};
  const bool exists =
      look_up(entry, buffer, [&](auto... room) { return getgrnam_r(group_name.c_str(), room...); });
  return exists ? std::optional(entry.gr_gid) : std::nullopt;
}

std::vector<gid_t> groups_of(const std::string& user, gid_t main) {
  std::vector<gid_t> groups(kGroupsFirst);
  int count = kGroupsFirst;
  while (getgrouplist(user.c_str(), main, groups.data(), &count) < 0 && count <= kGroupsMax) {
    groups.resize(static_cast<std::size_t>(count) + kGroupsFirst);
    count = static_cast<int>(groups.size());
  }
  groups.resize(static_cast<std::size_t>(std::min(count, static_cast<int>(groups.size()))));
  return groups;
}

CallerPtr admin_named(std::string name) {
  return std::make_shared<const access::Caller>(access::unix_admin(std::move(name)));
}

std::string name_or_number(const UnixNames& names, uid_t uid) {
  return names.name_of(uid).value_or(std::to_string(uid));
}

/// In a user namespace that lacks users, all of these have the number of one that it has.
bool is_nobody_in_particular(uid_t uid) {
  return sign::is_overflow_uid(uid) && (uid != geteuid() || !sign::sees_all_users());
}

}  // namespace

UnixNames machine_names() { return {.name_of = name_of, .number_of = number_of, .groups_of = groups_of}; }

UnixCallers::UnixCallers(UnixCallersOptions options)
    : options_(std::move(options)),
      root_(admin_named("root")),
      own_(geteuid() == 0 ? root_ : admin_named(name_or_number(options_.names, geteuid()))),
      thread_([this] { run(); }) {}

UnixCallers::~UnixCallers() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  asked_.notify_one();
  thread_.join();
}

void UnixCallers::caller_of(const sign::PeerCredential& peer, Done done) {
  if (is_nobody_in_particular(peer.uid)) return done(nullptr);
  if (peer.uid == 0) return done(root_);
  if (peer.uid == geteuid()) return done(own_);
  if (std::optional<CallerPtr> known = known_of(peer)) return done(std::move(*known));
  {
    const std::lock_guard lock(mutex_);
    questions_.push_back({peer, std::move(done)});
  }
  asked_.notify_one();
}

/// Nothing: the machine must be asked.
std::optional<CallerPtr> UnixCallers::known_of(const sign::PeerCredential& peer) {
  const std::lock_guard lock(mutex_);
  const int64_t now = monotonic_ns();
  const auto known = known_.find(peer.uid);
  if (known == known_.end() || known->second.until_ns <= now) return std::nullopt;
  if (options_.admin_group.empty()) return known->second.person;
  if (!peer.groups || admin_group_until_ns_ <= now) return std::nullopt;
  const bool is_admin = admin_group_ && peer.is_member(*admin_group_);
  return is_admin ? known->second.admin : known->second.person;
}

CallerPtr UnixCallers::ask(const sign::PeerCredential& peer) {
  const std::string name = name_or_number(options_.names, peer.uid);
  std::optional<gid_t> admin_group;
  if (!options_.admin_group.empty()) admin_group = options_.names.number_of(options_.admin_group);
  sign::PeerCredential with_groups = peer;
  if (!peer.groups && admin_group) with_groups.groups = options_.names.groups_of(name, peer.gid);
  const bool is_admin = admin_group && with_groups.is_member(*admin_group);
  Known known{.admin = admin_named(name), .until_ns = monotonic_ns() + kRemembered.ns};
  if (options_.has_persons)
    known.person = std::make_shared<const access::Caller>(access::unix_person(name, options_.has_anonymous));
  CallerPtr found = is_admin ? known.admin : known.person;
  const std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  admin_group_ = admin_group;
  admin_group_until_ns_ = known.until_ns;
  known_[peer.uid] = std::move(known);
  return found;
}

void UnixCallers::run() {
  pthread_setname_np(pthread_self(), "api-names");
  while (true) {
    Question question;
    {
      std::unique_lock lock(mutex_);
      asked_.wait(lock, [this] { return ended_ || !questions_.empty(); });
      if (ended_) return;
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    // The first one's answer is the answer for all others that waited.
    const std::optional<CallerPtr> known = known_of(question.peer);
    question.done(known ? *known : ask(question.peer));
  }
}

}  // namespace gpusched::api
