#include "api/doors/events/change_feed.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "api/contract/parse.h"
#include "api/doors/events/event_feed.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kDirtyMax = 100'000;  // Jobs that changed and were not sent yet, of one client.
constexpr std::size_t kJobsPerPiece = 1'000;
constexpr std::size_t kForgottenSlack =
    64;  // Most that the order of ends may differ from that in which they are told.

class ChangeFeed final : public ChangeWatch {
 public:
  ChangeFeed(Backend& backend, RunLater run_later, std::unique_ptr<EventWire> wire,
             std::unique_ptr<const ChangeFormat> format, CallerPtr caller, ChangesWanted wanted)
      : ChangeWatch(std::move(run_later), std::move(wire)),
        backend_(backend),
        format_(std::move(format)),
        caller_(std::move(caller)),
        filter_(std::move(wanted.filter)),
        nodes_wanted_(wanted.nodes),
        since_(wanted.since) {}

  void start() override {
    keep(backend_.watch_changes(
        caller_, since_, [self = me()](const ChangeNotice& notice) { self->note(notice); },
        [self = me()](const WatchBegin& begin) { self->begin_at(begin); }));
  }

 private:
  std::shared_ptr<ChangeFeed> me() { return std::static_pointer_cast<ChangeFeed>(shared_from_this()); }

  /// Nothing is sent before: what is noted meanwhile waits. The filter is tried on no job at all, to learn
  /// whether its tenant exists.
  void begin_at(const WatchBegin& begin) {
    const bool resumed = begin.missed.has_value();
    {
      const std::lock_guard lock(mutex_);
      told_ = resumed ? *since_ : begin.sequence;
      noted_ = std::max(noted_, begin.sequence);
    }
    if (resumed) note(*begin.missed);
    backend_.get_jobs(caller_, {}, filter_, [self = me(), resumed](const Answer<JobPage>& page) {
      if (!page) {
        self->stop();
        return self->fail(page.error());
      }
      self->run_later_({}, [self, resumed] {
        if (!self->begin()) return;
        EventWire::Pieces pieces{self->format_->begin(self->told_)};
        if (self->since_ && !resumed) pieces.push_back(self->format_->resync());
        self->send(std::move(pieces));
      });
    });
  }

  void note(const ChangeNotice& notice) {
    {
      const std::lock_guard lock(mutex_);
      noted_ = std::max(noted_, notice.sequence);
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
    backend_.get_jobs(caller_, jobs, filter_, [self = me(), jobs](const Answer<JobPage>& page) {
      if (!page) return self->tell_overflow();
      EventWire::Pieces pieces;
      for (const JobView& job : page->jobs) pieces.push_back(self->format_->job(job));
      for (const auto& [id, state] : page->left) pieces.push_back(self->format_->left(id, state));
      for (const JobId id : self->take_forgotten(*page)) pieces.push_back(self->format_->forgotten(id));
      {
        // Notes are taken on this thread, too: what was noted since has been looked at now.
        const std::lock_guard lock(self->mutex_);
        for (const JobId id : jobs) self->jobs_.erase(id);
      }
      self->send_marked(std::move(pieces));
    });
  }
  /// The last piece says how far the client has come, if nothing is left to be told.
  void send_marked(EventWire::Pieces pieces) {
    if (!pieces.empty()) {
      if (const auto mark = new_mark()) pieces.back() = format_->marked(std::move(pieces.back()), *mark);
    }
    send(std::move(pieces));
  }
  std::optional<uint64_t> new_mark() {
    const std::lock_guard lock(mutex_);
    if (overflow_ || !jobs_.empty() || !changed_nodes_.empty() || noted_ <= told_) return std::nullopt;
    told_ = noted_;
    return told_;
  }
  /// Where nothing was told for a while, much may have changed that this client does not ask for.
  std::string idle_piece() override {
    const auto mark = new_mark();
    return mark ? format_->mark(*mark) : EventFeed::idle_piece();
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
          {
            const std::lock_guard lock(self->mutex_);
            for (const NodeId id : wanted) self->changed_nodes_.erase(id);
          }
          self->send_marked(std::move(pieces));
        });
  }
  /// Tells that changes could not be looked at: the client is to ask for all of it again.
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
  const std::optional<uint64_t> since_;
  uint64_t noted_ = 0;    // Changes up to there are in the next two, or were told.
  std::set<JobId> jobs_;  // Ids of changed jobs: their present state is asked for when it is their turn.
  std::set<NodeId> changed_nodes_;
  uint64_t told_ = 0;  // Up to there the client knows that it was told of everything.
  bool overflow_ = false;
  std::deque<JobId> ended_;  // Jobs that were told and have ended, in the order of their ends.
};

}  // namespace

std::optional<uint64_t> read_resumption(const HttpRequest& request, RestQuery& query) {
  if (query.text("after_sequence")) return static_cast<uint64_t>(query.count("after_sequence", 0, INT64_MAX));
  if (request.last_event_id.empty()) return std::nullopt;
  const std::optional<int64_t> last = parse_count(request.last_event_id, INT64_MAX);
  if (!last) {
    query.fail({ErrorKind::kInvalidArgument,
                "the header Last-Event-ID must be the id of an event of this watch, a whole number"});
  }
  return last;
}

std::shared_ptr<ChangeWatch> make_change_watch(Backend& backend, RunLater run_later, CallerPtr caller,
                                               std::unique_ptr<EventWire> wire,
                                               std::unique_ptr<const ChangeFormat> format,
                                               ChangesWanted wanted) {
  return std::make_shared<ChangeFeed>(backend, std::move(run_later), std::move(wire), std::move(format),
                                      std::move(caller), std::move(wanted));
}

void send_changes(Backend& backend, HttpServer& server, const RestCallPtr& call,
                  std::unique_ptr<EventWire> wire, std::unique_ptr<const ChangeFormat> format,
                  ChangesWanted wanted) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  const auto watch = make_change_watch(backend, later_on(server), call->caller(), std::move(wire),
                                       std::move(format), std::move(wanted));
  call->on_gone([watch] { watch->stop(); });
  watch->start();
}

}  // namespace gpusched::api
