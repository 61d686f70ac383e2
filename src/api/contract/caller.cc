#include "api/contract/caller.h"

#include <utility>

#include "api/contract/token.h"
#include "base/text.h"

namespace gpusched::api {

const CallerPtr& anonymous_caller() {
  static const CallerPtr kCaller = std::make_shared<const access::Caller>(access::anonymous_caller());
  return kCaller;
}

const CallerPtr& shared_token_caller() {
  static const CallerPtr kCaller = std::make_shared<const access::Caller>(access::shared_token_caller());
  return kCaller;
}

ApiError unknown_credential() {
  return {ErrorKind::kUnauthenticated,
          "the credential is missing or wrong; send `Authorization: Bearer <credential>` with an API key, or "
          "with the shared token, which is the content of the scheduler's DATA_DIR/token"};
}

Answer<CallerPtr> Doorkeeper::caller_of(std::string_view authorization, const CallerPtr& peer) const {
  if (everybody != nullptr) return everybody;
  if (authorization.empty() && peer != nullptr) return peer;
  if (bearer_matches(authorization, token)) return shared_token_caller();
  const std::string_view bearer = bearer_of(authorization);
  if (keys != nullptr) {
    if (const auto key = sign::parse_api_key(bearer)) return keys->holder_of(*key);
  }
  if (tokens != nullptr && !bearer.empty()) return tokens->holder_of(bearer);
  if (authorization.empty() && !token_required) return anonymous_caller();
  return unknown_credential();
}

bool can_end(const access::Caller& caller) { return !caller.key_id.empty() || caller.ends_at.valid(); }

Answer<std::shared_ptr<void>> Doorkeeper::while_valid(const CallerPtr& caller,
                                                      std::optional<access::Action> action,
                                                      std::function<void(const ApiError&)> end) const {
  if (tokens != nullptr && caller->ends_at.valid()) return tokens->while_valid(caller, std::move(end));
  if (keys == nullptr || caller->key_id.empty()) return std::shared_ptr<void>();
  return keys->while_valid(caller, action, std::move(end));
}

std::string shown_requester(std::string_view told, std::string_view peer) {
  constexpr std::size_t kBytesMax = 100;
  const bool usable = !told.empty() && told.size() <= kBytesMax && !has_control_character(told);
  return std::string((usable ? told : peer).substr(0, kBytesMax));
}

}  // namespace gpusched::api
