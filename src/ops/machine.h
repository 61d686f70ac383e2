#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Looking at the machine's own files, below a root that tests replace.
namespace gpusched::ops {

/// A file's first `size_max` bytes; nothing when it cannot be read.
std::optional<std::string> read_text(const std::string& path, std::size_t size_max = 1 << 20);
/// The same without white space at its ends.
std::optional<std::string> read_line(const std::string& path);
bool exists(const std::string& path);
/// The names in a folder, sorted; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);
/// Returns the path of `program` in $PATH and the usual folders; empty if not found.
std::string find_program(const std::string& program);
/// A path as a shell takes it: quoted where it must be.
std::string shell_quoted(const std::string& text);
std::string host_name();

/// A user's ids, as the kernel compares them with a folder's.
struct Passer {
  uint32_t uid = 65'534;  ///< By default a user who owns nothing.
  uint32_t gid = 65'534;
  std::vector<uint32_t> groups = {};
};
/// The first folder above `path` that the user cannot pass; absent: the way is open. The word of an access
/// list is believed to be enough.
std::optional<std::string> closed_folder_above(const std::string& path, const Passer& who);

/// One line of /proc/self/cgroup.
struct OwnCgroup {
  std::string controllers;  ///< "cpu,cpuacct"; empty: version 2.
  std::string path;
};
std::vector<OwnCgroup> own_cgroups(const std::string& root);

/// One mount of /proc/self/mounts.
struct Mount {
  std::string device, folder, type, options;
};
std::vector<Mount> mounts(const std::string& root);

/// A socket that listens.
struct Listener {
  std::string address;  ///< "127.0.0.1", "0.0.0.0", "::", or in hexadecimal as the kernel writes it.
  uint64_t inode = 0;
};
/// Finds the listener on a TCP port in /proc/net/tcp and tcp6.
std::vector<Listener> listeners(const std::string& root, uint16_t port);
/// The process that holds a socket, and its name; nothing when it is not ours to see.
struct Holder {
  pid_t pid = 0;
  std::string name;
};
std::optional<Holder> holder_of(const std::string& root, uint64_t inode);

/// Whether this process may do what a capability of linux/capability.h allows.
bool has_capability(const std::string& root, int capability);

}  // namespace gpusched::ops
