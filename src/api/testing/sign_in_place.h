#pragma once

#include <memory>
#include <string>
#include <utility>

#include "api/backend/tokens/sign_in_flow.h"
#include "api/backend/tokens/token_verifier.h"
#include "api/server.h"

namespace gpusched::api {

/// Has a page of its own, and never says who somebody is.
class ProviderOfNobody final : public SignInProvider {
 public:
  Result<std::string> page_for(const std::string& state, const std::string&, const std::string&) override {
    return "https://idp.example/authorize?state=" + state;
  }
  Result<std::string> id_token_for(const std::string&, const std::string&, bool) override {
    return Error{.code = ErrorCode::kUnauthenticated, .message = "nobody is known"};
  }
};

/// The options of a server at which people may sign in with a browser, as http://localhost.
inline ServerOptions with_sign_in(ServerOptions options = {}) {
  const std::string url = "http://localhost/login/callback";
  options.tokens = std::make_shared<TokenVerifier>();
  options.sign_in = std::make_shared<SignInFlow>(options.tokens);
  options.sign_in->use(
      std::make_shared<const BrowserSignIn>(BrowserSignIn{.place = *browser_place_of(url),
                                                          .issuer = "https://idp.example",
                                                          .client_id = "page",
                                                          .redirect_url = url,
                                                          .provider = std::make_shared<ProviderOfNobody>()}));
  return options;
}

}  // namespace gpusched::api
