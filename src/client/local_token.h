#pragma once

#include <optional>
#include <string>

#include "base/result.h"

/// The scheduler of this machine without an address: its Unix socket, or its shared token, and who would be
/// told that.
namespace gpusched {

/// URL of the Unix socket of this machine's scheduler, or else of this user's own one, below `runtime_dir`
/// (XDG_RUNTIME_DIR). Empty: none answers that could be believed, or it would not learn who this process is.
std::string find_local_socket(const std::string& runtime_dir);

/// Whether a scheduler learns over its Unix socket who this process is: not of one whose user is "nobody".
bool is_named_over_sockets();

/// The token of the scheduler at `urls`, several only with commas between them (see set_urls), when all are
/// on this machine and this user may read it: as root, or as the scheduler's own user. Empty: there is none
/// that can be had; nothing: the scheduler is away, or went away meanwhile, so that it may have one. Asks the
/// scheduler where it is; at an https URL only one whose certificate is trusted, see
/// HttpClientOptions::ca_file.
std::optional<std::string> find_local_token(const std::string& urls, const std::string& ca_file = {});

/// Whether the token may be sent to each of `urls`: on this machine not to a port or a Unix socket that
/// another person's process has. `token_file`: where it was read. kPermissionDenied with a sentence: it may
/// not.
Result<Unit> check_token_receiver(const std::string& urls, const std::string& token_file);

}  // namespace gpusched
