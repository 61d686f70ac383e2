#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "host/host.h"

namespace gpusched::api {

/// A host that hands everything to another one: a test looks at, or holds up, what it overrides.
class HostProxy : public Host {
 public:
  explicit HostProxy(Host& host) : host_(host) {}

  void node_received(SessionId session, v1::AgentMessage message, std::function<void()> handled) override {
    host_.node_received(session, std::move(message), std::move(handled));
  }
  using Host::propose;
  void propose(Proposal proposal) override { host_.propose(std::move(proposal)); }
  void propose(EditSet set) override { host_.propose(std::move(set)); }
  void on_group_done(std::function<void()> hook) override { host_.on_group_done(std::move(hook)); }
  Observer& observer() override { return host_.observer(); }
  ForecastService& forecasts() override { return host_.forecasts(); }
  SessionId node_opened(std::shared_ptr<NodeSession> session) override {
    return host_.node_opened(std::move(session));
  }
  void node_closed(SessionId session) override { host_.node_closed(session); }
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) override {
    host_.read_log(node, std::move(request), std::move(done));
  }
  void reboot_node(NodeId node, std::string reason, std::function<void(Result<Unit>)> done) override {
    host_.reboot_node(node, std::move(reason), std::move(done));
  }
  void with_nodes(std::function<void(NodeHub*)> use) override { host_.with_nodes(std::move(use)); }
  std::shared_ptr<TelemetryTable> telemetry() const override { return host_.telemetry(); }
  void touch(std::function<void()> alive) override { host_.touch(std::move(alive)); }
  HostHealth health() const override { return host_.health(); }
  HostStats stats() const override { return host_.stats(); }
  const RecoveryReport& recovery() const override { return host_.recovery(); }
  void stop() override { host_.stop(); }

 protected:
  Host& host_;
};

}  // namespace gpusched::api
