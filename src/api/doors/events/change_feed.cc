#include "api/doors/events/change_feed.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "api/doors/events/event_feed.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kDirtyMax = 100'000;  // Jobs that changed and were not sent yet, of one client.
constexpr std::size_t kJobsPerPiece = 1'000;
constexpr std::size_t kForgottenSlack =
    64;  // So far may the order of ends differ from that in which they are told.

class ChangeFeed final : public EventFeed {
 public:
  ChangeFeed(Backend& backend, HttpServer& server, std::unique_ptr<EventWire> wire,
             std::unique_ptr<const ChangeFormat> format, CallerPtr caller, JobFilter filter, bool nodes)
      : EventFeed(server, std::move(wire)),
        backend_(backend),
        format_(std::move(format)),
        caller_(std::move(caller)),
        filter_(std::move(filter)),
        nodes_wanted_(nodes) {}

  /// Subscribes first and asks for the sequence number then, so that nothing falls in between. `filter` is
  /// tried on no job at all, to learn whether its tenant exists.
  void start(const RestCallPtr& call) {
    keep(backend_.watch_changes(caller_, [self = me()](const ChangeNotice& notice) { self->note(notice); }));
    backend_.get_jobs(caller_, {}, filter_, [self = me(), call](const Answer<JobPage>& page) {
      if (!page) {
        self->stop();
        return call->fail(page.error());
      }
      self->backend_.get_cluster(self->caller_, [self, call](const Answer<ClusterView>& cluster) {
        self->server_.run_after({}, [self, call, sequence = cluster.ok() ? cluster->sequence : 0] {
          if (self->begin(*call)) self->send({self->format_->begin(sequence)});
        });
      });
    });
  }

 private:
  std::shared_ptr<ChangeFeed> me() { return std::static_pointer_cast<ChangeFeed>(shared_from_this()); }

  void note(const ChangeNotice& notice) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.insert(notice.jobs.begin(), notice.jobs.end());
      if (nodes_wanted_) changed_nodes_.insert(notice.nodes.begin(), notice.nodes.end());
      // Jobs are forgotten in the order in which they ended, and were told here in about that order.
      if (notice.forgotten > 0) {
        const std::size_t most = std::min<std::size_t>(ended_.size(), notice.forgotten + kForgottenSlack);
        jobs_.insert(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(most));
      }
      if (jobs_.size() > kDirtyMax) {
        jobs_.clear();
        overflow_ = true;
      }
      if (jobs_.empty() && changed_nodes_.empty() && !overflow_) return;
    }
    wake();
  }

  void next() override {
    std::vector<JobId> jobs;
    std::set<NodeId> nodes;
    bool overflow = false;
    {
      const std::lock_guard lock(mutex_);
      overflow = std::exchange(overflow_, false);
      while (!overflow && !jobs_.empty() && jobs.size() < kJobsPerPiece) {
        jobs.push_back(*jobs_.begin());
        jobs_.erase(jobs_.begin());
      }
      if (!overflow && jobs.empty()) nodes.swap(changed_nodes_);
      if (!overflow && jobs.empty() && nodes.empty()) busy_ = false;
    }
    if (overflow) return send({format_->overflow()});
    if (!jobs.empty()) return send_jobs(std::move(jobs));
    if (!nodes.empty()) send_nodes(std::move(nodes));
  }

  void send_jobs(std::vector<JobId> jobs) {
    backend_.get_jobs(caller_, std::move(jobs), filter_, [self = me()](const Answer<JobPage>& page) {
      if (!page) return self->tell_overflow();
      EventWire::Pieces pieces;
      for (const JobView& job : page->jobs) pieces.push_back(self->format_->job(job));
      for (const auto& [id, state] : page->left) pieces.push_back(self->format_->left(id, state));
      for (const JobId id : self->take_forgotten(*page)) pieces.push_back(self->format_->forgotten(id));
      self->send(std::move(pieces));
    });
  }
  /// Notes who of the page has ended, and takes out who was told of and is not known any more.
  std::vector<JobId> take_forgotten(const JobPage& page) {
    std::vector<JobId> gone;
    const std::lock_guard lock(mutex_);
    for (const JobId id : page.unknown) {
      const auto at = std::find(ended_.begin(), ended_.end(), id);
      if (at == ended_.end()) continue;
      gone.push_back(id);
      ended_.erase(at);
    }
    const auto note_ended = [&](JobId id, JobState state) {
      const std::size_t newest = std::min(ended_.size(), kForgottenSlack);
      const bool known =
          std::find(ended_.end() - static_cast<std::ptrdiff_t>(newest), ended_.end(), id) != ended_.end();
      if (is_final(state) && !known) ended_.push_back(id);
    };
    for (const JobView& job : page.jobs) note_ended(job.id, job.state);
    for (const auto& [id, state] : page.left) note_ended(id, state);
    if (ended_.size() > kDirtyMax) ended_.pop_front();
    return gone;
  }
  void send_nodes(std::set<NodeId> wanted) {
    backend_.list_nodes(
        caller_, [self = me(), wanted = std::move(wanted)](const Answer<std::vector<NodeView>>& nodes) {
          if (!nodes) return self->tell_overflow();
          EventWire::Pieces pieces;
          for (const NodeView& node : *nodes) {
            if (wanted.contains(node.id)) pieces.push_back(self->format_->node(node));
          }
          self->send(std::move(pieces));
        });
  }
  /// What changed could not be looked at: the client is to ask for all of it anew.
  void tell_overflow() {
    {
      const std::lock_guard lock(mutex_);
      overflow_ = true;
    }
    next();
  }

  Backend& backend_;
  const std::unique_ptr<const ChangeFormat> format_;
  const CallerPtr caller_;
  const JobFilter filter_;
  const bool nodes_wanted_;
  std::set<JobId> jobs_;  // Ids of what changed: what they are by now is asked for when it is their turn.
  std::set<NodeId> changed_nodes_;
  bool overflow_ = false;
  std::deque<JobId> ended_;  // Of those that were told, who has ended, in the order of that.
};

}  // namespace

void send_changes(Backend& backend, HttpServer& server, const RestCallPtr& call,
                  std::unique_ptr<EventWire> wire, std::unique_ptr<const ChangeFormat> format,
                  JobFilter filter, bool nodes) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  const auto feed = std::make_shared<ChangeFeed>(backend, server, std::move(wire), std::move(format),
                                                 call->caller(), std::move(filter), nodes);
  call->on_gone([feed] { feed->stop(); });
  feed->start(call);
}

}  // namespace gpusched::api
