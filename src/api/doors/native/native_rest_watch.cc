#include "api/doors/native/native_rest_watch.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

constexpr Duration kPingEvery = seconds(15);
constexpr std::size_t kDirtyMax = 100'000;  // Jobs that changed and were not sent yet, of one client.
constexpr std::size_t kJobsPerPiece = 1'000;
constexpr std::size_t kForgottenSlack =
    64;  // So far may the order of ends differ from that in which they are told.

void append_event(std::string& out, std::string_view name, std::string_view data) {
  out.append("event: ").append(name).append("\ndata: ").append(data).append("\n\n");
}

/// The body of one answer: one piece at a time is made and sent. Changes come on the observer's thread, the
/// client's progress on the server's.
class Events : public std::enable_shared_from_this<Events> {
 public:
  explicit Events(HttpServer& server) : server_(server) {}
  virtual ~Events() = default;

  /// The client went away.
  void stop() {
    std::shared_ptr<void> ended;
    const std::lock_guard lock(mutex_);
    gone_ = true;
    ended.swap(token_);
  }
  /// What keeps the changes coming; dropped when the client goes.
  void keep(std::shared_ptr<void> token) {
    const std::lock_guard lock(mutex_);
    if (!gone_) token_.swap(token);
  }

 protected:
  /// Makes the next piece and sends it, or calls `rest`. Nothing else is under way.
  virtual void next() = 0;

  /// Begins the answer. False: the client wants its head only, and has got it.
  bool begin(RestCall& call) {
    HttpResponse head{.content_type = "text/event-stream"};
    head.headers.emplace_back("Cache-Control", "no-cache");
    head.headers.emplace_back("X-Accel-Buffering", "no");  // A proxy must not collect events.
    const bool head_only = call.method() == HttpMethod::kHead;
    stream_ = call.stream(std::move(head));
    if (!head_only) {
      ping_later();
      return true;
    }
    stream_.finish();
    stop();
    return false;
  }
  void send(std::string events) {
    stream_.write(std::move(events), [self = shared_from_this()](bool alive) {
      if (!alive) return self->stop();
      self->next();
    });
  }
  void finish() {
    stream_.finish();
    stop();
  }
  /// There is something new: begins to work unless work is under way.
  void wake() {
    {
      const std::lock_guard lock(mutex_);
      if (busy_ || gone_) return;
      busy_ = true;
    }
    next();
  }

  HttpServer& server_;
  std::mutex mutex_;  // Guards all below but the stream, and what derived classes say.
  bool busy_ = true;  // Until the beginning is sent.
  bool gone_ = false;

 private:
  void ping_later() {
    server_.run_after(kPingEvery, [self = shared_from_this()] {
      {
        const std::lock_guard lock(self->mutex_);
        if (self->gone_) return;
      }
      self->ping();
      self->ping_later();
    });
  }
  void ping() {
    {
      const std::lock_guard lock(mutex_);
      if (busy_) return;
      busy_ = true;
    }
    send(":\n\n");
  }
  HttpStream stream_;
  std::shared_ptr<void> token_;
};

class OneJob final : public Events {
 public:
  OneJob(HttpServer& server, const JobMask& mask) : Events(server), mask_(mask) {}

  void changed(const Answer<JobView>& job, const RestCallPtr& call) {
    if (!job) {
      if (!begun_) call->fail(job.error());
      return stop();
    }
    {
      const std::lock_guard lock(mutex_);
      newest_ = native_job_json(*job, mask_);
      final_ = is_final(job->state);
    }
    if (std::exchange(begun_, true)) return wake();
    if (begin(*call)) next();
  }

 private:
  void next() override {
    std::string events;
    bool over = false;
    {
      const std::lock_guard lock(mutex_);
      if (newest_) append_event(events, "job", *newest_);
      newest_.reset();
      over = events.empty() && final_;
      if (events.empty() && !over) busy_ = false;
    }
    if (over) return finish();
    if (!events.empty()) send(std::move(events));
  }

  const JobMask mask_;
  bool begun_ = false;  // Of the observer's thread.
  std::optional<std::string> newest_;
  bool final_ = false;
};

class ManyJobs final : public Events {
 public:
  ManyJobs(Backend& backend, HttpServer& server, CallerPtr caller, JobFilter filter, const JobMask& mask,
           bool nodes)
      : Events(server),
        backend_(backend),
        caller_(std::move(caller)),
        filter_(std::move(filter)),
        mask_(mask),
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
        if (!self->begin(*call)) return;
        const uint64_t sequence = cluster.ok() ? cluster->sequence : 0;
        std::string events;
        append_event(events, "begin", "{\"sequence\":" + std::to_string(sequence) + "}");
        self->send(std::move(events));
      });
    });
  }

 private:
  std::shared_ptr<ManyJobs> me() { return std::static_pointer_cast<ManyJobs>(shared_from_this()); }

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
    if (overflow) {
      std::string events;
      append_event(events, "overflow", "{}");
      return send(std::move(events));
    }
    if (!jobs.empty()) return send_jobs(std::move(jobs));
    if (!nodes.empty()) send_nodes(std::move(nodes));
  }

  void send_jobs(std::vector<JobId> jobs) {
    backend_.get_jobs(caller_, std::move(jobs), filter_, [self = me()](const Answer<JobPage>& page) {
      if (!page) return self->tell_overflow();
      std::string events;
      for (const JobView& job : page->jobs) append_event(events, "job", native_job_json(job, self->mask_));
      for (const auto& [id, state] : page->left)
        append_event(events, "left", job_named(id, ",\"state\":\"" + std::string(to_string(state)) + "\""));
      for (const JobId id : self->take_forgotten(*page)) append_event(events, "forgotten", job_named(id, ""));
      self->send_or_go_on(std::move(events));
    });
  }
  static std::string job_named(JobId id, const std::string& more) {
    return "{\"job_id\":\"" + job_name(id) + "\"" + more + "}";
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
          std::string events;
          for (const NodeView& node : *nodes) {
            if (!wanted.contains(node.id)) continue;
            v1::Node message;
            write_node(node, message);
            append_event(events, "node", native_json(message));
          }
          self->send_or_go_on(std::move(events));
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
  void send_or_go_on(std::string events) {
    if (events.empty()) return next();
    send(std::move(events));
  }

  Backend& backend_;
  const CallerPtr caller_;
  const JobFilter filter_;
  const JobMask mask_;
  const bool nodes_wanted_;
  std::set<JobId> jobs_;  // Ids of what changed: what they are by now is asked for when it is their turn.
  std::set<NodeId> changed_nodes_;
  bool overflow_ = false;
  std::deque<JobId> ended_;  // Of those that were told, who has ended, in the order of that.
};

}  // namespace

void watch_one_job(Backend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                   const std::string& tenant, const JobMask& mask) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  const auto events = std::make_shared<OneJob>(server, mask);
  call->on_gone([events] { events->stop(); });
  events->keep(backend.watch_job(call->caller(), job, tenant, [events, call](const Answer<JobView>& changed) {
    events->changed(changed, call);
  }));
}

void watch_changes(Backend& backend, HttpServer& server, const RestCallPtr& call, JobFilter filter,
                   const JobMask& mask, bool nodes) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  const auto events =
      std::make_shared<ManyJobs>(backend, server, call->caller(), std::move(filter), mask, nodes);
  call->on_gone([events] { events->stop(); });
  events->start(call);
}

}  // namespace gpusched::api
