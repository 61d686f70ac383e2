#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/blob.h"
#include "base/result.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "gpusched/v1/node.pb.h"
#include "journal/journal.h"

/// Interfaces through which the host's core sees the world, so that `sim/` can be the world.
namespace gpusched {

/// Everything that waited, packed, on its way to the journal.
struct DurableGroup {
  uint64_t position = 0;
  uint64_t first_sequence = 0;
  uint32_t command_count = 0;  ///< Sequence numbers taken.
  std::string payload;
};

/// Makes groups durable, one at a time, without making the core wait.
class GroupWriter {
 public:
  virtual ~GroupWriter() = default;
  /// Begins; not before the one before was answered. The answer reaches HostCore::on_durable.
  virtual void start(DurableGroup group) = 0;
  virtual JournalSpace space() const = 0;
  /// Bytes of the largest payload that one group may have.
  virtual std::size_t payload_max() const = 0;
};

/// Changes by a group, for the observer.
struct Changes {
  Events events;
  Stamp last;
  uint64_t position = 0;  ///< Position of the journal record.
  uint64_t payload_bytes = 0;
  std::optional<uint64_t> digest = {};                   ///< The state's, behind these events.
  std::vector<std::pair<uint32_t, WaitReason>> reasons;  ///< By class number.
};

/// Takes what became durable and was applied, in order.
class ChangeSink {
 public:
  virtual ~ChangeSink() = default;
  virtual void publish(Changes changes) = 0;
  /// Whether it keeps up. While it does not, no further group is begun: what is not taken waits with whoever
  /// proposes, in bounds.
  virtual bool has_room() const = 0;
};

/// A packed SchedulerMessage that many agents are sent behind a part of their own: made once, and kept once
/// however many it waits for.
using SharedPart = std::shared_ptr<const std::string>;

/// The way back to one connected agent. Thread-safe; never blocks; sending to a broken one does nothing.
class NodeSession {
 public:
  virtual ~NodeSession() = default;
  virtual void send(const v1::SchedulerMessage& message) = 0;
  /// Sends both as one message: what `shared` says is merged into `own`.
  virtual void send(const v1::SchedulerMessage& own, const SharedPart& shared) = 0;
  /// Sends an order to start with this payload, which is a part of `held`. Over a network it is not copied
  /// before it is written: many of them may wait for a slow agent.
  virtual void send_start(const v1::SchedulerMessage& start, const Blob&, std::string_view payload) {
    v1::SchedulerMessage whole = start;
    whole.mutable_start()->set_payload(payload.data(), payload.size());
    send(whole);
  }
  /// Ends the stream after what was sent.
  virtual void close() = 0;
};

/// Outcome of a proposal that reached the engine.
struct Decided {
  Applied applied;
  uint64_t sequence = 0;       ///< Number of the command; the observer can be asked to have seen it.
  int64_t queue_position = 0;  ///< Place of a job (a batch's first) at that moment: 1 is next.
  /// The same among its tenant's jobs that ask for the same, for callers who may see no others.
  int64_t place_among_equals = 0;
};
/// Called once, on the host's thread, after the command is durable and applied; it must not block.
using Decision = std::function<void(Result<Decided>)>;

}  // namespace gpusched
