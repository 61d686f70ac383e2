#pragma once

#include "base/result.h"
#include "pilot/outgoing/outbox.h"
#include "pilot/secret_files.h"
#include "pilot/settings.h"

namespace gpusched::pilot {

/// The scheduler of the configuration, with its token; without a URL the one of this machine.
/// kNotFound: there is no scheduler on this machine. Else errors as read_secret and check_token_receiver.
Result<Destination> scheduler_of(const PilotSettings& settings, Passphrase& passphrase);

/// The model of the configuration, with its key among the secrets. Errors as scheduler_of.
Result<Destination> model_of(const PilotSettings& settings, Passphrase& passphrase);

/// Watches until SIGTERM or SIGINT. Errors as StateFolder::open and scheduler_of.
Result<Unit> run_until_stopped(const PilotSettings& settings, bool is_dry_run);

}  // namespace gpusched::pilot
