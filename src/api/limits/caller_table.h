#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "api/contract/errors.h"
#include "api/limits/recent_table.h"
#include "api/limits/token_bucket.h"
#include "base/time.h"
#include "host/core/shared_room.h"

namespace gpusched::api {

/// A server whose calls share one room.
enum class CallRoom : uint8_t { kHttp, kGrpc };
inline constexpr std::size_t kCallRooms = 2;

/// How much a call matters when room is scarce.
enum class CallNeed : uint8_t {
  kOrdinary,
  kVital,  ///< An operator's verbs, and what ends work: a part of the room is kept for these.
  kHealth  ///< Answered whoever else asks, and however much.
};

/// Reasons of refusals, for the metrics.
enum class Refused : uint8_t { kAddressRate, kFailedCredentials, kCallerRate, kCalls, kStreams, kSessions };
inline constexpr std::size_t kRefusedReasons = 6;
std::string_view to_string(Refused reason);

/// How much one caller may do.
struct CallerLimits {
  Rate address_rate;                    ///< Requests of one address, whoever they are of.
  Rate failed_rate = {10, 100};         ///< Wrong credentials of one address.
  Rate caller_rate;                     ///< Requests of one caller.
  std::size_t streams_max = 1'000;      ///< Streams and watches that a caller has open; 0: no limit.
  std::size_t sessions_max = 256;       ///< Sessions that it has open; 0: no limit.
  std::size_t connections_max = 1'000;  ///< HTTP connections of one address; 0: no limit.
  std::size_t callers_kept = 10'000;    ///< Callers, and as many addresses, that are remembered.
  std::function<Time()> now = nullptr;  ///< A clock that never goes back; null: the monotonic one.
};

class CallerTable;

/// A call's place among those of its caller; it goes with this. Movable. Thread-safe as far as one at a time
/// uses it.
class CallTicket {
 public:
  CallTicket() = default;  ///< A ticket of nobody: it is never refused anything.
  CallTicket(CallTicket&& other) noexcept
      : table_(std::move(other.table_)),
        row_(other.row_),
        room_(other.room_),
        is_stream_(other.is_stream_),
        is_session_(other.is_session_) {}
  CallTicket& operator=(CallTicket&& other) noexcept;
  ~CallTicket() { end(); }

  /// The call is answered for as long as it goes on: a stream or a watch. Again: does nothing.
  std::optional<ApiError> become_stream();
  /// It is a session.
  std::optional<ApiError> become_session();
  /// The call is over. Again: does nothing.
  void end();
  bool is_held() const { return table_ != nullptr; }

 private:
  friend class CallerTable;
  std::shared_ptr<CallerTable> table_;
  void* row_ = nullptr;
  CallRoom room_ = CallRoom::kHttp;
  bool is_stream_ = false, is_session_ = false;
};

/// Calls, streams and sessions of each caller, and how many it may have. Made by make_shared: its tickets
/// hold it. Thread-safe.
///
/// Calls under way share a room (SharedRoom): no caller gets more than all together leave free, and a
/// sixteenth is for vital calls alone.
class CallerTable : public std::enable_shared_from_this<CallerTable> {
 public:
  explicit CallerTable(const CallerLimits& limits) : limits_(limits), callers_(limits.callers_kept) {}

  void set_room(CallRoom room, std::size_t calls);
  /// Lets a call of the caller in, or says why not: kRateLimited, kCallerLimit. `need` is asked only where it
  /// matters.
  Answer<CallTicket> open(std::string_view caller, CallRoom room, const std::function<CallNeed()>& need,
                          Time now);

  std::size_t callers() const;
  std::size_t calls_open(CallRoom room) const;
  uint64_t refused(Refused reason) const {
    return refused_[index_of(reason)].load(std::memory_order_relaxed);
  }
  void count(Refused reason) { refused_[index_of(reason)].fetch_add(1, std::memory_order_relaxed); }

 private:
  friend class CallTicket;
  struct Caller {
    TokenBucket bucket;
    std::size_t streams = 0, sessions = 0;
  };
  using Row = RecentTable<Caller>::Row;
  static std::size_t index_of(Refused reason) { return static_cast<std::size_t>(reason); }

  std::optional<ApiError> take_place(Row& row, CallRoom room, const std::function<CallNeed()>& need);
  std::optional<ApiError> add_stream(void* row);
  std::optional<ApiError> add_session(void* row);
  void close(const CallTicket& ticket);

  const CallerLimits limits_;
  std::array<std::atomic<uint64_t>, kRefusedReasons> refused_{};
  mutable std::mutex mutex_;  // Guards all below.
  RecentTable<Caller> callers_;
  std::array<SharedRoom<const void*>, kCallRooms> rooms_ = {SharedRoom<const void*>(10'000),
                                                            SharedRoom<const void*>(8'192)};
};

}  // namespace gpusched::api
