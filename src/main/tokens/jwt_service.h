#pragma once

#include <memory>
#include <mutex>

#include "api/backend/tokens/sign_in_flow.h"
#include "api/backend/tokens/token_verifier.h"
#include "base/result.h"
#include "config/config.h"
#include "main/tokens/jwt_source.h"

namespace gpusched {

/// The settings of tokens in a configuration, read from its files and checked.
struct JwtSetup {
  std::shared_ptr<const api::JwtTrust> trust;  ///< Null: none are taken.
  JwtSourceOptions source;
  JwtKeysPtr keys;                                    ///< Keys of a file; those of a URL come later.
  std::shared_ptr<const api::BrowserSignIn> browser;  ///< Null: nobody signs in with one.
};
/// Errors are sentences that name the setting or the file.
Result<JwtSetup> load_jwt(const Config& config);

/// Tokens of a running scheduler: who holds them, and the keys to tell.
class JwtService {
 public:
  explicit JwtService(JwtSetup setup);

  const std::shared_ptr<api::TokenVerifier>& verifier() const { return verifier_; }
  const std::shared_ptr<api::SignInFlow>& sign_in() const { return sign_in_; }
  /// Takes effect at once; remembered tokens are forgotten. One thread at a time.
  void use(JwtSetup setup);
  /// Ends the thread. Nothing is fetched after it.
  void stop();

 private:
  void unknown_key();

  const std::shared_ptr<api::TokenVerifier> verifier_ = std::make_shared<api::TokenVerifier>();
  const std::shared_ptr<api::SignInFlow> sign_in_ = std::make_shared<api::SignInFlow>(verifier_);
  std::mutex mutex_;
  std::unique_ptr<JwtSource> source_;
};

}  // namespace gpusched
