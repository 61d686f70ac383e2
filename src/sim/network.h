#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpusched/v1/node.pb.h"
#include "host/core/interfaces.h"
#include "sim/context.h"

namespace gpusched::sim {

/// One stream's end at an agent.
class AgentEnd {
 public:
  virtual ~AgentEnd() = default;
  virtual const std::string& name() const = 0;
  virtual void link_up() = 0;
  virtual void link_down() = 0;
  virtual void receive(std::shared_ptr<const v1::SchedulerMessage> message) = 0;
  /// Whether an agent runs that wants a stream.
  virtual bool wants_link() const = 0;
};

/// Streams' ends at the scheduler.
class HostEnd {
 public:
  virtual ~HostEnd() = default;
  virtual bool up() const = 0;
  virtual void opened(uint64_t link, std::shared_ptr<NodeSession> session) = 0;
  virtual void received(uint64_t link, std::shared_ptr<const v1::AgentMessage> message) = 0;
  virtual void closed(uint64_t link) = 0;
  /// Position of the newest applied journal record.
  virtual uint64_t position() const = 0;
};

/// Streams between agents and scheduler. As TCP: in order, late, silent for a while, cut at any moment with
/// everything undelivered lost, and each end learns of it in its own time. Under kDuplicate and kReorder
/// worse than TCP, since the protocol promises to bear that too.
class Network {
 public:
  Network(Context& context, HostEnd& host) : context_(context), host_(host) {}
  void add(AgentEnd& agent) { agents_.push_back({.end = &agent}); }

  /// The agent wants a stream and tries, again and again, until it has one.
  void dial(std::size_t agent);
  void from_agent(std::size_t agent, const v1::AgentMessage& message);
  void from_host(uint64_t link, const v1::SchedulerMessage& message);
  void close_from_host(uint64_t link);
  void fail(const std::string& sentence) { context_.auditor.fail(sentence); }

  /// Breaks the agent's stream, if there is one.
  void cut(std::size_t agent);
  /// Nothing passes for `span`; which ways is drawn.
  void stall(std::size_t agent, Duration span);
  void host_died();
  void agent_died(std::size_t agent);
  /// Nothing is silent any more.
  void heal();
  /// When the last of the reports that are on their way arrives, or arrived.
  Time reports_until() const { return reports_until_; }

 private:
  struct Agent {
    AgentEnd* end = nullptr;
    uint64_t link = 0;  ///< As the agent sees it; 0: none.
    bool dialing = false;
    Time silent_to_host;
    Time silent_to_agent;
  };
  struct Link {
    std::size_t agent = 0;
    std::string name;         ///< Name of the agent's node, when it was made.
    bool whole = true;        ///< Bytes flow.
    bool host_knows = false;  ///< The scheduler has it open.
    Time last_to_host;
    Time last_to_agent;
  };

  Link* whole_link(uint64_t link);
  Duration transit();
  Time arrival(Time& last, Time silent_until, bool may_reorder);
  void establish(std::size_t agent);
  void deliver_to_host(uint64_t link, Time at, const std::shared_ptr<const v1::AgentMessage>& message);
  void deliver_to_agent(uint64_t link, Time at, const std::shared_ptr<const v1::SchedulerMessage>& message);
  void tear(uint64_t link, Duration agent_learns, Duration host_learns);

  Context& context_;
  HostEnd& host_;
  std::vector<Agent> agents_;
  Time reports_until_;
  std::map<uint64_t, Link> links_;
  uint64_t next_link_ = 1;
};

}  // namespace gpusched::sim
