#include "ops/port_holder.h"

#include <pwd.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace gpusched {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kProcessesMax = 100'000;
constexpr std::size_t kFilesMax = 100'000;  ///< Limit for one process.

struct Listening {
  std::string inode;
  unsigned user = 0;
};

/// The sockets in the kernel's table that listen on the port.
void collect(const std::string& table, uint16_t port, std::vector<Listening>& out) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // The columns' names.
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    const std::size_t colon = local.rfind(':');
    if (!words || state != "0A" || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != port) continue;
    out.push_back({.inode = inode, .user = static_cast<unsigned>(std::strtoul(user.c_str(), nullptr, 10))});
  }
}

bool has_socket(const fs::path& process, const std::vector<Listening>& sockets) {
  std::error_code failed;
  std::size_t looked = 0;
  for (fs::directory_iterator it(process / "fd", failed), end; !failed && it != end; it.increment(failed)) {
    if (++looked > kFilesMax) return false;
    std::error_code unreadable;
    const std::string target = fs::read_symlink(it->path(), unreadable).string();
    const bool ours = std::any_of(sockets.begin(), sockets.end(), [&](const Listening& socket) {
      return target == "socket:[" + socket.inode + "]";
    });
    if (ours) return true;
  }
  return false;
}

std::optional<std::string> process_with(const std::string& proc, const std::vector<Listening>& sockets) {
  std::error_code failed;
  std::size_t looked = 0;
  for (fs::directory_iterator it(proc, failed), end; !failed && it != end; it.increment(failed)) {
    const std::string number = it->path().filename().string();
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    if (++looked > kProcessesMax) return std::nullopt;
    if (!has_socket(it->path(), sockets)) continue;
    std::string name;
    std::getline(std::ifstream(it->path() / "comm") >> std::ws, name);
    return (name.empty() ? "a process" : name) + " (process " + number + ")";
  }
  return std::nullopt;
}

std::string user_name(unsigned user) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4'096> buffer{};
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::to_string(user);
  return found->pw_name;
}

}  // namespace

std::string port_holder(uint16_t port, const std::string& proc) {
  std::vector<Listening> sockets;
  collect(proc + "/net/tcp", port, sockets);
  collect(proc + "/net/tcp6", port, sockets);
  if (sockets.empty()) return {};
  if (const auto process = process_with(proc, sockets)) return *process;
  return "a process of user " + user_name(sockets.front().user);
}

}  // namespace gpusched
