#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/ids.h"
#include "base/time.h"

/// Output, interactive sessions and files of attempts.
namespace gpusched::api {

/// A text that is looked for in an output; lines from its end.
inline constexpr std::size_t kGrepBytesMax = 1'024;
inline constexpr int64_t kTailLinesMax = 1'000'000;

struct LogRequest {
  JobId job;
  std::string tenant;    ///< Given: the job must be this tenant's.
  uint32_t attempt = 0;  ///< 0: the latest.
  uint32_t member = 0;   ///< Gang member whose output is read.
  bool from_stderr = false;
  int64_t offset = 0;
  int32_t size_max = 65'536;
  Duration wait = {};  ///< How long to wait for more at the end of a running attempt's output.
  /// Where the first piece begins; of no use for the ones after it, which go on at `LogPiece::next_offset`.
  int64_t tail_lines = 0;   ///< Positive: at the last so many lines, whatever `offset` is.
  Time since = {};          ///< Valid: at what was written at or after this time, as well as the node knows.
  std::string grep;         ///< Only lines that hold this text, chosen on the node; it has no line feed.
  bool timestamps = false;  ///< Whole lines, each behind the time at which it was there at the latest.

  /// Whether pieces hold whole lines, whose bytes are not those from `LogPiece::offset` on.
  bool of_lines() const { return timestamps || !grep.empty(); }
  /// Asks for what follows `piece`.
  void go_on(const struct LogPiece& piece);
};
/// Part of an output. An offset names a byte of the whole output, whatever of it is still kept.
struct LogPiece {
  std::string data;         ///< With `of_lines` whole lines, which need not follow each other.
  int64_t offset = 0;       ///< Place of `data` in the output.
  int64_t next_offset = 0;  ///< Where to go on. Without data and progress: at the end, for now.
  int64_t skipped = 0;      ///< Bytes that were asked for and are no longer kept; they came before `data`.
  bool at_end = false;      ///< Nothing follows, ever.
  uint32_t attempt = 0;
};
inline void LogRequest::go_on(const LogPiece& piece) {
  // An attempt is followed to its end, even when another one has begun meanwhile.
  if (attempt == 0) attempt = piece.attempt;
  offset = piece.next_offset;
  tail_lines = 0;
  since = {};
}

/// An interactive command in a running attempt, or one that was detached from; or a connection to a port.
struct SessionRequest {
  JobId job;
  std::string tenant;                ///< Given: the job must be this tenant's.
  uint32_t attempt = 0;              ///< 0: the latest.
  uint32_t member = 0;               ///< Gang member on whose node the session runs.
  std::vector<std::string> command;  ///< Empty: the user's login shell.
  bool terminal = false;             ///< In a pseudo terminal; else with pipes.
  uint32_t rows = 0, columns = 0;
  std::string term;
  std::vector<std::pair<std::string, std::string>> environment;
  uint64_t session = 0;  ///< Given: this session of the job is taken up again; what is above is ignored.
  uint32_t port = 0;     ///< Given: no command, but this TCP port on the loopback of the attempt's network.
};

/// A session's near end, which the door makes. Called on the host's thread, in order; it must not block.
class SessionPeer {
 public:
  struct End {
    std::optional<ApiError> error;  ///< Why there is no exit code, or none of the command's own.
    int32_t exit_code = 0, signal = 0;
    std::string message;  ///< One sentence beside an exit code; usually none.
  };
  virtual ~SessionPeer() = default;
  /// Receives the user that the job names to run as; the first call, when it names one.
  virtual void on_unix_user(const std::string& /*user*/) {}
  virtual void on_number(uint64_t session) = 0;
  virtual void on_opened() = 0;
  /// Not more than was granted: limits::kSessionCreditBytes at first, then what `SessionHandle::grant` adds.
  virtual void on_output(std::string data, bool of_stderr) = 0;
  /// A port sends no more; it may still take input.
  virtual void on_output_end() {}
  /// Allows so many more bytes of input; at first limits::kSessionCreditBytes.
  virtual void on_credit(int64_t bytes) = 0;
  /// The last call.
  virtual void on_end(End end) = 0;
};

/// The way to a session's command. Thread-safe; nothing here waits.
class SessionHandle {
 public:
  virtual ~SessionHandle() = default;
  virtual void input(std::string data) = 0;
  virtual void end_input() = 0;
  virtual void resize(uint32_t rows, uint32_t columns) = 0;
  virtual void signal(uint32_t number) = 0;
  virtual void grant(int64_t bytes) = 0;
  /// Leaves it running without a peer. The peer is not called any more.
  virtual void detach() = 0;
  /// Ends it. The peer is not called any more.
  virtual void close() = 0;
};

struct FileRequest {
  JobId job;
  std::string tenant;    ///< Given: the job must be this tenant's.
  uint32_t attempt = 0;  ///< 0: the latest.
  uint32_t member = 0;
  std::string path;
  uint64_t transfer = 0;  ///< Number from the piece before; 0: the first piece is asked for.
  int64_t offset = 0;     ///< Behind the piece before.
  bool close = false;     ///< No more of this transfer is wanted; there is no answer.
};
struct FilePiece {
  std::string data;
  uint64_t transfer = 0;
  int64_t size = 0;     ///< Size of the whole file.
  uint32_t mode = 0;    ///< Permission bits.
  bool at_end = false;  ///< Nothing follows.
  uint32_t attempt = 0;
  std::string unix_user = {};  ///< User that the job names to run as; with the first piece.
};

/// Output, interactive sessions and files of attempts. Everything is thread-safe and returns at once; answers
/// come by `Done`.
class SessionBackend {
 public:
  virtual ~SessionBackend() = default;

  /// Relays one piece of an attempt's output from its node.
  virtual void read_log(const CallerPtr& caller, LogRequest request, Done<LogPiece> done) = 0;
  /// Opens, or takes up, a session. Refusals come to the peer as its end.
  virtual std::shared_ptr<SessionHandle> open_session(const CallerPtr& caller, SessionRequest request,
                                                      std::shared_ptr<SessionPeer> peer) = 0;
  /// One piece of a file of an attempt, running or ended.
  virtual void read_file(const CallerPtr& caller, FileRequest request, Done<FilePiece> done) = 0;
};

}  // namespace gpusched::api
