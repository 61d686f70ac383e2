#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ids.h"
#include "base/time.h"
#include "model/identity/access_key.h"
#include "model/types.h"

/// Words that every door takes, as values. Pure functions over untrusted text.
namespace gpusched::api {

/// "job-12" -> 12. Nothing when it is no job's name.
std::optional<JobId> parse_job_id(std::string_view text);
/// "key-12" -> 12. Nothing when it is no key's.
std::optional<KeyId> parse_key_id(std::string_view text);
/// "pending" and so on.
std::optional<JobState> parse_job_state(std::string_view text);
/// A whole number without sign, at most `most`.
std::optional<int64_t> parse_count(std::string_view text, int64_t most);
/// "30s", "5m", "250ms", "2h", "7d", or a bare number of seconds.
std::optional<Duration> parse_duration(std::string_view text);

}  // namespace gpusched::api
