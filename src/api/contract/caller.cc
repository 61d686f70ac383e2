#include "api/contract/caller.h"

#include "api/contract/token.h"
#include "base/text.h"

namespace gpusched::api {

Answer<Caller> Doorkeeper::caller_of(std::string_view authorization) const {
  if (everybody_trusted) return Caller::kTrusted;
  if (bearer_matches(authorization, token)) return Caller::kTrusted;
  if (authorization.empty() && !token_required) return Caller::kAnonymous;
  return ApiError{ErrorKind::kUnauthenticated,
                  "the shared token is missing or wrong; send `Authorization: Bearer <token>` with the "
                  "content of the scheduler's DATA_DIR/token"};
}

std::string shown_requester(std::string_view told, std::string_view peer) {
  constexpr std::size_t kBytesMax = 100;
  const bool usable = !told.empty() && told.size() <= kBytesMax && !has_control_character(told);
  return std::string((usable ? told : peer).substr(0, kBytesMax));
}

}  // namespace gpusched::api
