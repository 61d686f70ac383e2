#include <algorithm>
#include <string>
#include <utility>

#include "api/contract/names.h"
#include "api/doors/events/change_feed.h"
#include "api/doors/native/native_grpc_stream.h"
#include "api/doors/native/native_views.h"
#include "api/fields/node_rows.h"
#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

/// A piece is a message, packed. No more of them are given to the writer at once than it keeps: it drops what
/// is more.
class StreamWire final : public EventWire {
 public:
  explicit StreamWire(std::shared_ptr<WatchWriter> writer) : writer_(std::move(writer)) {}

  bool begin(std::function<void()>) override {
    writer_->begin();
    return true;
  }
  void fail(const ApiError& error) override { writer_->fail(error); }
  void send(Pieces pieces, std::function<void(bool alive)> written) override {
    send_from(writer_, std::make_shared<Pieces>(std::move(pieces)), 0, std::move(written));
  }
  std::string idle_piece() const override { return {}; }  // HTTP/2 pings.
  void finish() override { writer_->end(); }

 private:
  static grpc::ByteBuffer packed(const std::string& piece) {
    const grpc::Slice slice(piece);
    return grpc::ByteBuffer(&slice, 1);
  }
  static void send_from(const std::shared_ptr<WatchWriter>& writer, std::shared_ptr<Pieces> pieces,
                        std::size_t from, std::function<void(bool alive)> written) {
    const std::size_t end = std::min(pieces->size(), from + limits::kStreamMessagesMax / 2);
    for (std::size_t i = from; i + 1 < end; ++i) writer->write(packed((*pieces)[i]));
    const grpc::ByteBuffer last = packed((*pieces)[end - 1]);
    if (end == pieces->size()) return writer->write(last, std::move(written));
    writer->write(last,
                  [weak = std::weak_ptr(writer), pieces, end, written = std::move(written)](bool alive) {
                    const auto open = weak.lock();
                    if (!alive || open == nullptr) return written(false);
                    send_from(open, pieces, end, written);
                  });
  }

  const std::shared_ptr<WatchWriter> writer_;
};

class StreamFormat final : public ChangeFormat {
 public:
  std::string begin(uint64_t sequence) const override {
    v1::WatchEvent event;
    event.mutable_begin();
    event.set_sequence(sequence);
    return event.SerializeAsString();
  }
  std::string resync() const override {
    v1::WatchEvent event;
    event.mutable_resync();
    return event.SerializeAsString();
  }
  std::string job(const JobView& job) const override {
    v1::WatchEvent event;
    write_job(job, *event.mutable_job());
    return event.SerializeAsString();
  }
  std::string left(JobId job, JobState state) const override {
    v1::WatchEvent event;
    event.mutable_left()->set_job_id(job_name(job));
    event.mutable_left()->set_state(static_cast<v1::JobState>(state));
    return event.SerializeAsString();
  }
  std::string forgotten(JobId job) const override {
    v1::WatchEvent event;
    event.set_forgotten(job_name(job));
    return event.SerializeAsString();
  }
  std::string node(const NodeView& node) const override {
    v1::WatchEvent event;
    write_node(node, *event.mutable_node());
    return event.SerializeAsString();
  }
  std::string overflow() const override {
    v1::WatchEvent event;
    event.mutable_overflow();
    return event.SerializeAsString();
  }
  /// Messages that stand one behind the other are one with the fields of both.
  std::string marked(std::string piece, uint64_t sequence) const override {
    return std::move(piece) + mark(sequence);
  }
  std::string mark(uint64_t sequence) const override {
    v1::WatchEvent event;
    event.set_sequence(sequence);
    return event.SerializeAsString();
  }
};

}  // namespace

void serve_watch(Backend& backend, RunLater run_later, CallerPtr caller,
                 const std::shared_ptr<WatchWriter>& writer, const v1::WatchRequest& request) {
  Answer<JobFilter> filter = read_jobs_wanted(request);
  if (!filter) return writer->fail(filter.error());
  ChangesWanted wanted{.filter = std::move(*filter), .nodes = request.nodes()};
  if (request.has_after_sequence()) wanted.since = request.after_sequence();
  const auto watch = make_change_watch(backend, std::move(run_later), std::move(caller),
                                       std::make_unique<StreamWire>(writer),
                                       std::make_unique<const StreamFormat>(), std::move(wanted));
  writer->on_gone([watch] { watch->stop(); });
  watch->start();
}

}  // namespace gpusched::api
