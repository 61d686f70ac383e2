#include "api/doors/session/session_message.h"

#include <vector>

namespace gpusched::api {
namespace {

constexpr int64_t kAttemptMax = UINT32_MAX;
constexpr int64_t kSignalMax = 64;
constexpr int64_t kTerminalSizeMax = UINT16_MAX;
constexpr int64_t kPortMax = UINT16_MAX;

}  // namespace

std::optional<ApiError> read_client_message(std::string_view text, ClientMessage& out) {
  const std::vector<JsonField> fields = {{"type", &out.type},         {"term", &out.term},
                                         {"command", &out.command},   {"environment", &out.environment},
                                         {"terminal", &out.terminal}, {"attempt", &out.attempt},
                                         {"member", &out.member},     {"rows", &out.rows},
                                         {"columns", &out.columns},   {"signal", &out.signal},
                                         {"session", &out.session},   {"port", &out.port}};
  if (auto problem = read_json_object(text, fields)) return problem;
  const struct {
    const char* name;
    const std::optional<int64_t>& value;
    int64_t most;
  } bounds[] = {{"attempt", out.attempt, kAttemptMax}, {"member", out.member, kAttemptMax},
                {"rows", out.rows, kTerminalSizeMax},  {"columns", out.columns, kTerminalSizeMax},
                {"signal", out.signal, kSignalMax},    {"session", out.session, INT64_MAX},
                {"port", out.port, kPortMax}};
  for (const auto& [name, value, most] : bounds) {
    if (!value || (*value >= 0 && *value <= most)) continue;
    return ApiError{
        ErrorKind::kInvalidArgument,
        std::string(name) + " must be from 0 to " + std::to_string(most) + ", not " + std::to_string(*value),
        name};
  }
  const bool has_more = out.command || out.terminal.value_or(false) || out.environment || out.session;
  if (out.port && (*out.port == 0 || has_more)) {
    return ApiError{ErrorKind::kInvalidArgument,
                    "port must be from 1 to 65535, without command, terminal, environment and session",
                    "port"};
  }
  return std::nullopt;
}

}  // namespace gpusched::api
