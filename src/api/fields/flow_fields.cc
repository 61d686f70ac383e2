#include "api/fields/flow_fields.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/fields/checks.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kTextMax = 200;

constexpr std::array<std::pair<std::string_view, uint32_t>, 5> kCauses = {
    {{"exit_code", kRetryExit},
     {"signal", kRetrySignal},
     {"out_of_memory", kRetryOutOfMemory},
     {"over_limit", kRetryOverLimit},
     {"timeout", kRetryTimeout}}};

Answer<Dependency> parse_dependency(std::string_view text) {
  constexpr std::array kKinds = {DependencyKind::kAfterOk, DependencyKind::kAfterAny,
                                 DependencyKind::kAfterStart};
  const auto wrong = [text] {
    return invalid("dependencies",
                   "dependencies has \"" + std::string(text.substr(0, 64)) +
                       "\"; write after_ok, after_any or after_start, a colon and a job, such as "
                       "after_ok:job-12");
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return wrong();
  Dependency out;
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                 [&](DependencyKind one) { return to_string(one) == text.substr(0, colon); });
  if (kind == kKinds.end()) return wrong();
  out.kind = *kind;
  const std::string_view parent = text.substr(colon + 1);
  if (parent.starts_with('#')) {
    const auto index = parse_count(parent.substr(1), limits::kBatchJobsMax - 1);
    if (!index) return wrong();
    out.index = static_cast<uint32_t>(*index);
    return out;
  }
  const auto job = parse_job_id(parent);
  if (!job) return wrong();
  out.parent = *job;
  return out;
}

std::optional<ApiError> read_retry_on(const std::vector<std::string>& words, JobRequest& job) {
  std::set<uint8_t> codes;
  bool any_code = false;
  for (const std::string& word : words) {
    const std::string_view name = std::string_view(word).substr(0, word.find(':'));
    const auto cause =
        std::find_if(kCauses.begin(), kCauses.end(), [&](const auto& one) { return one.first == name; });
    const bool with_code = name.size() < word.size();
    const auto code = parse_count(with_code ? std::string_view(word).substr(name.size() + 1) : "0", 255);
    if (cause == kCauses.end() || !code || (with_code && cause->second != kRetryExit)) {
      return invalid("retry.on", "\"" + word.substr(0, 64) +
                                     "\" is not a cause of retries; write exit_code, exit_code:75, signal, "
                                     "out_of_memory, over_limit or timeout");
    }
    job.retry_causes |= cause->second;
    if (with_code) codes.insert(static_cast<uint8_t>(*code));
    any_code = any_code || (cause->second == kRetryExit && !with_code);
  }
  if (any_code) codes.clear();
  for (const uint8_t code : codes) job.retry_exit_codes += static_cast<char>(code);
  return std::nullopt;
}

std::optional<ApiError> check_times(const JobFields& fields) {
  const auto check = [](std::string_view field, const std::optional<Time>& at,
                        int64_t after_ms) -> std::optional<ApiError> {
    if (at && at->valid() && after_ms != 0)
      return invalid(field,
                     std::string(field) + " is given both as a time and as a duration; send one of them");
    if (after_ms < 0 || after_ms > limits::kBeginMax.ms())
      return invalid(field, std::string(field) + " must not be more than a year ahead");
    return std::nullopt;
  };
  if (auto problem = check("begin_at", fields.begin_at, fields.begin_after_ms.value_or(0))) return problem;
  return check("deadline", fields.deadline, fields.deadline_after_ms.value_or(0));
}

}  // namespace

std::optional<ApiError> read_flow(const JobFields& fields, JobRequest& job) {
  const StringList none;
  const StringList& dependencies = fields.dependencies ? *fields.dependencies : none;
  if (auto problem = check_times(fields)) return problem;
  if (auto problem = read_retry_on(fields.retry_on ? *fields.retry_on : none, job)) return problem;
  if (dependencies.size() > limits::kDependenciesMax)
    return invalid("dependencies", "dependencies has more than " + std::to_string(limits::kDependenciesMax) +
                                       " entries; depend on fewer jobs, or on an array");
  JobFlow flow{.begin_at = fields.begin_at.value_or(Time{}),
               .begin_after = milliseconds(fields.begin_after_ms.value_or(0)),
               .deadline = fields.deadline.value_or(Time{}),
               .deadline_after = milliseconds(fields.deadline_after_ms.value_or(0))};
  for (const std::string& text : dependencies) {
    Answer<Dependency> one = parse_dependency(text);
    if (!one) return one.error();
    flow.dependencies.push_back(*one);
  }
  const std::string on_failure = fields.on_parent_failure.value_or("");
  if (on_failure == "wait") {
    flow.on_parent_failure = OnParentFailure::kWait;
  } else if (!on_failure.empty() && on_failure != "cancel") {
    return invalid("on_parent_failure", "on_parent_failure must be cancel or wait");
  }
  if (fields.array && !fields.array->empty()) {
    Answer<ArraySpec> array = parse_array(*fields.array);
    if (!array) return array.error();
    flow.array = std::move(array->ranges);
    flow.array_at_once = array->at_once;
  }
  const bool asks = flow.begin_at.valid() || flow.begin_after.ns > 0 || flow.deadline.valid() ||
                    flow.deadline_after.ns > 0 || !flow.dependencies.empty() || !flow.array.empty();
  if (asks) job.flow.push_back(std::move(flow));
  return std::nullopt;
}

