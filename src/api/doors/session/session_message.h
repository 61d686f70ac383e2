#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/contract/errors.h"
#include "api/doors/json_fields.h"

namespace gpusched::api {

/// A client's text message in a session: "open" first, then news of its terminal and user.
struct ClientMessage {
  std::optional<std::string> type, term;
  std::optional<StringList> command;
  std::optional<StringMap> environment;
  std::optional<bool> terminal;
  std::optional<int64_t> attempt, member, rows, columns, signal, session, port;
};

/// Returns what is wrong with it. A number beyond its bounds is refused with them, not taken for another one.
std::optional<ApiError> read_client_message(std::string_view text, ClientMessage& out);

}  // namespace gpusched::api
