// NodeCore: answers who reads attempts' output.
#include <algorithm>
#include <utility>

#include "node/node_core.h"

namespace gpusched {
namespace {

constexpr Duration kReadLookPause = milliseconds(50);
constexpr Duration kReadWaitMax = minutes(1);
constexpr std::size_t kReadsMax = 1'024;
constexpr int32_t kReadBytesDefault = 64 * 1024;
constexpr int32_t kReadBytesMax = 1024 * 1024;

}  // namespace

void NodeCore::on_read_log(const v1::ReadLog& order) {
  const bool may_wait = order.wait_ms() > 0 && reads_.size() < kReadsMax;
  if (answer_read(order, may_wait)) return;
  const Time now = ports_.clock.monotonic();
  reads_.push_back({.order = order, .deadline = now + std::min(milliseconds(order.wait_ms()), kReadWaitMax)});
  next_read_look_ = std::min(next_read_look_, now + kReadLookPause);
}

void NodeCore::answer_reads(Time now) {
  std::deque<PendingRead> still;
  for (PendingRead& read : reads_) {
    if (!answer_read(read.order, now < read.deadline)) still.push_back(std::move(read));
  }
  reads_ = std::move(still);
  next_read_look_ = reads_.empty() ? kNever : now + kReadLookPause;
}

bool NodeCore::answer_read(const v1::ReadLog& order, bool may_wait) {
  const AttemptKey key = from_wire(order.key());
  const auto found = attempts_.find(key);
  const bool over = found == attempts_.end() || found->second.outcome.has_value();
  const int32_t size_max =
      order.size_max() > 0 ? std::min(order.size_max(), kReadBytesMax) : kReadBytesDefault;
  const int64_t offset = std::max<int64_t>(order.offset(), 0);

  v1::AgentMessage message;
  v1::LogChunk& chunk = *message.mutable_log_chunk();
  chunk.set_request(order.request());
  chunk.set_offset(offset);
  const Result<LogPiece> piece = ports_.files.read(key, order.stderr(), offset, size_max);
  if (piece) {
    if (piece->data.empty() && !over && may_wait) return false;
    chunk.set_offset(piece->offset);
    chunk.set_data(piece->data);
    chunk.set_at_end(over && piece->offset + static_cast<int64_t>(piece->data.size()) >= piece->size);
  } else if (found == attempts_.end()) {
    chunk.set_error("attempt " + to_string(key) +
                    " has no output on this node (any more): " + piece.error().message);
  } else if (piece.error().code == ErrorCode::kNotFound) {
    if (!over && may_wait) return false;  // Its shim has not made the file yet.
    chunk.set_at_end(over);
  } else {
    chunk.set_error(piece.error().message);
  }
  ports_.link.send(message);
  return true;
}

}  // namespace gpusched
