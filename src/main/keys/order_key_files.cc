#include "main/keys/order_key_files.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/net/base64.h"
#include "sign/keys/private_file.h"

namespace gpusched {
namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// Root changes the key of a scheduler of another user as that user, for good: in a folder of somebody's else
/// root would follow whatever links its owner puts there meanwhile.
Result<Unit> become_owner_of(const std::string& folder) {
  struct stat facts{};
  if (::stat(folder.c_str(), &facts) != 0) return sign::file_error("look at", folder);
  if (::geteuid() != 0 || facts.st_uid == 0) return Unit{};
  if (::setgroups(0, nullptr) != 0 || ::setgid(facts.st_gid) != 0 || ::setuid(facts.st_uid) != 0)
    return sign::file_error("become the owner of", folder);
  return Unit{};
}

/// As it stands in the file of what nodes were told.
std::string line_of(const std::string& keys) { return base64_encoded(keys) + "\n"; }

/// Empty: there is none, or it cannot be read.
std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

OrderKeyFiles order_key_files(const std::string& authority_folder) {
  const std::string key = authority_folder + "/orders";
  return {.key = key + ".key", .next = key + ".next.key", .changed = key + ".changed", .told = key + ".told"};
}

Result<std::string> told_order_keys(const std::string& authority_folder, const sign::OrderKey& key) {
  const OrderKeyFiles files = order_key_files(authority_folder);
  if (!exists(files.next)) return exists(files.changed) ? key.public_key() : std::string();
  const Result<sign::OrderKey> next = sign::OrderKey::open(files.next);
  if (!next.ok()) return next.error();
  return key.public_key() + next->public_key();
}

Result<Unit> note_told_order_keys(const std::string& authority_folder, const std::string& keys) {
  const OrderKeyFiles files = order_key_files(authority_folder);
  if (keys.size() > sign::kOrderKeyBytes) return sign::write_whole(files.told, line_of(keys), 0600);
  ::unlink(files.told.c_str());  // The change that it tells of is over.
  return Unit{};
}

Result<Unit> begin_order_key_change(const std::string& authority_folder) {
  const OrderKeyFiles files = order_key_files(authority_folder);
  if (exists(authority_folder)) {
    if (const Result<Unit> became = become_owner_of(authority_folder); !became.ok()) return became;
  }
  if (!exists(files.key)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "there is no " + files.key +
                            " that could change: a scheduler whose gRPC speaks TLS makes it when it starts"};
  }
  if (exists(files.next)) {
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = "a change is under way since " + files.next +
                            " was made; restart the scheduler, and when all nodes are back run "
                            "gpu-scheduler order-key finish"};
  }
  // Under another name first: a scheduler that starts in between would not find it its own.
  const std::string draft = files.next + ".new";
  ::unlink(draft.c_str());
  const Result<sign::OrderKey> made = sign::OrderKey::open(draft);
  if (!made.ok()) return made.error();
  if (::rename(draft.c_str(), files.next.c_str()) != 0) return sign::file_error("rename", draft);
  return Unit{};
}

Result<Unit> finish_order_key_change(const std::string& authority_folder) {
  const OrderKeyFiles files = order_key_files(authority_folder);
  if (!exists(files.next)) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "no change is under way; gpu-scheduler order-key rotate begins one"};
  }
  if (const Result<Unit> became = become_owner_of(authority_folder); !became.ok()) return became;
  const Result<sign::OrderKey> key = sign::OrderKey::open(files.key);
  if (!key.ok()) return key.error();
  const Result<std::string> both = told_order_keys(authority_folder, *key);
  if (!both.ok()) return both.error();
  if (text_of(files.told) != line_of(*both)) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message =
                     "no scheduler was started since the next key was made, so that no node knows it; "
                     "restart it, and run this when all nodes are back"};
  }
  if (const Result<Unit> noted = sign::write_whole(files.changed, "", 0600); !noted.ok()) return noted;
  if (::rename(files.next.c_str(), files.key.c_str()) != 0) return sign::file_error("rename", files.next);
  ::unlink(files.told.c_str());  // It names other keys than those that are there, so it would say nothing.
  return Unit{};
}

}  // namespace gpusched
