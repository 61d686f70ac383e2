#pragma once

#include <string_view>

/// Names that others give to a call, so that it is found again in their logs and in ours. From untrusted
/// bytes.
namespace gpusched {

/// The trace's id (32 digits) in a `traceparent`, W3C Trace Context, section 3.2; empty: it is not valid,
/// which is as if there were none. Later versions are read as version 00.
std::string_view trace_id_of(std::string_view traceparent);

/// Whether a client's name for its request can be taken into headers and logs as it is: 1 to 64 letters,
/// digits and any of "-_.:/+=~@".
inline constexpr std::size_t kRequestNameBytesMax = 64;
bool is_request_name(std::string_view text);

}  // namespace gpusched
