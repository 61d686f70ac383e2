#include "main/callers/anonymous_callers.h"

#include <algorithm>
#include <cctype>

#include "api/contract/token.h"
#include "base/check.h"
#include "log/log.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

bool may(const Config& config, std::string_view word) {
  return std::ranges::find(config.api.anonymous_may, word) != config.api.anonymous_may.end();
}

int32_t tier_of(std::string_view word) {
  if (word == "low") return 100;
  if (word == "high") return 1'000;
  return word == "critical" ? 5'000 : 500;
}

std::string tier_word(const Config& config) {
  return may(config, "priority_critical") ? "critical" : config.api.anonymous_priority_tier;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string listeners_of(const Config& config, const api::ServerPorts& ports, bool has_metrics) {
  std::string listeners;
  const auto add = [&](const char* name, uint16_t port) {
    if (port == 0) return;
    if (!listeners.empty()) listeners += ", ";
    listeners += std::string(name) + " " + config.api.address + ":" + std::to_string(port);
  };
  add("http", ports.http);
  add("grpc", ports.grpc);
  if (has_metrics) add("metrics", ports.metrics);
  add("allocations", ports.allocation);
  add("tasks_http", ports.tasks_http);
  add("tasks_grpc", ports.tasks_grpc);
  return listeners;
}

void log_networks(const Config& config, const api::ServerPorts& ports) {
  if (config.api.anonymous_networks.empty()) return;
  if (!answers_networks(config)) {
    log_event(LogLevel::kWarning, "scheduler", "anonymous_networks_unused", {},
              {{"address", config.api.address},
               {"message",
                "api.anonymous_networks has no effect while api.address is loopback, which no other machine "
                "reaches"}});
    return;
  }
  log_event(
      LogLevel::kWarning, "scheduler", "callers_without_credential", {},
      {{"listeners", listeners_of(config, ports, false)},
       {"networks", joined(config.api.anonymous_networks)},
       {"nodes", config.api.anonymous_nodes ? "let in" : "left out"},
       {"may", anonymous_rights(config)},
       {"hint",
        "remove api.anonymous_networks and restart the scheduler to let nobody in without a credential; "
        "no job ends by that"}});
}

}  // namespace

bool answers_anonymous(const Config& config) {
  return api::answers_without_credential(config.api.address, config.api.token_required,
                                         config.agent.accept_old_handshake);
}

bool answers_networks(const Config& config) {
  return !config.api.anonymous_networks.empty() && !api::is_loopback(config.api.address);
}

api::AnonymousOptions anonymous_options(const Config& config) {
  api::AnonymousOptions options{.tier_max = tier_of(tier_word(config)),
                                .has_nodes = config.api.anonymous_nodes,
                                .networks_make_tenants = may(config, "create_tenant"),
                                .sets_quota = may(config, "set_quota"),
                                .reads_metrics = config.metrics.open};
  for (const std::string& text : config.api.anonymous_networks) {
    const std::optional<IpNetwork> network = IpNetwork::parse(text);
    CHECK(network.has_value());  // The configuration was checked.
    options.networks.push_back(*network);
  }
  return options;
}

std::vector<std::string> host_names_of(const Config& config) {
  std::vector<std::string> names = config.api.host_names;
  if (!answers_networks(config)) return names;
  std::string own = ops::host_name();
  std::ranges::transform(own, own.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  names.push_back(own);
  if (const std::size_t dot = own.find('.'); dot != std::string::npos) names.push_back(own.substr(0, dot));
  return names;
}

std::string anonymous_rights(const Config& config) {
  const bool is_near = answers_anonymous(config);
  std::string text =
      is_near ? "every user of this machine" : "everybody who calls from one of these networks";
  text +=
      " may submit jobs to the tenant default and to open tenants, which run as each node's default user, "
      "with a priority_tier of at most " +
      tier_word(config) +
      ", and may see, change, enter and end the jobs of other such callers, but none with a credential";
  if (is_near || may(config, "create_tenant")) text += "; may make and change open tenants";
  if (may(config, "set_quota")) text += "; may divide the cluster into pools (api.anonymous_may)";
  return text;
}

void log_anonymous(const Config& config, const api::ServerPorts& ports) {
  if (config.metrics.open && ports.metrics != 0 && !api::is_loopback(config.api.address)) {
    log_event(LogLevel::kWarning, "scheduler", "metrics_without_credential", {},
              {{"address", config.api.address},
               {"message",
                "metrics.open is true: everybody who reaches the metrics' port reads the names of tenants "
                "and users there that callers without a credential may know"}});
  }
  log_networks(config, ports);
  if (!answers_anonymous(config)) return;
  log_event(LogLevel::kInfo, "scheduler", "callers_without_credential", {},
            {{"listeners", listeners_of(config, ports, true)},
             {"may", anonymous_rights(config)},
             {"hint",
              "set api.token_required: true and restart the scheduler to let nobody in without a credential; "
              "no job ends by that"}});
}

}  // namespace gpusched
