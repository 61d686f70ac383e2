#pragma once

#include "api/contract/backend.h"
#include "api/doors/rest_query.h"
#include "api/http/rest_gate.h"

namespace gpusched::api {

enum class LogFormat : uint8_t {
  kBytes,      ///< As the job wrote them. Bytes no longer kept are left out in silence.
  kJsonLines,  ///< One object a piece, with offsets; bytes that are no UTF-8 in base64.
};

/// Checks the offsets and texts of a request that a client sent.
std::optional<ApiError> check_log_request(const LogRequest& request);
/// Nothing follows the piece, or nothing for now and nobody waits for it.
bool is_end(const LogPiece& piece, bool follow);

/// Reads what of an output is wanted: `stream`, `attempt`, `offset`, `tail_lines`, `since` (a time, or how
/// long ago), `grep`, `timestamps`, `follow`, `format`. Leaves problems in the query.
struct LogQuery {
  LogRequest request;
  bool follow = false;
  LogFormat format = LogFormat::kBytes;
};
LogQuery read_log_query(JobId job, RestQuery& query);

/// Streams an attempt's output to the client, piece by piece, as fast as it reads. `follow`: waits for the
/// job to start, for more at the end, and for a node that is away for a while, until the attempt has ended.
void relay_log(Backend& backend, HttpServer& server, const RestCallPtr& call, LogRequest request, bool follow,
               LogFormat format = LogFormat::kBytes);

/// The piece as a line of JSON. Bytes of a character that the piece cuts are left to the next one, whose
/// offset in `piece` is set back.
std::string log_piece_json(LogPiece& piece, bool of_stderr, bool whole_lines);

}  // namespace gpusched::api
