#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/contract/backend.h"

/// Who calls, by what a call carries and never by where its connection comes from: every user of a machine
/// reaches its loopback, and so do pages in their browsers.
namespace gpusched::api {

enum class Caller : uint8_t {
  kAnonymous,  ///< Without a credential: see anonymous_backend.h for what that may do.
  kTrusted,    ///< With the shared token: everything.
};

/// How callers are told apart.
struct Doorkeeper {
  std::string token;               ///< Empty: nobody has it.
  bool token_required = false;     ///< There are no anonymous callers.
  bool everybody_trusted = false;  ///< For tests of doors.

  /// `authorization`: the header or metadata of that name; empty: none. kUnauthenticated: it carries no token
  /// or another one, or there is none where one is needed.
  Answer<Caller> caller_of(std::string_view authorization) const;
};

/// Who is shown to have asked for a change: what the client calls itself, which nobody has checked, or else
/// its address. At most 100 bytes, printable.
std::string shown_requester(std::string_view told, std::string_view peer);

/// What each kind of caller may do, by one interface.
struct Backends {
  Backend& trusted;
  Backend& anonymous;

  Backend& of(Caller caller) const { return caller == Caller::kTrusted ? trusted : anonymous; }
};

}  // namespace gpusched::api
