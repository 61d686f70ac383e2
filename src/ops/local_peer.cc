#include "ops/local_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace gpusched::ops {
namespace {

constexpr std::string_view kListenState = "0A";
constexpr std::size_t kTokenBytesMax = 4'096;
constexpr std::string_view kAny4 = "00000000";
constexpr std::string_view kAny6 = "00000000000000000000000000000000";
constexpr std::string_view kMapped = "0000000000000000FFFF0000";

std::string hexadecimal(uint32_t word) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08X", word);
  return text.data();
}

/// As the tables write it: words of four bytes as this machine reads them.
std::string table_address(int family, const std::string& host) {
  std::array<uint32_t, 4> words{};
  if (inet_pton(family, host.c_str(), words.data()) != 1) return {};
  std::string text;
  for (std::size_t i = 0; i < (family == AF_INET ? 1u : 4u); ++i) text += hexadecimal(words[i]);
  return text;
}

struct Row {
  std::string address;
  uid_t user = 0;
};

std::vector<Row> listening_rows(std::string_view table, uint16_t port) {
  std::vector<Row> rows;
  std::istringstream lines{std::string(table)};
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits;
    Row row;
    if (!(words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> row.user)) continue;
    const std::size_t colon = local.find(':');
    if (state != kListenState || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != port) continue;
    row.address = local.substr(0, colon);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Takes the sockets out of one datagram of the kernel's answer. False: more of it follows. Nothing: it
/// refused.
std::optional<bool> take_sockets(const char* bytes, std::size_t size, std::vector<Row>& rows) {
  auto left = static_cast<unsigned>(size);
  for (const auto* head = reinterpret_cast<const nlmsghdr*>(bytes); NLMSG_OK(head, left);
       head = NLMSG_NEXT(head, left)) {
    if (head->nlmsg_type == NLMSG_DONE) return true;
    if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY || head->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
      return std::nullopt;
    inet_diag_msg socket{};
    std::memcpy(&socket, NLMSG_DATA(head), sizeof socket);
    Row row{.address = {}, .user = socket.idiag_uid};
    for (std::size_t i = 0; i < (socket.idiag_family == AF_INET ? 1u : 4u); ++i)
      row.address += hexadecimal(socket.id.idiag_src[i]);
    rows.push_back(std::move(row));
  }
  return false;
}

/// Adds the sockets of a family that listen on the port, as sock_diag(7) knows them: it looks at these alone,
/// where /proc/net/tcp walks through every bucket for every socket of the machine (10 ms on a large one).
bool ask_listening(int netlink, uint8_t family, uint16_t port, std::vector<Row>& rows) {
  struct {
    nlmsghdr head{};
    inet_diag_req_v2 request{};
  } message;
  message.head.nlmsg_len = sizeof message;
  message.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = family;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = 1u << TCP_LISTEN;
  message.request.id.idiag_sport = htons(port);
  if (send(netlink, &message, sizeof message, 0) != static_cast<ssize_t>(sizeof message)) return false;
  alignas(nlmsghdr) std::array<char, 16'384> answer;
  while (true) {
    const ssize_t size = recv(netlink, answer.data(), answer.size(), 0);
    if (size <= 0) return false;
    const std::optional<bool> last = take_sockets(answer.data(), static_cast<std::size_t>(size), rows);
    if (!last) return false;
    if (*last) return true;
  }
}

/// Nothing: this kernel cannot be asked.
std::optional<std::vector<Row>> asked_rows(uint16_t port) {
  const int netlink = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (netlink < 0) return std::nullopt;
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  setsockopt(netlink, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::vector<Row> rows;
  const bool asked =
      ask_listening(netlink, AF_INET, port, rows) && ask_listening(netlink, AF_INET6, port, rows);
  close(netlink);
  if (!asked) return std::nullopt;
  return rows;
}

/// Users of the rows with one of the first addresses, or else with one of the others.
void add_users(const std::vector<Row>& rows, const std::vector<std::string>& exact,
               const std::vector<std::string>& any, std::vector<uid_t>& users) {
  for (const std::vector<std::string>* const wanted : {&exact, &any}) {
    const std::size_t before = users.size();
    for (const Row& row : rows) {
      if (std::find(wanted->begin(), wanted->end(), row.address) != wanted->end()) users.push_back(row.user);
    }
    if (users.size() > before) return;
  }
}

/// The number behind "name": in flat JSON.
std::optional<int64_t> number_of(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\":");
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(json.c_str() + at + name.size() + 3, nullptr, 10);
}

/// A regular file of one of these users, which others may not read when it is secret.
Result<std::string> read_owned(const std::string& path, const std::vector<uid_t>& owners, bool secret) {
  const auto refuse = [&path](const std::string& why) {
    return Error{.code = ErrorCode::kPermissionDenied, .message = path + " " + why};
  };
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return refuse(std::string("cannot be read: ") + std::strerror(errno));
  struct stat facts{};
  std::string text(kTokenBytesMax, '\0');
  const bool known = fstat(file, &facts) == 0;
  const ssize_t size = known && S_ISREG(facts.st_mode) ? read(file, text.data(), text.size()) : -1;
  close(file);
  if (size < 0) return refuse("is not a readable file");
  if (std::find(owners.begin(), owners.end(), facts.st_uid) == owners.end())
    return refuse("belongs to a user other than the one who listens there");
  if (secret && (facts.st_mode & 077) != 0) return refuse("can be read by others");
  text.resize(static_cast<std::size_t>(size));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

namespace {

std::vector<uid_t> users_of(const std::vector<Row>& rows, const std::string& host) {
  std::vector<uid_t> users;
  const std::string four = table_address(AF_INET, host == "localhost" ? "127.0.0.1" : host);
  if (!four.empty()) {
    add_users(rows, {four, std::string(kMapped) + four}, {std::string(kAny4), std::string(kAny6)}, users);
  }
  const std::string six = table_address(AF_INET6, host == "localhost" ? "::1" : host);
  if (!six.empty()) add_users(rows, {six}, {std::string(kAny6)}, users);
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  return users;
}

}  // namespace

std::vector<uid_t> listening_users(std::string_view table, const std::string& host, uint16_t port) {
  return users_of(listening_rows(table, port), host);
}

std::vector<uid_t> listening_users(const std::string& host, uint16_t port) {
  if (const std::optional<std::vector<Row>> rows = asked_rows(port)) return users_of(*rows, host);
  std::string table;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(path);
    table.append(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return listening_users(table, host, port);
}

IdFloor read_id_floor(const std::string& path) {
  IdFloor floor;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    uint32_t number = 0;
    if (!(words >> name >> number) || number == 0) continue;
    if (name == "UID_MIN") floor.uid = number;
    if (name == "GID_MIN") floor.gid = number;
  }
  return floor;
}

Result<std::string> read_local_token(const std::string& path, const std::string& host, uint16_t port,
                                     const std::string& port_name) {
  constexpr std::string_view kName = "/token";
  const auto refuse = [&path](const char* why) {
    return Error{.code = ErrorCode::kPermissionDenied, .message = path + " " + why};
  };
  if (!path.starts_with('/') || !path.ends_with(kName) || path.find('\0') != std::string::npos)
    return refuse("is not the path of a token");
  const std::vector<uid_t> owners = is_loopback(host) ? listening_users(host, port) : std::vector<uid_t>{};
  if (owners.size() != 1) return refuse("is not used: the owner of that scheduler could not be determined");
  const Result<std::string> ports =
      read_owned(path.substr(0, path.size() - kName.size()) + "/ports.json", owners, false);
  if (!ports) return ports.error();
  const std::optional<int64_t> pid = number_of(*ports, "pid");
  if (number_of(*ports, port_name) != port || !pid || *pid <= 0 ||
      (kill(static_cast<pid_t>(*pid), 0) != 0 && errno != EPERM))
    return refuse("is not that of the scheduler that listens there");
  Result<std::string> token = read_owned(path, owners, true);
  if (token && token->size() < kTokenBytesMin) return refuse("holds no token");
  return token;
}

}  // namespace gpusched::ops
