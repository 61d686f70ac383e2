#include "node/agent/folder_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "log/log.h"
#include "node/agent/machine.h"
#include "sign/keys/token_proof.h"

namespace gpusched {
namespace {

constexpr const char* kMachineIdFile = "/etc/machine-id";
constexpr std::string_view kMachineLabel = "gpusched-machine";
constexpr std::size_t kMachineNameBytes = 16;

/// The values of the file; fields that it lacks are empty.
struct Remembered {
  std::string node;
  std::string machine;
  std::string cluster;
  std::string inode;  ///< Inode of the file `instance`: a copied folder has another one.
};

std::string path_of(const std::string& data_folder) { return data_folder + "/identity"; }

Remembered read_file(const std::string& data_folder) {
  Remembered found;
  std::ifstream in(path_of(data_folder));
  for (std::string line; std::getline(in, line);) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string name = line.substr(0, space);
    const std::string value = line.substr(space + 1);
    if (name == "node") found.node = value;
    if (name == "machine") found.machine = value;
    if (name == "cluster") found.cluster = value;
    if (name == "inode") found.inode = value;
  }
  return found;
}

Result<Unit> write_file(const std::string& data_folder, const Remembered& what) {
  std::string text = "node " + what.node + "\n";
  if (!what.machine.empty()) text += "machine " + what.machine + "\n";
  if (!what.cluster.empty()) text += "cluster " + what.cluster + "\n";
  text += "inode " + what.inode + "\n";
  const std::string path = path_of(data_folder);
  const std::string draft = path + ".new";
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool written = file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                 fsync(file) == 0;
  int error = errno;
  if (file >= 0) close(file);
  if (written && rename(draft.c_str(), path.c_str()) != 0) {
    written = false;
    error = errno;
  }
  if (written) return Unit{};
  unlink(draft.c_str());
  return Error{.code = error == ENOSPC || error == EDQUOT ? ErrorCode::kStorageFull : ErrorCode::kIo,
               .message = "cannot write " + path + ": " + std::strerror(error)};
}

std::string inode_of_instance(const std::string& data_folder) {
  struct stat facts{};
  if (stat((data_folder + "/instance").c_str(), &facts) != 0) return {};
  return std::to_string(facts.st_ino);
}

Error refuse(const std::string& data_folder, const std::string& what, const std::string& otherwise) {
  return Error{.code = ErrorCode::kPermissionDenied,
               .message = data_folder + " " + what + "; " + otherwise + ", remove " + path_of(data_folder) +
                          "; otherwise give this agent an empty --data-dir"};
}

}  // namespace

Result<FolderIdentity> take_folder(const std::string& data_folder, const std::string& node,
                                   const std::string& machine) {
  const Result<std::string> instance = load_or_make_instance(data_folder);
  if (!instance) return instance.error();
  const Remembered before = read_file(data_folder);
  const std::string inode = inode_of_instance(data_folder);
  if (!before.inode.empty() && before.inode != inode) {
    return refuse(data_folder,
                  "is a copy of node '" + before.node + "''s data folder: running both would end its jobs",
                  "if the original is gone for good");
  }
  if (!before.machine.empty() && !machine.empty() && before.machine != machine) {
    return refuse(data_folder, "belongs to node '" + before.node + "' on another machine",
                  "if that machine is gone for good and this one takes its place");
  }
  if (!before.node.empty() && before.node != node) {
    return refuse(data_folder, "belongs to node '" + before.node + "', and --node says '" + node + "'",
                  "start with --node " + before.node +
                      "; to rename the node, let its jobs end, run gpu-cli "
                      "node confirm-dead " +
                      before.node);
  }
  Remembered now{.node = node,
                 .machine = machine.empty() ? before.machine : machine,
                 .cluster = before.cluster,
                 .inode = inode};
  const bool same = now.node == before.node && now.machine == before.machine && now.inode == before.inode;
  if (!same) {
    const Result<Unit> written = write_file(data_folder, now);
    if (!written && written.error().code != ErrorCode::kStorageFull) return written.error();
    if (!written)
      log_event(LogLevel::kWarning, "agent", "identity_not_kept", {}, {{"why", written.error().message}});
  }
  return FolderIdentity{.instance = *instance, .node = node, .machine = now.machine, .cluster = now.cluster};
}

Result<Unit> remember_cluster(const std::string& data_folder, FolderIdentity& identity,
                              const std::string& cluster) {
  if (identity.cluster == cluster) return Unit{};
  const Result<Unit> written = write_file(data_folder, {.node = identity.node,
                                                        .machine = identity.machine,
                                                        .cluster = cluster,
                                                        .inode = inode_of_instance(data_folder)});
  if (written) identity.cluster = cluster;
  return written;
}

std::string machine_name() {
  std::ifstream in(kMachineIdFile);
  std::string id;
  std::getline(in, id);
  if (id.size() < kMachineNameBytes) return {};
  const std::string hash = sign::prove(id, kMachineLabel, {});
  std::string name;
  for (const char byte : hash.substr(0, kMachineNameBytes / 2)) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    name += kDigits[static_cast<uint8_t>(byte) >> 4];
    name += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return name;
}

}  // namespace gpusched
