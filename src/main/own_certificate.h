#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "sign/tls_context.h"

namespace gpusched {

/// Whether the scheduler is to make its certificate itself: TLS is on, and the configuration names no files.
bool wants_own_certificate(const Config& config);

/// The files that the scheduler's identity is in: those of the configuration, or its own ones.
sign::TlsFiles tls_files(const Config& config, const std::string& data_dir);

/// The authority's folder in the data folder: `ca.pem` is for clients, `fingerprint` for agents.
std::string authority_folder(const std::string& data_dir);

/// Makes the authority at the first use, and a certificate of it where there is none for these names with a
/// third of its time left. True: a new one was made.
Result<bool> renew_own_certificate(const Config& config, const std::string& data_dir);

/// The one that is to be served, made where it is the scheduler's own. Errors as `renew_own_certificate` and
/// `sign::TlsIdentity::load`.
Result<std::shared_ptr<const sign::TlsIdentity>> current_identity(const Config& config,
                                                                  const std::string& data_dir);

/// Names and addresses under which others reach a scheduler with this configuration, sorted: this machine's
/// name, loopback, the address that is listened on, or all of the machine's where it is every one,
/// api.host_names, and the hosts of replica.peers.
std::vector<std::string> server_names(const Config& config);

}  // namespace gpusched