Answer<ArraySpec> parse_array(std::string_view text) {
  const auto wrong = [](std::string why) { return invalid("array", "array " + std::move(why)); };
  const std::string shape =
      "must be indexes such as 1-100, 0-20:5 or 1,3,7-9, followed by %50 to run at most fifty at a time";
  ArraySpec out;
  const std::size_t percent = text.find('%');
  if (percent != std::string_view::npos) {
    const auto at_once = parse_count(text.substr(percent + 1), limits::kArrayElementsMax);
    if (!at_once || *at_once == 0) return wrong(shape);
    out.at_once = *at_once;
    text = text.substr(0, percent);
  }
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t dash = part.find('-');
    const std::size_t colon = dash == std::string_view::npos ? dash : part.find(':', dash);
    const auto first = parse_count(part.substr(0, dash), limits::kArrayIndexMax);
    const auto last = dash == std::string_view::npos
                          ? first
                          : parse_count(part.substr(dash + 1, colon - dash - 1), limits::kArrayIndexMax);
    const auto step = colon == std::string_view::npos
                          ? std::optional<int64_t>(1)
                          : parse_count(part.substr(colon + 1), limits::kArrayIndexMax);
    if (!first || !last || !step || *step == 0) return wrong(shape);
    if (*last < *first) return wrong("has a range that runs backwards: " + std::string(part));
    out.ranges.push_back({.first = *first, .last = *last - (*last - *first) % *step, .step = *step});
    if (out.ranges.size() > limits::kArrayRangesMax) return wrong("has too many parts; use ranges");
  }
  std::sort(out.ranges.begin(), out.ranges.end(),
            [](const IndexRange& a, const IndexRange& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < out.ranges.size(); ++i) {
    if (out.ranges[i].first <= out.ranges[i - 1].last) return wrong("has ranges that overlap; separate them");
  }
  if (count_of(out.ranges) > limits::kArrayElementsMax)
    return wrong("has more than " + std::to_string(limits::kArrayElementsMax) +
                 " elements; split it into several arrays");
  return out;
}

std::string ranges_text(const std::vector<IndexRange>& ranges, int64_t from,
                        const std::vector<int64_t>& without) {
  std::string out;
  const auto add = [&out](const IndexRange& range) {
    if (out.size() > kTextMax) return;
    if (!out.empty()) out += ',';
    if (out.size() > kTextMax) {
      out += "...";
      return;
    }
    out += std::to_string(range.first);
    if (range.last > range.first) out += '-' + std::to_string(range.last);
    if (range.last > range.first && range.step > 1) out += ':' + std::to_string(range.step);
  };
  auto skipped = without.begin();
  int64_t before = 0;  // Positions of earlier ranges.
  for (const IndexRange& range : ranges) {
    const int64_t end = before + range.count();
    int64_t at = std::max(from, before);
    while (at < end) {
      while (skipped != without.end() && *skipped < at) ++skipped;
      const int64_t stop = skipped == without.end() ? end : std::min(end, *skipped);
      if (stop > at) {
        add({.first = range.first + (at - before) * range.step,
             .last = range.first + (stop - 1 - before) * range.step,
             .step = range.step});
      }
      at = stop + 1;
    }
    before = end;
  }
  return out;
}

std::string dependency_text(const JobDependency& dependency) {
  return std::string(to_string(dependency.kind)) + ":" + job_name(dependency.parent);
}

std::vector<std::string> retry_on_words(uint32_t causes, std::string_view exit_codes) {
  std::vector<std::string> out;
  for (const auto& [name, bit] : kCauses) {
    if ((causes & bit) == 0) continue;
    if (bit != kRetryExit || exit_codes.empty()) out.emplace_back(name);
    for (const char code : bit == kRetryExit ? exit_codes : std::string_view())
      out.push_back(std::string(name) + ":" + std::to_string(static_cast<unsigned char>(code)));
  }
  return out;
}

}  // namespace gpusched::api
