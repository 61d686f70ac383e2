#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

/// The shared token: whoever has it may do everything. Agents prove that they know it without sending it.
namespace gpusched::api {

/// Reads `data_dir`/token; makes one of 256 random bits, mode 0600, when there is none. kIo, or
/// kPermissionDenied when others can read the file.
Result<std::string> load_or_create_token(const std::string& data_dir);

/// Compares in a time that depends on the lengths alone.
bool same_secret(std::string_view a, std::string_view b);

/// The token that an `Authorization` header carries as a bearer's; empty: none.
std::string_view bearer_of(std::string_view authorization);
/// Whether that is the token.
bool bearer_matches(std::string_view authorization, std::string_view token);

/// True for 127.0.0.0/8, ::1 and "localhost": nobody else can reach it.
bool is_loopback(std::string_view address);

/// Whether callers without a credential are answered where doors listen on `address`: on loopback, unless
/// `token_required` or agents need the old handshake, which cannot tell such callers' jobs apart.
bool answers_without_credential(std::string_view address, bool token_required, bool old_agent_handshake);

/// How people get a token of a provider of identities. None of it is secret.
struct SignIn {
  std::string issuer;
  std::string client_id;            ///< Id of a public client there, which has no secret.
  std::vector<std::string> scopes;  ///< Scopes that it asks for.
  bool sends_access_token = false;  ///< The access token is the credential here; else the id token is.
};

/// `size` random bytes of the operating system.
std::string random_bytes(std::size_t size);

}  // namespace gpusched::api
