#pragma once

#include <functional>

#include "api/contract/forecasts.h"
#include "api/contract/health.h"
#include "api/contract/jobs.h"
#include "api/contract/keys.h"
#include "api/contract/moves.h"
#include "api/contract/nodes.h"
#include "api/contract/reservations.h"
#include "api/contract/services.h"
#include "api/contract/sessions.h"
#include "api/contract/tenants.h"

namespace gpusched::api {

/// The scheduler as every door needs it, in words that no wire format knows; a header of its own for each
/// subject. `HostBackend` gives it over the host, its observer and its node hub; tests of a door give a
/// recording one. Everything is thread-safe and returns at once; answers come by `Done`.
class Backend : public JobBackend,
                public TenantBackend,
                public NodeBackend,
                public ReservationBackend,
                public ServiceBackend,
                public ForecastBackend,
                public MoveBackend,
                public SessionBackend,
                public KeyBackend,
                public PersonBackend,
                public NodeIdentityBackend,
                public HealthBackend {
 public:
  /// Called on the host's thread after the last answer of each group: the moment to wake others, once.
  /// To be set before serving begins.
  virtual void on_group_done(std::function<void()> hook) = 0;
};

}  // namespace gpusched::api
