#include "sim/network.h"

#include <algorithm>
#include <utility>

namespace gpusched::sim {
namespace {

/// The scheduler's way back; what is sent on a stream that broke is lost.
class Session final : public NodeSession {
 public:
  Session(Network& network, uint64_t link) : network_(network), link_(link) {}
  void send(const v1::SchedulerMessage& message) override {
    // Content that grows with the gang is made once for all its agents, and for none of them alone.
    if (message.start().has_gang()) network_.fail("a gang's list is packed for one member alone");
    network_.from_host(link_, message);
  }
  void send(const v1::SchedulerMessage& own, const SharedPart& shared) override {
    v1::SchedulerMessage whole;
    CHECK(whole.ParseFromString(own.SerializeAsString() + *shared));  // As it comes over the wire.
    network_.from_host(link_, whole);
  }
  void close() override { network_.close_from_host(link_); }

 private:
  Network& network_;
  const uint64_t link_;
};

}  // namespace

Network::Link* Network::whole_link(uint64_t link) {
  const auto found = links_.find(link);
  return found == links_.end() || !found->second.whole ? nullptr : &found->second;
}

Duration Network::transit() {
  if (context_.on(Fault::kDelay) && context_.prng.chance(30)) return context_.some_ms(1, 3'000);
  return context_.some_us(50, 500);
}

Time Network::arrival(Time& last, Time silent_until, bool may_reorder) {
  const Time earliest = std::max({context_.schedule.now() + transit(), last, silent_until});
  if (may_reorder && context_.on(Fault::kReorder) && context_.prng.chance(80)) {
    return earliest + context_.some_ms(1, 4'000);
  }
  last = earliest;
  return earliest;
}

void Network::dial(std::size_t agent) {
  if (std::exchange(agents_[agent].dialing, true)) return;
  context_.schedule.in(context_.some_ms(1, 1'500), [this, agent] {
    Agent& caller = agents_[agent];
    caller.dialing = false;
    if (!caller.end->wants_link() || caller.link != 0) return;
    const Time now = context_.schedule.now();
    if (!host_.up() || caller.silent_to_host > now || caller.silent_to_agent > now) return dial(agent);
    establish(agent);
  });
}

void Network::establish(std::size_t agent) {
  const uint64_t link = next_link_++;
  const Time now = context_.schedule.now();
  links_[link] = Link{.agent = agent,
                      .name = agents_[agent].end->name(),
                      .host_knows = true,
                      .last_to_host = now,
                      .last_to_agent = now};
  agents_[agent].link = link;
  context_.trace.note("link-up", {link, agent});
  host_.opened(link, std::make_shared<Session>(*this, link));
  agents_[agent].end->link_up();
}

void Network::from_agent(std::size_t agent, const v1::AgentMessage& message) {
  const uint64_t link = agents_[agent].link;
  Link* stream = whole_link(link);
  if (stream == nullptr) return;
  const auto shared = std::make_shared<const v1::AgentMessage>(message);
  const bool first = message.has_register_();
  const Time at = arrival(stream->last_to_host, agents_[agent].silent_to_host, !first);
  deliver_to_host(link, at, shared);
  if (!first && context_.on(Fault::kDuplicate) && context_.prng.chance(60)) {
    deliver_to_host(link, at + context_.some_ms(0, 5'000), shared);
  }
}

void Network::deliver_to_host(uint64_t link, Time at,
                              const std::shared_ptr<const v1::AgentMessage>& message) {
  if (message->has_report()) reports_until_ = std::max(reports_until_, at);
  context_.schedule.at(at, [this, link, message] {
    if (whole_link(link) == nullptr) return;
    context_.trace.note("to-host",
                        {link, static_cast<uint64_t>(message->body_case()), message->report().id()},
                        context_.trace.prints() ? message->ShortDebugString() : std::string());
    host_.received(link, message);
  });
}

void Network::from_host(uint64_t link, const v1::SchedulerMessage& message) {
  const auto known = links_.find(link);
  if (known == links_.end()) return;
  Link& stream = known->second;
  context_.auditor.on_sent(link, stream.name, host_.position(), message);
  if (!stream.whole) return;
  const auto shared = std::make_shared<const v1::SchedulerMessage>(message);
  const bool first = message.has_registered() || message.has_refused();
  const Time at = arrival(stream.last_to_agent, agents_[stream.agent].silent_to_agent, !first);
  deliver_to_agent(link, at, shared);
  if (!first && context_.on(Fault::kDuplicate) && context_.prng.chance(60)) {
    deliver_to_agent(link, at + context_.some_ms(0, 5'000), shared);
  }
}

void Network::deliver_to_agent(uint64_t link, Time at,
                               const std::shared_ptr<const v1::SchedulerMessage>& message) {
  context_.schedule.at(at, [this, link, message] {
    const Link* stream = whole_link(link);
    if (stream == nullptr || agents_[stream->agent].link != link) return;
    context_.trace.note("to-agent", {link, static_cast<uint64_t>(message->body_case())},
                        context_.trace.prints() ? message->ShortDebugString() : std::string());
    agents_[stream->agent].end->receive(message);
  });
}

void Network::close_from_host(uint64_t link) {
  const auto known = links_.find(link);
  if (known == links_.end()) return;
  // Messages that were sent before still arrive.
  const Time at = std::max(known->second.last_to_agent, context_.schedule.now()) + microseconds(1);
  context_.schedule.at(at, [this, link] { tear(link, Duration{}, context_.some_ms(0, 10)); });
}

void Network::tear(uint64_t link, Duration agent_learns, Duration host_learns) {
  Link* stream = whole_link(link);
  if (stream == nullptr) return;
  stream->whole = false;
  const std::size_t agent = stream->agent;
  context_.trace.note("link-broken", {link, agent});
  context_.schedule.in(agent_learns, [this, link, agent] {
    if (agents_[agent].link != link) return;
    agents_[agent].link = 0;
    agents_[agent].end->link_down();
    dial(agent);
  });
  context_.schedule.in(host_learns, [this, link] {
    if (links_.erase(link) == 0) return;
    context_.auditor.on_link_gone(link);
    host_.closed(link);
  });
}

void Network::cut(std::size_t agent) {
  if (agents_[agent].link == 0) return;
  tear(agents_[agent].link, context_.some_ms(0, 4'000), context_.some_ms(0, 20'000));
}

void Network::stall(std::size_t agent, Duration span) {
  const Time until = context_.schedule.now() + span;
  const uint64_t ways = context_.prng.below(3);
  context_.trace.note("stall", {agent, ways, static_cast<uint64_t>(span.ms())});
  Agent& silent = agents_[agent];
  if (ways != 1) silent.silent_to_host = std::max(silent.silent_to_host, until);
  if (ways != 0) silent.silent_to_agent = std::max(silent.silent_to_agent, until);
  // Often an end gives the stream up before it lives again.
  if (silent.link == 0 || context_.prng.chance(400)) return;
  const Duration patience{static_cast<int64_t>(context_.prng.below(static_cast<uint64_t>(span.ns) + 1))};
  context_.schedule.in(patience, [this, link = silent.link] {
    tear(link, context_.some_ms(0, 10'000), context_.some_ms(0, 10'000));
  });
}

void Network::host_died() {
  for (auto& [link, stream] : links_) {
    context_.auditor.on_link_gone(link);
    if (!std::exchange(stream.whole, false)) continue;
    const std::size_t agent = stream.agent;
    context_.schedule.in(context_.some_ms(0, 3'000), [this, link = link, agent] {
      if (agents_[agent].link != link) return;
      agents_[agent].link = 0;
      agents_[agent].end->link_down();
      dial(agent);
    });
  }
  links_.clear();
}

void Network::agent_died(std::size_t agent) {
  const uint64_t link = std::exchange(agents_[agent].link, 0);
  Link* stream = whole_link(link);
  if (stream == nullptr) return;
  stream->whole = false;
  context_.schedule.in(context_.some_ms(0, 20'000), [this, link] {
    if (links_.erase(link) == 0) return;
    context_.auditor.on_link_gone(link);
    host_.closed(link);
  });
}

void Network::heal() {
  const Time now = context_.schedule.now();
  for (Agent& agent : agents_) {
    agent.silent_to_host = std::min(agent.silent_to_host, now);
    agent.silent_to_agent = std::min(agent.silent_to_agent, now);
  }
}

}  // namespace gpusched::sim
