#pragma once

#include <string>

#include "base/result.h"

/// The shared token of a scheduler on this machine, and who would be told it.
namespace gpusched {

/// The token of the scheduler at `url`, when that is on this machine and this user may read it: as root, or
/// as the scheduler's own user. Empty: there is none that can be had. Asks the scheduler where it is; at an
/// https URL only one whose certificate is trusted, see HttpClientOptions::ca_file.
std::string find_local_token(const std::string& url, const std::string& ca_file = {});

/// Whether the token may be sent to `url`: on this machine not to a port that another person's process has
/// taken. `token_file`: where it was read. kPermissionDenied with a sentence: it may not.
Result<Unit> check_token_receiver(const std::string& url, const std::string& token_file);

}  // namespace gpusched
