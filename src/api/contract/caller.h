#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "access/actions.h"
#include "access/caller.h"
#include "api/contract/errors.h"
#include "sign/api_key.h"

/// Finds the caller by the credential that a call carries, or else by the kernel's word on the process that
/// calls over a Unix socket; never by an address: every user of a machine reaches its loopback, and so do
/// pages in their browsers.
namespace gpusched::api {

/// One for each credential, shared by all its calls. Never null.
using CallerPtr = std::shared_ptr<const access::Caller>;

/// The caller without a credential.
const CallerPtr& anonymous_caller();
/// The holder of the shared token.
const CallerPtr& shared_token_caller();

/// Finds the holders of API keys. Thread-safe.
class KeyHolders {
 public:
  virtual ~KeyHolders() = default;
  /// kUnauthenticated: there is no such key, or its secret is another; and of a key that has ended, which is
  /// told to those alone who have its secret.
  virtual Answer<CallerPtr> holder_of(const sign::ApiKeyParts& key) const = 0;
  /// Calls `end`, once, with what its client is told, when the key of the caller ends, or loses a role that
  /// it needs for `action` (none: for anything). Until the token is dropped, and maybe a moment longer; on
  /// any thread, also before this returns. `end` must not block. An error: that is so already.
  virtual Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller,
                                                    std::optional<access::Action> action,
                                                    std::function<void(const ApiError&)> end) const = 0;
  /// Whether there is a key of that prefix. It costs no hash.
  virtual bool is_there(std::string_view prefix) const = 0;
};

/// Finds the holders of tokens of a provider of identities. Thread-safe.
class TokenHolders {
 public:
  virtual ~TokenHolders() = default;
  /// Takes untrusted bytes. kUnauthenticated: nobody's, or refused, and kPermissionDenied: without a role
  /// here; why is told to those alone whom the provider gave it. kUnavailable: it cannot be checked now.
  virtual Answer<CallerPtr> holder_of(std::string_view token) const = 0;
  /// As KeyHolders has it: when the token ends, or what the provider's tokens give has changed.
  virtual Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller,
                                                    std::function<void(const ApiError&)> end) const = 0;
};

/// How callers are told apart.
struct Doorkeeper {
  std::string token;                     ///< Empty: nobody has it.
  bool token_required = false;           ///< There are no anonymous callers.
  CallerPtr everybody = nullptr;         ///< For tests of doors: who all callers are.
  const KeyHolders* keys = nullptr;      ///< Null: there are none. It must outlive this.
  const TokenHolders* tokens = nullptr;  ///< The same.

  /// `authorization`: the header or metadata of that name; empty: none. kUnauthenticated: it carries neither
  /// the token nor a key that is in use nor a provider's token, or there is nothing where it is needed. As
  /// the holders' errors. `peer`: whose process calls, by the kernel's word, which counts where the call
  /// itself says nothing; null: nobody known.
  Answer<CallerPtr> caller_of(std::string_view authorization, const CallerPtr& peer = nullptr) const;
  /// For what stays open: as KeyHolders has it. A caller with neither a key nor a provider's token is valid
  /// for ever.
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller, std::optional<access::Action> action,
                                            std::function<void(const ApiError&)> end) const;
};

/// Whether the caller's credential may end while something is open: a key or a provider's token.
bool can_end(const access::Caller& caller);

/// One sentence for all of these, so that it tells nobody which keys there are.
ApiError unknown_credential();

/// The requester of a change as it is shown: what the client calls itself, which nobody has checked, or else
/// its address. At most 100 bytes, printable.
std::string shown_requester(std::string_view told, std::string_view peer);

}  // namespace gpusched::api
