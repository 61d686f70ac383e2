#include "api/doors/native/native_rest_watch.h"

#include <memory>
#include <optional>
#include <utility>

#include "api/contract/names.h"
#include "api/doors/events/change_feed.h"
#include "api/doors/events/event_feed.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

class OneJob final : public EventFeed {
 public:
  OneJob(HttpServer& server, const RestCallPtr& call, const JobMask& mask)
      : EventFeed(later_on(server), sse_wire(call)), mask_(mask) {}

  void changed(const Answer<JobView>& job) {
    if (!job) {
      if (!begun_) fail(job.error());
      return stop();
    }
    {
      const std::lock_guard lock(mutex_);
      newest_ = native_job_json(*job, mask_);
      final_ = is_final(job->state);
    }
    if (std::exchange(begun_, true)) return wake();
    if (begin()) next();
  }

 private:
  void next() override {
    EventWire::Pieces pieces;
    bool over = false;
    {
      const std::lock_guard lock(mutex_);
      if (newest_) pieces.push_back(sse_event("job", *newest_));
      newest_.reset();
      over = pieces.empty() && final_;
      if (pieces.empty() && !over) busy_ = false;
    }
    if (over) return finish();
    if (!pieces.empty()) send(std::move(pieces));
  }

  const JobMask mask_;
  bool begun_ = false;  // Used on the observer's thread.
  std::optional<std::string> newest_;
  bool final_ = false;
};

/// Events of the native API, whose data is the JSON of its messages.
class NativeFormat final : public ChangeFormat {
 public:
  explicit NativeFormat(const JobMask& mask) : mask_(mask) {}

  std::string begin(uint64_t sequence) const override {
    return sse_with_id(sse_event("begin", "{\"sequence\":" + std::to_string(sequence) + "}"), sequence);
  }
  std::string resync() const override { return sse_event("resync", "{}"); }
  std::string job(const JobView& job) const override { return sse_event("job", native_job_json(job, mask_)); }
  std::string left(JobId job, JobState state) const override {
    return sse_event("left", job_named(job, ",\"state\":\"" + std::string(to_string(state)) + "\""));
  }
  std::string forgotten(JobId job) const override { return sse_event("forgotten", job_named(job, "")); }
  std::string node(const NodeView& node) const override {
    v1::Node message;
    write_node(node, message);
    return sse_event("node", native_json(message));
  }
  std::string overflow() const override { return sse_event("overflow", "{}"); }
  std::string marked(std::string piece, uint64_t sequence) const override {
    return sse_with_id(std::move(piece), sequence);
  }
  std::string mark(uint64_t sequence) const override { return "id: " + std::to_string(sequence) + "\n\n"; }

 private:
  static std::string job_named(JobId id, const std::string& more) {
    return "{\"job_id\":\"" + job_name(id) + "\"" + more + "}";
  }
  const JobMask mask_;
};

}  // namespace

void watch_one_job(Backend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                   const std::string& tenant, const JobMask& mask) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  const auto events = std::make_shared<OneJob>(server, call, mask);
  call->on_gone([events] { events->stop(); });
  events->keep(backend.watch_job(call->caller(), job, tenant,
                                 [events](const Answer<JobView>& changed) { events->changed(changed); }));
}

void watch_changes(Backend& backend, HttpServer& server, const RestCallPtr& call, ChangesWanted wanted,
                   const JobMask& mask) {
  send_changes(backend, server, call, sse_wire(call), std::make_unique<NativeFormat>(mask),
               std::move(wanted));
}

}  // namespace gpusched::api
