#include "audit/line.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <random>

#include "base/check.h"
#include "log/line.h"

namespace gpusched::audit {
namespace {

using access::Action;

constexpr std::size_t kNameBytesMax = 128;  // Longer ones are cut: names that can be have fewer bytes.
constexpr int kRunLetters = 6;

std::string_view kind_of(Action action) {
  switch (action) {
    case Action::kMakeReservation:
    case Action::kCancelReservation:
      return "reservation";
    case Action::kMoveJobs:
      return "proposal";
    default:
      break;
  }
  switch (access::row_of(action).subject) {
    case access::Subject::kJob:
      return "job";
    case access::Subject::kTenant:
      return "tenant";
    case access::Subject::kKey:
      return "key";
    case access::Subject::kNode:
      return "node";
    case access::Subject::kCluster:
      return "cluster";
  }
  UNREACHABLE();
}

/// Letters that tell runs of the program apart.
const std::string& run_letters() {
  static const std::string kLetters = [] {
    std::random_device device;
    std::string letters;
    for (int i = 0; i < kRunLetters; ++i) letters += "0123456789abcdefghijkmnpqrstuvwx"[device() % 32];
    return letters;
  }();
  return kLetters;
}

void append_field(std::string& out, std::string_view name, std::string_view text) {
  out += ",\"";
  out += name;
  out += "\":";
  append_json_string(out, text.substr(0, kNameBytesMax));
}

void append_field(std::string& out, std::string_view name, uint64_t number) {
  out += ",\"";
  out += name;
  out += "\":";
  out += std::to_string(number);
}

std::string name_of(JobId job, const std::string& name) {
  return job.valid() ? "job-" + std::to_string(job.value) : name;
}

}  // namespace

std::string_view to_string(Door door) {
  switch (door) {
    case Door::kRest:
      return "rest";
    case Door::kNativeRest:
      return "native_rest";
    case Door::kGrpc:
      return "grpc";
    case Door::kWebSocket:
      return "websocket";
    case Door::kMetrics:
      return "metrics";
  }
  UNREACHABLE();
}

std::string_view to_string(Outcome outcome, std::optional<Action> action) {
  switch (outcome) {
    case Outcome::kDone:
      return action && access::row_of(*action).audit == access::Audit::kWrites ? "applied" : "allowed";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kForbidden:
      return "forbidden";
    case Outcome::kHidden:
      return "hidden";
    case Outcome::kUnauthenticated:
      return "unauthenticated";
    case Outcome::kRateLimited:
      return "rate_limited";
    case Outcome::kAbandoned:
      return "abandoned";
  }
  UNREACHABLE();
}

RequestId next_request() {
  static std::atomic<uint64_t> last{0};
  return {last.fetch_add(1, std::memory_order_relaxed) + 1};
}

std::string to_string(RequestId request) {
  std::array<char, 32> text;
  char* end = std::copy(run_letters().begin(), run_letters().end(), text.data());
  *end++ = '-';
  end = std::to_chars(end, text.data() + text.size(), request.number, 16).ptr;
  return {text.data(), end};
}

bool is_told(std::optional<Action> action, Outcome outcome) {
  switch (outcome) {
    case Outcome::kForbidden:
    case Outcome::kHidden:
    case Outcome::kUnauthenticated:
    case Outcome::kRateLimited:
      return true;
    case Outcome::kDone:
    case Outcome::kRefused:
    case Outcome::kAbandoned:
      return action && access::row_of(*action).audit != access::Audit::kRefusals;
  }
  UNREACHABLE();
}

bool merge(Line& told, const Line& line) {
  if (told.outcome != line.outcome || told.action != line.action || told.door != line.door ||
      told.caller != line.caller || told.code != line.code || told.peer != line.peer ||
      told.claimed_by != line.claimed_by || told.unix_user != line.unix_user) {
    return false;
  }
  if (line.outcome == Outcome::kDone) {
    const bool same_stream = told.request.number == line.request.number && told.job.valid() &&
                             line.job.valid() && told.last_job < line.job;
    if (!same_stream) return false;
    told.last_job = line.last_job;
    told.count += line.count;
    return true;
  }
  if (told.resource != line.resource || told.last != line.last || told.count != line.count) return false;
  told.repeated += line.repeated + 1;
  return true;
}

void append_line(std::string& out, const Line& line) {
  out += "{\"time\":\"";
  append_rfc3339(out, line.at);
  out += '"';
  append_field(out, "request_id", to_string(line.request));
  append_field(out, "door", to_string(line.door));
  append_field(out, "caller_kind", line.caller == nullptr ? "unknown" : to_string(line.caller->kind));
  append_field(out, "caller", line.caller == nullptr ? "" : line.caller->name);
  append_field(out, "key_id", line.caller == nullptr ? "" : line.caller->key_id);
  append_field(out, "peer", line.peer);
  if (!line.claimed_by.empty()) append_field(out, "claimed_by", line.claimed_by);
  if (!line.client_request_id.empty()) append_field(out, "client_request_id", line.client_request_id);
  if (!line.trace_id.empty()) append_field(out, "trace_id", line.trace_id);
  if (line.action) {
    append_field(out, "action", to_string(*line.action));
    append_field(out, "resource_kind", kind_of(*line.action));
    const std::string name = name_of(line.job, line.resource);
    append_field(out, "resource", name.empty() && kind_of(*line.action) == "cluster" ? "cluster" : name);
    if (line.count != 1) {
      append_field(out, "count", line.count);
      append_field(out, "last", name_of(line.last_job, line.last));
    }
  }
  if (!line.unix_user.empty()) append_field(out, "unix_user", line.unix_user);
  append_field(out, "outcome", to_string(line.outcome, line.action));
  if (!line.code.empty()) append_field(out, "code", line.code);
  if (line.repeated > 0) append_field(out, "repeated", line.repeated);
  out += "}\n";
}

}  // namespace gpusched::audit
