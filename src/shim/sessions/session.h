#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/box.h"

/// Interactive sessions, connections to ports and file reads beside a running attempt. Each is one process,
/// the keeper (`gpu-shim --session`), that the agent starts and holds by a socket: it enters the attempt's
/// box, becomes the attempt's user, runs one command, joins its standard streams to one port or reads one
/// file, and is gone, with all that it started, when the socket closes. So no session outlives its agent or
/// its attempt, and none can harm the job.
namespace gpusched::shim {

/// The second word of a keeper's command line.
inline constexpr const char* kSessionFlag = "--session";
/// Descriptors at which the agent hands the keeper its socket and the request; 0, 1 and 2 are the command's.
inline constexpr int kSessionSocket = 3;
inline constexpr int kSessionRequestFile = 4;

struct SessionRequest {
  enum class Kind : uint8_t { kCommand = 1, kFile = 2, kPort = 3 };
  Kind kind = Kind::kCommand;
  /// A process of the attempt, whose box, environment and working directory are taken; 0: the attempt has
  /// ended, and the directories below say where a file is read.
  int64_t target = 0;
  std::string title = {};     ///< shim_title of the attempt, whose shim is the target's parent.
  Credentials identity = {};  ///< User of the attempt; its processes' claims do not count.
  std::string working_directory = {};
  std::string other_directory = {};           ///< Where the one above cannot be opened; empty: none.
  std::vector<std::string> arguments = {};    ///< Arguments of a command; empty: the user's login shell.
  std::vector<std::string> environment = {};  ///< "NAME=value", over the attempt's own.
  bool terminal = false;                      ///< Descriptor 0 is a pseudo terminal to lead.
  std::string path = {};                      ///< Path of a file.
  uint32_t port = 0;                          ///< TCP port on the loopback of the attempt's network.
};
std::string encode(const SessionRequest& request);
std::optional<SessionRequest> decode_session_request(std::string_view bytes);

/// Messages from keeper to agent.
struct SessionEvent {
  enum class Kind : uint8_t {
    kStarted = 1,  ///< The command runs, the port is connected, or the file is open: `size`, `mode`.
    kFailed = 2,   ///< It does not, ever: `code` (of docs/reference/errors.md) and `message`.
    kExited = 3,   ///< The command ended: `exit_code` or `signal`.
    kData = 4,     ///< Bytes of the file; none: its end.
  };
  Kind kind = Kind::kStarted;
  int64_t size = 0;
  uint32_t mode = 0;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string code = {};
  std::string message = {};
  std::string data = {};
};
std::string encode(const SessionEvent& event);
std::optional<SessionEvent> decode_session_event(std::string_view packet);

/// Messages from agent to keeper.
struct SessionOrder {
  enum class Kind : uint8_t {
    kSignal = 1,  ///< `signal` to `group`, or to the command's own process group when that is 0.
    kKill = 2,    ///< Everything is ended at once, without SIGHUP.
    kRead = 3,    ///< The next at most `size` bytes of the file.
  };
  Kind kind = Kind::kSignal;
  int32_t signal = 0;
  int64_t group = 0;
  int64_t size = 0;
};
std::string encode(const SessionOrder& order);
std::optional<SessionOrder> decode_session_order(std::string_view packet);

/// The keeper's main function; returns the exit status.
int run_session_keeper();

}  // namespace gpusched::shim
