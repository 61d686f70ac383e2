#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "access/actions.h"
#include "access/caller.h"
#include "base/ids.h"
#include "base/time.h"

/// Lines about who did what, and who was refused what. A call's line tells of the call, never its content: no
/// body, command, environment, script, query or credential.
namespace gpusched::audit {

/// Where a call came in.
enum class Door : uint8_t { kRest, kNativeRest, kGrpc, kWebSocket, kMetrics };
std::string_view to_string(Door door);

enum class Outcome : uint8_t {
  kDone,       ///< A write was applied, or what was asked for was given.
  kRefused,    ///< The caller may do that; the request was wrong, or what it is about does not allow it.
  kForbidden,  ///< The caller may not do that.
  kHidden,     ///< It may not even know that what it is about exists, and was told that it does not.
  kUnauthenticated,  ///< The credential is wrong, or there is none where one is needed.
  kRateLimited,      ///< Before anybody looked at the credential.
  kAbandoned,        ///< The client went away before it was known.
};
/// "applied" for writes and "allowed" for all others when it is done.
std::string_view to_string(Outcome outcome, std::optional<access::Action> action);

/// Names a call, in this run of the program and, by chance, among all others.
struct RequestId {
  uint64_t number = 0;
};
/// Thread-safe.
RequestId next_request();
std::string to_string(RequestId request);

/// Line about one call, or about one outcome of a batch.
struct Line {
  Time at;  ///< Time of the answer, since 1970.
  RequestId request;
  Door door = Door::kRest;
  Outcome outcome = Outcome::kDone;
  std::optional<access::Action> action;          ///< None: the call is none of those that there are.
  std::shared_ptr<const access::Caller> caller;  ///< Null: nobody knows.
  std::string peer;                              ///< The client's address, without port.
  std::string claimed_by;                        ///< The client's name for itself, unchecked; empty: none.
  std::string client_request_id, trace_id;       ///< The client's names for call and trace; empty: none.
  std::string resource;   ///< Id or name of what it is about; empty: nothing in particular.
  std::string last;       ///< Batches only: the last one; `resource` is the first.
  JobId job, last_job;    ///< Instead of both, when valid.
  uint64_t count = 1;     ///< Number of objects of the action.
  std::string unix_user;  ///< Unix user of the job or session, where that is named.
  std::string_view code;  ///< Code of the error, in static storage; empty: none.
  uint64_t repeated = 0;  ///< Further calls, alike in all but their numbers, within the same moment.
};

/// Whether such a call leaves a line.
bool is_told(std::optional<access::Action> action, Outcome outcome);

/// Counts `line` in `told`, which came before it, instead of a line of its own, when nothing is lost by that:
/// submissions of one stream, or the same refusal again.
bool merge(Line& told, const Line& line);

/// Appends the line as a JSON object and a newline. Any bytes may be in it: the result is one line of valid
/// JSON.
void append_line(std::string& out, const Line& line);

}  // namespace gpusched::audit
