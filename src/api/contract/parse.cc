#include "api/contract/parse.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "api/contract/names.h"
#include "base/limits.h"

namespace gpusched::api {

std::optional<int64_t> parse_count(std::string_view text, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (text.front() == '-' || value > most) return std::nullopt;
  return value;
}

std::optional<JobId> parse_job_id(std::string_view text) {
  if (!text.starts_with("job-")) return std::nullopt;
  const std::size_t bracket = text.find('[');
  const std::string_view digits = text.substr(4, bracket == std::string_view::npos ? bracket : bracket - 4);
  const auto number = parse_count(digits, INT64_MAX);
  // One job has one name: no sign, no leading zero.
  if (!number || *number == 0 || digits.front() == '0' || digits.front() == '-') return std::nullopt;
  const JobId job{static_cast<uint64_t>(*number)};
  if (bracket == std::string_view::npos) return job;
  if (!text.ends_with(']') || job.value >> (63 - kElementIndexBits) != 0) return std::nullopt;
  const std::string_view place = text.substr(bracket + 1, text.size() - bracket - 2);
  const auto index = parse_count(place, limits::kArrayIndexMax);
  if (!index || (place.size() > 1 && (place.front() == '0' || place.front() == '-'))) return std::nullopt;
  return element_name(job, *index);
}

std::optional<KeyId> parse_key_id(std::string_view text) {
  if (!text.starts_with("key-")) return std::nullopt;
  const auto number = parse_count(text.substr(4), INT64_MAX);
  if (!number || *number == 0 || text[4] == '0') return std::nullopt;
  return KeyId{static_cast<uint64_t>(*number)};
}

std::optional<JobState> parse_job_state(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, JobState>, 7> kStates = {
      {{"pending", JobState::kPending},
       {"scheduled", JobState::kScheduled},
       {"running", JobState::kRunning},
       {"completed", JobState::kCompleted},
       {"failed", JobState::kFailed},
       {"cancelled", JobState::kCancelled},
       {"preempted", JobState::kPreempted}}};
  for (const auto& [name, state] : kStates) {
    if (name == text) return state;
  }
  return std::nullopt;
}

std::optional<Duration> parse_duration(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto number = parse_count(text.substr(0, digits), 1'000'000'000);
  if (!number) return std::nullopt;
  const std::string_view unit = text.substr(digits);
  if (unit == "ms") return milliseconds(*number);
  if (unit == "s" || unit.empty()) return seconds(*number);
  if (unit == "m") return minutes(std::min<int64_t>(*number, 1'000'000));
  if (unit == "h") return hours(std::min<int64_t>(*number, 1'000'000));
  if (unit == "d") return hours(24 * std::min<int64_t>(*number, 40'000));
  return std::nullopt;
}

}  // namespace gpusched::api
