#pragma once

#include <string>

#include "base/result.h"

namespace gpusched {

/// The memory that a data folder has of itself, in its file `identity`: a copy of it, another node name or
/// another machine is noticed before an agent speaks for the original.
struct FolderIdentity {
  std::string instance;  ///< The folder's own name, made once.
  std::string node;
  std::string machine = {};  ///< See `machine_name`; empty: not known.
  std::string cluster = {};  ///< Cluster whose node it is; empty: it was never registered.
};

/// Takes the folder for this node of this machine and remembers both; an empty folder, or one that an older
/// agent left, becomes this node's. kPermissionDenied: it belongs to another node or machine, or is a copy;
/// the message says which and what to do. On a full disk nothing is remembered, and the folder is taken.
Result<FolderIdentity> take_folder(const std::string& data_folder, const std::string& node,
                                   const std::string& machine);

/// Remembers whose node it is.
Result<Unit> remember_cluster(const std::string& data_folder, FolderIdentity& identity,
                              const std::string& cluster);

/// Names this machine through its boots: a hash of /etc/machine-id, which is no secret and stays on its
/// machine. Empty where there is none, as in most containers.
std::string machine_name();

}  // namespace gpusched
