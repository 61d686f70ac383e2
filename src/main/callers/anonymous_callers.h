#pragma once

#include <string>
#include <vector>

#include "api/server.h"
#include "config/config.h"

/// Callers without a credential: where they are let in, named to those who run the scheduler.
namespace gpusched {

/// Whether a scheduler with that configuration answers any on all its ports; those listen on loopback then.
bool answers_anonymous(const Config& config);
/// Whether it answers some from other machines: it listens on more than loopback, and networks are named.
bool answers_networks(const Config& config);
/// The same for the doors. The configuration was checked.
api::AnonymousOptions anonymous_options(const Config& config);
/// Names under which callers without a credential may call, in lower case; the machine's own among them where
/// they come from other machines.
std::vector<std::string> host_names_of(const Config& config);
/// Their rights on loopback, or from the networks, as a sentence without its end.
std::string anonymous_rights(const Config& config);

/// Says in the log at which listeners they are let in; nothing where they are not. Once, at the start.
void log_anonymous(const Config& config, const api::ServerPorts& ports);

}  // namespace gpusched
