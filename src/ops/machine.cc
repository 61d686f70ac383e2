#include "ops/machine.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace gpusched::ops {
namespace {

constexpr std::string_view kPlain =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:@%,";
constexpr unsigned kListening = 0x0A;

std::string address_text(const std::string& hex) {
  if (hex.size() == 8) {
    in_addr address{.s_addr = static_cast<in_addr_t>(std::strtoul(hex.c_str(), nullptr, 16))};
    char text[INET_ADDRSTRLEN];
    return inet_ntop(AF_INET, &address, text, sizeof text) == nullptr ? hex : text;
  }
  if (hex.find_first_not_of('0') == std::string::npos) return "::";
  return hex == "00000000000000000000000001000000" ? "::1" : hex;
}

}  // namespace

std::optional<std::string> read_text(const std::string& path, std::size_t size_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(size_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

std::optional<std::string> read_line(const std::string& path) {
  std::optional<std::string> text = read_text(path);
  if (!text) return text;
  const std::size_t from = text->find_first_not_of(" \t\r\n");
  if (from == std::string::npos) return std::string();
  return text->substr(from, text->find_last_not_of(" \t\r\n") - from + 1);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  std::filesystem::directory_iterator at(folder, failed);
  while (!failed && at != std::filesystem::directory_iterator()) {
    names.push_back(at->path().filename().string());
    at.increment(failed);
  }
  std::ranges::sort(names);
  return names;
}

std::string find_program(const std::string& program) {
  const char* const given = std::getenv("PATH");
  const std::string path = std::string(given == nullptr ? "" : given) +
                           ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
  std::istringstream folders(path);
  std::string folder;
  while (std::getline(folders, folder, ':')) {
    const std::string candidate = folder + "/" + program;
    struct stat facts{};
    const bool is_file = !folder.empty() && ::stat(candidate.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
    if (is_file && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string shell_quoted(const std::string& text) {
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::optional<std::string> closed_folder_above(const std::string& path, const Passer& who) {
  std::filesystem::path so_far;
  for (const std::filesystem::path& part : std::filesystem::path(path).parent_path()) {
    so_far /= part;
    struct stat facts{};
    if (::stat(so_far.c_str(), &facts) != 0) return std::nullopt;  // Its maker decides.
    const bool in_group = facts.st_gid == who.gid ||
                          std::find(who.groups.begin(), who.groups.end(), facts.st_gid) != who.groups.end();
    const mode_t wanted = facts.st_uid == who.uid ? S_IXUSR : in_group ? S_IXGRP : S_IXOTH;
    if ((facts.st_mode & wanted) != 0) continue;
    if (::getxattr(so_far.c_str(), "system.posix_acl_access", nullptr, 0) > 0) continue;
    return so_far.string();
  }
  return std::nullopt;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

std::vector<OwnCgroup> own_cgroups(const std::string& root) {
  std::vector<OwnCgroup> found;
  std::istringstream lines(read_text(root + "/proc/self/cgroup").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    found.push_back(
        {.controllers = line.substr(first + 1, second - first - 1), .path = line.substr(second + 1)});
  }
  return found;
}

std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> found;
  std::istringstream lines(read_text(root + "/proc/self/mounts").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    Mount mount;
    if (words >> mount.device >> mount.folder >> mount.type >> mount.options) found.push_back(mount);
  }
  return found;
}

std::vector<Listener> listeners(const std::string& root, uint16_t port) {
  std::vector<Listener> found;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(read_text(root + table, 16 << 20).value_or(""));
    std::string line;
    std::getline(lines, line);  // Its head.
    while (std::getline(lines, line)) {
      char address[64] = {};
      unsigned at_port = 0;
      unsigned state = 0;
      unsigned long long inode = 0;
      // sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
      const int read = std::sscanf(line.c_str(), "%*s %63[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %llu",
                                   address, &at_port, &state, &inode);
      if (read != 4 || at_port != port || state != kListening) continue;
      found.push_back({.address = address_text(address), .inode = inode});
    }
  }
  return found;
}

std::optional<Holder> holder_of(const std::string& root, uint64_t inode) {
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  for (const std::string& name : names_in(root + "/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string process = root + "/proc/" + name;
    for (const std::string& file : names_in(process + "/fd")) {
      std::error_code failed;
      if (std::filesystem::read_symlink(process + "/fd/" + file, failed).string() != wanted) continue;
      return Holder{.pid = static_cast<pid_t>(std::atol(name.c_str())),
                    .name = read_line(process + "/comm").value_or("?")};
    }
  }
  return std::nullopt;
}

bool has_capability(const std::string& root, int capability) {
  std::istringstream lines(read_text(root + "/proc/self/status").value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> capability & 1) != 0;
  }
  return false;
}

}  // namespace gpusched::ops
