#include "pilot/outgoing/lease_door.h"

#include <algorithm>
#include <string_view>

#include "anticipate/plain_text.h"
#include "base/text/civil_time.h"
#include "client/json.h"

namespace gpusched::pilot {
namespace {

constexpr std::string_view kPrefix = "/api/gpuscheduler/v1";
constexpr std::size_t kShownBytesMax = 300;

/// Only characters of a UUID: what a server answers becomes a part of a path.
bool is_lease_id(std::string_view id) {
  constexpr std::size_t kBytes = 36;
  return id.size() == kBytes && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || c == '-';
         });
}

bool is_job(std::string_view name) {
  constexpr std::size_t kBytesMax = 32;
  constexpr std::string_view kStart = "job-";
  return name.size() <= kBytesMax && name.starts_with(kStart) && name.size() > kStart.size() &&
         std::ranges::all_of(name.substr(kStart.size()), [](char c) { return c >= '0' && c <= '9'; });
}

ErrorCode code_of(int status) {
  switch (status) {
    case 401:
    case 403:
      return ErrorCode::kPermissionDenied;
    case 404:
      return ErrorCode::kNotFound;
    case 429:
      return ErrorCode::kTooLarge;
    default:
      return status / 100 == 5 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument;
  }
}

Error refused(const HttpAnswer& answer) {
  const Result<Json> json = Json::parse(answer.body);
  const Json detail = json ? (*json)["detail"] : Json();
  std::string sentence = detail.is_string() ? detail.text() : answer.body;
  if (detail.is_array() && !detail.items().empty()) sentence = detail.items().front()["msg"].text();
  return {.code = code_of(answer.status),
          .message = "the scheduler answered " + std::to_string(answer.status) + ": " +
                     anticipate::plain_text(sentence, kShownBytesMax)};
}

Error nonsense(std::string_view what) {
  return {.code = ErrorCode::kUnavailable, .message = "the scheduler's answer has no " + std::string(what)};
}

Result<anticipate::LeaseSeen> seen_in(const std::string& body) {
  const Result<Json> json = Json::parse(body);
  if (!json) return nonsense("lease");
  const std::string status = (*json)["status"].text();
  anticipate::LeaseSeen seen;
  seen.is_gone = status == "DEPROVISIONED" || status == "ERROR";
  seen.in_use = status == "BUSY";
  seen.is_ready = status == "AVAILABLE" || status == "BUSY";
  if (!seen.is_gone && !seen.is_ready && status != "PROVISIONING" && status != "DEPROVISIONING")
    return nonsense("status");
  std::string end = (*json)["lease_expires_at"].text();
  const std::size_t point = end.find('.');
  if (point != std::string::npos) end = end.substr(0, point) + "Z";
  if (const auto second = parse_utc(end)) seen.expires_at = Time{*second * 1'000'000'000};
  return seen;
}

}  // namespace

Result<std::string> LeaseDoor::call(const std::string& method, const std::string& path,
                                    const std::string& body, const std::string& key) {
  HttpRequest request{.method = method, .target = std::string(kPrefix) + path, .body = body};
  request.timeout = seconds(10);
  request.repeatable = true;  // A GET, or with a key.
  if (!key.empty()) request.headers.emplace_back("Idempotency-Key", key);
  Result<HttpAnswer> answer = outbox_.send(url_, request);
  if (!answer) return answer.error();
  if (answer->status / 100 != 2) return refused(*answer);
  return std::move(answer->body);
}

Result<RemoteLease> LeaseDoor::allocate(const anticipate::LeaseRequest& request, const std::string& key) {
  JsonObjectWriter body;
  body.add("count", int64_t{request.gpus});
  body.add("lease_minutes", std::max<int64_t>(request.length.ns / minutes(1).ns, 1));
  if (!request.gpu_model.empty()) body.add("gpu_model", request.gpu_model);
  if (request.memory_gb > 0) body.add("min_memory_gb", request.memory_gb);
  body.add("name", "gpu-pilot");
  const Result<std::string> answer = call("POST", "/allocate", body.text(), key);
  if (!answer) return answer.error();
  const Result<Json> json = Json::parse(*answer);
  if (!json) return nonsense("lease");
  RemoteLease lease{.id = (*json)["gpu_id"].text(), .job = (*json)["task_id"].text()};
  if (!is_lease_id(lease.id) || !is_job(lease.job)) return nonsense("lease");
  return lease;
}

Result<anticipate::LeaseSeen> LeaseDoor::look(const std::string& id) {
  const Result<std::string> answer = call("GET", "/gpu/" + id, "", "");
  return answer ? seen_in(*answer) : Result<anticipate::LeaseSeen>(answer.error());
}

Result<anticipate::LeaseSeen> LeaseDoor::extend(const std::string& id, Duration length,
                                                const std::string& key) {
  JsonObjectWriter body;
  body.add("lease_minutes", std::max<int64_t>(length.ns / minutes(1).ns, 1));
  const Result<std::string> answer = call("POST", "/gpu/" + id + "/renew", body.text(), key);
  return answer ? seen_in(*answer) : Result<anticipate::LeaseSeen>(answer.error());
}

Result<Unit> LeaseDoor::release(const std::string& id, const std::string& key) {
  const Result<std::string> answer = call("DELETE", "/gpu/" + id, "", key);
  if (!answer) return answer.error();
  return Unit{};
}

}  // namespace gpusched::pilot
