#include "node/link/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "ops/api_socket.h"
#include "ops/local_peer.h"

namespace gpusched {
namespace {

constexpr std::size_t kTokenBytesMin = 16;
constexpr std::string_view kWhiteSpace = " \t\r\n";

}  // namespace

Result<std::string> read_token(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot read the token file " + path + ": " + std::strerror(errno)};
  struct stat facts{};
  if (stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0) {
    return Error{
        .code = ErrorCode::kPermissionDenied,
        .message =
            path +
            " can be read by others, and anyone who has the token can run any command; run chmod 600 on it"};
  }
  std::string token((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  token.erase(token.find_last_not_of(kWhiteSpace) + 1);
  token.erase(0, token.find_first_not_of(kWhiteSpace));
  if (token.size() < kTokenBytesMin) {
    return Error{
        .code = ErrorCode::kInvalidArgument,
        .message =
            path + " holds no token: it must have at least 16 bytes, as the scheduler's DATA_DIR/token has"};
  }
  return token;
}

std::string usual_agent_socket() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string own =
      ::geteuid() == 0 ? "" : ops::personal_socket(runtime == nullptr ? "" : runtime, ops::kAgentSocketName);
  std::string path = ops::find_api_socket({ops::kSystemAgentSocket, own});
  if (path.empty()) path = ::geteuid() == 0 ? ops::kSystemAgentSocket : own;  // It may come later.
  return path.empty() ? path : std::string(kUnixAddress) + path;
}

Result<Address> parse_address(const std::string& text) {
  const Error bad{.code = ErrorCode::kInvalidArgument,
                  .message = "'" + text + "' is not an address; write HOST:PORT, such as 127.0.0.1:9090",
                  .field = "scheduler"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  Address address{.host = text.substr(0, colon)};
  const std::string_view digits = std::string_view(text).substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc{} || end != digits.data() + digits.size() || address.port == 0) return bad;
  const bool bracketed = address.host.front() == '[' && address.host.back() == ']';
  if (bracketed) address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || (!bracketed && address.host.find(':') != std::string::npos)) return bad;
  return address;
}

Result<Unit> check_trust(const Address& scheduler, bool has_token, uid_t user,
                         const std::vector<uid_t>& listeners) {
  if (has_token) return Unit{};
  const std::string advice = "; copy the scheduler's DATA_DIR/token to this machine and pass --token-file";
  if (!ops::is_loopback(scheduler.host)) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "the scheduler at " + scheduler.host +
                            " is not on this machine, and without a token anyone could pretend to be it" +
                            advice};
  }
  const auto foreign = std::find_if(listeners.begin(), listeners.end(),
                                    [user](uid_t owner) { return owner != 0 && owner != user; });
  if (foreign == listeners.end()) return Unit{};
  const std::string own = user == 0 ? "root" : "user " + std::to_string(user);
  return Error{.code = ErrorCode::kPermissionDenied,
               .message = "this agent runs as " + own + ", and port " + std::to_string(scheduler.port) +
                          " belongs to user " + std::to_string(*foreign) + ", who could run anything as " +
                          own + " by it" + advice + ", or run the agent as that user"};
}

}  // namespace gpusched
