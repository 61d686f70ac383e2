#pragma once

#include <string>

#include "api/server.h"
#include "config/config.h"

/// Callers without a credential: where they are let in, named to those who run the scheduler.
namespace gpusched {

/// Whether a scheduler with that configuration answers any.
bool answers_anonymous(const Config& config);
/// Their rights, as a sentence without its end.
std::string anonymous_rights(const Config& config);

/// Says in the log at which listeners they are let in; nothing where they are not. Once, at the start.
void log_anonymous(const Config& config, const api::ServerPorts& ports);

}  // namespace gpusched
