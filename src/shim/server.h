#pragma once

#include <string>

namespace gpusched::shim {

/// Descriptors at which the agent hands the server its sockets.
inline constexpr int kControlDescriptor = 3;
inline constexpr int kEventDescriptor = 4;

struct ServerOptions {
  std::string instance;         ///< The data folder's name for itself: part of what marks a shim.
  std::string data_folder;      ///< Holds `attempts/` and `contact`.
  char* marker = nullptr;       ///< Start of this process's argument area...
  std::size_t marker_size = 0;  ///< ...and its size. Shims write their name there, for `ps` and for adoption.
};

/// The second word of a server's command line: with an agent, and when it only waits for its shims' ends.
inline constexpr const char* kServerFlag = "--server";
inline constexpr const char* kDrainFlag = "--drain";

/// The small prepared process: forks one shim per start request until the agent closes the control socket,
/// and stays until its shims have ended. Orphans of a killed shim become its children, and it kills them.
/// Returns the exit status.
int run_server(const ServerOptions& options);

/// Second word of a shim's command line, after "gpu-shim".
std::string shim_title(const std::string& key_text, const std::string& instance);

}  // namespace gpusched::shim
