#include "main/callers/anonymous_callers.h"

#include "api/contract/token.h"
#include "log/log.h"

namespace gpusched {

bool answers_anonymous(const Config& config) {
  return api::answers_without_credential(config.api.address, config.api.token_required,
                                         config.agent.accept_old_handshake);
}

std::string anonymous_rights(const Config& config) {
  return "every user of this machine may submit jobs to the tenant default and to open tenants, which run as "
         "each node's default user, with a priority_tier of at most " +
         config.api.anonymous_priority_tier +
         ", and may see, change, enter and end the jobs of other such callers, but none with a credential";
}

void log_anonymous(const Config& config, const api::ServerPorts& ports) {
  if (!answers_anonymous(config)) return;
  std::string listeners;
  const auto add = [&](const char* name, uint16_t port) {
    if (port == 0) return;
    if (!listeners.empty()) listeners += ", ";
    listeners += std::string(name) + " " + config.api.address + ":" + std::to_string(port);
  };
  add("http", ports.http);
  add("grpc", ports.grpc);
  add("metrics", ports.metrics);
  add("allocations", ports.allocation);
  add("tasks_http", ports.tasks_http);
  add("tasks_grpc", ports.tasks_grpc);
  log_event(LogLevel::kInfo, "scheduler", "callers_without_credential", {},
            {{"listeners", listeners},
             {"may", anonymous_rights(config)},
             {"hint",
              "set api.token_required: true and restart the scheduler to let nobody in without a credential; "
              "no job ends by that"}});
}

}  // namespace gpusched
