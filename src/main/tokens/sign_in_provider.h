#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/backend/tokens/sign_in_flow.h"
#include "base/result.h"
#include "client/login/provider.h"

namespace gpusched {

struct SignInProviderOptions {
  std::string issuer, client_id, redirect_url;
  std::string client_secret;        ///< Empty: a public client.
  std::vector<std::string> scopes;  ///< Scopes of the file of rules; `offline_access` is not among them.
  std::string ca_file;
  std::vector<std::string> private_hosts;
  std::chrono::seconds document_lives = std::chrono::minutes(10), failure_lives = std::chrono::seconds(5);
};

/// A provider of identities, asked over the network: nothing but its own document says where, which is read
/// now and then. Each request takes six seconds at most, and an answer 64 KiB; at no address but those of the
/// public Internet unless its host is named, and following nothing. Thread-safe.
class OidcProvider final : public api::SignInProvider {
 public:
  explicit OidcProvider(SignInProviderOptions options) : options_(std::move(options)) {}

  Result<std::string> page_for(const std::string& state, const std::string& nonce,
                               const std::string& verifier) override;
  Result<std::string> id_token_for(const std::string& code, const std::string& verifier,
                                   bool named_issuer) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Found = Result<std::shared_ptr<const login::Provider>>;

  Found provider();
  /// Says it in the log, the same not again and again.
  Error said(const Error& error);

  const SignInProviderOptions options_;
  std::mutex mutex_;  // Guards all below; who waits for it waits for the same document.
  Found found_ = Error{.code = ErrorCode::kUnavailable, .message = "nothing was asked yet"};
  Clock::time_point due_{};
  std::mutex log_mutex_;  // Guards what follows.
  std::string told_;
  Clock::time_point told_at_{};
};

}  // namespace gpusched
