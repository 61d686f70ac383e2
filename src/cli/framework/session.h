#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "cli/framework/options.h"
#include "cli/framework/run.h"
#include "client/http_client.h"
#include "client/json.h"
#include "client/websocket_client.h"

namespace gpusched::cli {

/// Why a call gave nothing: what to print, and how to end.
struct Trouble {
  int exit_code = kExitUnexpected;
  std::string sentence;
  std::string code;  ///< The scheduler's own, or one of ours: unreachable, outcome_unknown, timeout,
                     ///< bad_answer, certificate_refused.
  /// The scheduler was away for a moment, or is; the same call may succeed later.
  bool passing = false;
  bool throttled = false;  ///< The scheduler was there and had no room for more (429).
};

/// The scheduler's refusal of something about a job, with the job named in its sentence.
Trouble about_job(const std::string& job, Trouble trouble);

/// A call's JSON, and its text as it came, or the trouble.
struct Reply {
  std::optional<Trouble> trouble;
  Json json;
  std::string text;

  explicit operator bool() const { return !trouble; }
};

/// An open WebSocket, or the trouble.
struct SocketReply {
  std::optional<Trouble> trouble;
  std::optional<WebSocketClient> socket;
};

/// One command's connection to the scheduler. Not thread-safe; `fork` gives another thread its own.
///
/// With several addresses the calls go to one that serves: a call that did nothing yet, or that is safe to
/// repeat, goes to the others in turn, with pauses while none serves, for some seconds in all since the last
/// answer. With one address each call is tried as it comes.
class Session {
 public:
  /// kInvalidArgument for a bad URL, kIo for a token file that cannot be read, kPermissionDenied for a token
  /// that would go to somebody else; it is not read unless `needs_token`. Without a token file the token of a
  /// login is taken (kUnauthenticated: one must log in again; kUnavailable: its provider does not answer),
  /// and without one the scheduler's own token, where this user may read that.
  static Result<Session> open(const Options& options, const CliIo& io, bool needs_token = true);
  /// A second connection with the same options.
  Session fork() const;

  /// No call takes longer than `most` from now on.
  void limit_calls(Duration most) { call_timeout_ = std::min(call_timeout_, most); }

  /// Calls the API; `path` stands behind "/api/v1", unless it begins with "/v1/": the native one.
  Reply get(const std::string& path);
  Reply get(const std::string& path, Duration timeout);
  /// A write, under a key of its own.
  Reply send(const std::string& method, const std::string& path, const std::string& body = {});
  /// A POST that may be repeated once when the connection breaks: `key` makes it one request.
  Reply post_once(const std::string& path, const std::string& body, const std::string& key);
  /// Gives what `path` streams to `on_data`, and before that the answer's head to `on_head`.
  Reply stream(const std::string& path, const HttpOnData& on_data, const HttpOnHead& on_head = nullptr);
  /// The same of the answer to a POST, which must be safe to repeat.
  Reply stream_post(const std::string& path, const std::string& body, const HttpOnData& on_data);
  /// Opens a WebSocket at `path`.
  SocketReply open_socket(const std::string& path);

  /// Whether the scheduler's own token may still be found: none is known or needed, and no file was given.
  bool may_find_token() const;
  /// Looks for it again: a scheduler that was away could not name it. Returns whether it is there now.
  bool find_token_again();
  /// Whether the scheduler knows who calls: by a token, or over its Unix socket.
  bool is_known() const { return has_token() || is_local(); }
  /// The name of this scheduler among logins.
  const std::string& url() const { return client_.url(); }
  /// The provider that the token that is sent comes from; empty: none.
  const std::string& login_issuer() const { return login_issuer_; }
  const Options& options() const { return *options_; }
  const CliIo& io() const { return *io_; }

  /// Prints the trouble as one line; returns its exit code.
  int fail(const Trouble& trouble) const;
  /// Prints a sentence with a code as one line; returns `exit_code`.
  int fail(int exit_code, const std::string& sentence, const std::string& code) const;

 private:
  bool has_token() const { return !client_options_.token.empty(); }
  bool is_local() const;
  std::string credential_hint() const;
  Session(const Options& options, const CliIo& io, HttpClientOptions client_options, HttpClient client);
  /// Takes the token of the login for this scheduler, if there is one.
  Result<Unit> take_login();
  void set_token(std::string token);
  /// Gets another token of the login when it is time. The trouble: there is none.
  std::optional<Trouble> renew_login();
  Reply perform(HttpRequest request, const HttpOnData* on_data, const HttpOnHead* on_head = nullptr);
  Reply perform_once(const HttpRequest& request, const HttpOnData* on_data, const HttpOnHead* on_head);
  /// Moves on to the next of several addresses, after a pause when all were tried; false: that was enough.
  bool pass_over(const Trouble& trouble);

  const Options* options_;
  const CliIo* io_;
  HttpClientOptions client_options_;
  HttpClient client_;
  Duration call_timeout_;
  /// The search for the one of several addresses that serves, since the last answer.
  struct Search {
    std::size_t passed_over = 0;  ///< Addresses.
    Duration pause = {};          ///< The last one.
    Duration paused = {};         ///< All of them.
    std::chrono::steady_clock::time_point began = {};
  };
  Search search_;
  std::string login_issuer_;  ///< Provider of the token that is sent; empty: another credential, or none.
  Time renew_at_ = kNever;    ///< Wall clock: when the login's token is to be exchanged.
};

/// Whether standard output gets colours.
bool colored(const Options& options, const CliIo& io);

/// Prints "gpu-cli: <sentence> (<code>)".
void print_error(const CliIo& io, const std::string& sentence, const std::string& code);

/// 128 random bits in hexadecimal.
std::string random_key();

/// Waits between two tries of a call whose trouble is passing: 0.1 s, doubling up to 2 s, for a minute in
/// all; each pause is cut at random by up to a half, so that clients of one scheduler do not return as one.
class Patience {
 public:
  explicit Patience(const CliIo& io) : io_(io) {}
  /// Pauses and returns true, or returns false when the minute is over.
  bool wait_again();
  /// The scheduler answered: the next trouble has its own minute.
  void renew();

 private:
  const CliIo& io_;
  Duration next_ = kFirst;
  Duration waited_ = {};
  static constexpr Duration kFirst = milliseconds(100);
};

}  // namespace gpusched::cli
