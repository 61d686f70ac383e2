#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

/// Landlock: rules of the kernel for what a process may open and whom it may connect to. A process gives them
/// to itself, without being root, and cannot take them back; its children have them, too.
namespace gpusched::pilot {

/// Everything that is not named is refused by the kernel. Paths that are not there are passed over; a folder
/// stands for all below it.
struct KernelRules {
  std::vector<std::string> read = {};   ///< Files that may be read.
  std::vector<std::string> write = {};  ///< Folders in which files may be read, written, made and removed.
  std::vector<std::string> list = {};   ///< Folders whose names of files, and those below, may be read.
  std::vector<uint16_t> ports = {};     ///< TCP ports that may be connected to.
};

/// Version of the kernel's Landlock; 0: it has none, or it is switched off.
int landlock_version();
/// The first version that holds TCP ports; before it files alone are held.
inline constexpr int kLandlockOfPorts = 4;

/// Holds the calling thread to the rules, for ever. Call it while the process has one thread. kUnavailable:
/// this kernel has no Landlock; kIo: it refused the rules. Nothing is held then.
Result<Unit> hold_to(const KernelRules& rules);

}  // namespace gpusched::pilot
