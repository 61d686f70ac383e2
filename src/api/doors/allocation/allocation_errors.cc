#include "api/doors/allocation/allocation_errors.h"

#include <algorithm>
#include <array>

#include "api/contract/json_writer.h"

namespace gpusched::api {
namespace {

constexpr int kValidationStatus = 422;
constexpr std::array<std::string_view, 4> kQueryFields = {"status", "health", "skip", "limit"};

/// {"detail":[{"loc":["body","count"],"msg":"...","type":"value_error"}]}
std::string validation_body(const ApiError& error) {
  const bool of_query = std::ranges::find(kQueryFields, error.field) != kQueryFields.end();
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("detail").begin_array().begin_object();
  json.key("loc").begin_array().value(of_query                           ? "query"
                                      : error.field == "Idempotency-Key" ? "header"
                                                                         : "body");
  if (!error.field.empty()) json.value(std::string_view(error.field));
  json.end_array().field("msg", std::string_view(error.message));
  json.field("type", error.kind == ErrorKind::kMalformedJson ? "json_invalid" : "value_error");
  json.end_object().end_array().end_object();
  return out;
}

/// The sentences that clients compare.
std::string_view sentence_of(const ApiError& error) {
  switch (error.kind) {
    case ErrorKind::kJobNotFound:
      return "GPU not found.";
    case ErrorKind::kKeyNotFound:
      return "API key not found.";
    case ErrorKind::kUserNotFound:
      return "User not found.";
    case ErrorKind::kPermissionDenied:
      return "You do not have permission to access this resource.";
    case ErrorKind::kQuotaExceeded:
      return error.message == kQuotaAboveReached ? kQuotaAboveReached : kGpuQuotaReached;
    default:
      return error.message;
  }
}

}  // namespace

ErrorAnswer allocation_error(const ApiError& error) {
  const int status = row_of(error.kind).http_status;
  const bool is_of_request = error.kind == ErrorKind::kInvalidArgument ||
                             error.kind == ErrorKind::kMalformedJson ||
                             error.kind == ErrorKind::kUnprocessable;
  if (is_of_request) return {.status = kValidationStatus, .body = validation_body(error)};
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("detail", sentence_of(error)).end_object();
  return {.status = error.kind == ErrorKind::kQuotaExceeded ? 429 : status, .body = std::move(out)};
}

}  // namespace gpusched::api
