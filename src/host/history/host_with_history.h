#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "history/history.h"
#include "host/host.h"

namespace gpusched {

/// A running host with a history beside it, which is told of every record by the host's observer. Everything
/// else is the host's. The history begins where the host is, and reads what it has missed from the journal.
class HostWithHistory final : public Host {
 public:
  /// `data_dir`: the host's folder. `job_name`: a job's name out of its specification, thread-safe; may be
  /// empty.
  HostWithHistory(std::unique_ptr<Host> host, std::string data_dir, history::HistoryOptions options,
                  std::function<std::string(const Job&)> job_name);
  ~HostWithHistory() override;

  /// It lives as long as this.
  history::History& history() const { return *history_; }

  using Host::propose;
  void propose(Proposal proposal) override { host_->propose(std::move(proposal)); }
  void propose(EditSet set) override { host_->propose(std::move(set)); }
  void on_group_done(std::function<void()> hook) override { host_->on_group_done(std::move(hook)); }
  Observer& observer() override { return host_->observer(); }
  ForecastService& forecasts() override { return host_->forecasts(); }
  SessionId node_opened(std::shared_ptr<NodeSession> session) override {
    return host_->node_opened(std::move(session));
  }
  void node_received(SessionId session, v1::AgentMessage message, std::function<void()> handled) override {
    host_->node_received(session, std::move(message), std::move(handled));
  }
  void node_closed(SessionId session) override { host_->node_closed(session); }
  void read_log(NodeId node, v1::ReadLog request, std::function<void(Result<v1::LogChunk>)> done) override {
    host_->read_log(node, std::move(request), std::move(done));
  }
  void reboot_node(NodeId node, std::string reason, std::function<void(Result<Unit>)> done) override {
    host_->reboot_node(node, std::move(reason), std::move(done));
  }
  void with_nodes(std::function<void(NodeHub*)> use) override { host_->with_nodes(std::move(use)); }
  std::shared_ptr<TelemetryTable> telemetry() const override { return host_->telemetry(); }
  void touch(std::function<void()> alive) override { host_->touch(std::move(alive)); }
  /// With the history's concerns.
  HostHealth health() const override;
  HostStats stats() const override { return host_->stats(); }
  const RecoveryReport& recovery() const override { return host_->recovery(); }
  /// Ends the host, then writes what the history was told of.
  void stop() override;

 private:
  /// On the observer's thread, as `tell`. Once.
  void begin(uint64_t position);
  void tell(const Observer::View& view, const Changes& changes);
  /// Whether a database shows waiting and running jobs, too.
  bool shows_present() const { return options_.postgres.has_value(); }

  std::unique_ptr<Host> host_;
  const std::string data_dir_;
  const history::HistoryOptions options_;
  const history::DescribeJob describe_job_;
  std::unique_ptr<history::History> history_;
  bool has_told_ = false;  ///< For the observer's thread alone.
};

}  // namespace gpusched
