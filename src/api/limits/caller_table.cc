#include "api/limits/caller_table.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched::api {
namespace {

std::size_t kept_for_vital_calls(std::size_t room) { return std::max<std::size_t>(room / 16, 1); }

ApiError caller_limit(std::string message) {
  return {ErrorKind::kCallerLimit, std::move(message), "", seconds(1)};
}

}  // namespace

std::string_view to_string(Refused reason) {
  switch (reason) {
    case Refused::kAddressRate:
      return "address_rate";
    case Refused::kFailedCredentials:
      return "failed_credentials";
    case Refused::kCallerRate:
      return "caller_rate";
    case Refused::kCalls:
      return "calls";
    case Refused::kStreams:
      return "streams";
    case Refused::kSessions:
      return "sessions";
  }
  UNREACHABLE();
}

CallTicket& CallTicket::operator=(CallTicket&& other) noexcept {
  if (this == &other) return *this;
  end();
  table_ = std::move(other.table_);
  row_ = other.row_;
  room_ = other.room_;
  is_stream_ = other.is_stream_;
  is_session_ = other.is_session_;
  return *this;
}

std::optional<ApiError> CallTicket::become_stream() {
  if (table_ == nullptr || is_stream_) return std::nullopt;
  if (auto refused = table_->add_stream(row_)) return refused;
  is_stream_ = true;
  return std::nullopt;
}

std::optional<ApiError> CallTicket::become_session() {
  if (table_ == nullptr || is_session_) return std::nullopt;
  if (auto refused = table_->add_session(row_)) return refused;
  is_session_ = true;
  return std::nullopt;
}

void CallTicket::end() {
  if (table_ == nullptr) return;
  table_->close(*this);
  table_ = nullptr;
}

void CallerTable::set_room(CallRoom room, std::size_t calls) {
  const std::lock_guard lock(mutex_);
  rooms_[static_cast<std::size_t>(room)].set_room(calls);
}

Answer<CallTicket> CallerTable::open(std::string_view caller, CallRoom room,
                                     const std::function<CallNeed()>& need, Time now) {
  CallTicket ticket;
  {
    const std::lock_guard lock(mutex_);
    Row& row = callers_.at(caller);
    if (limits_.caller_rate.is_limited() && need() != CallNeed::kHealth) {
      const std::optional<Duration> wait = row.value.bucket.take(limits_.caller_rate, now);
      if (wait) {
        count(Refused::kCallerRate);
        return ApiError{
            ErrorKind::kRateLimited,
            "too many requests from this caller (api.caller_rate_limit_rps); send fewer requests, "
            "or submit jobs in batches",
            "", std::max(*wait, seconds(1))};
      }
    }
    if (auto refused = take_place(row, room, need)) return *refused;
    callers_.pin(row);
    ticket.row_ = &row;
  }
  ticket.table_ = shared_from_this();
  ticket.room_ = room;
  return ticket;
}

std::optional<ApiError> CallerTable::take_place(Row& row, CallRoom room,
                                                const std::function<CallNeed()>& need) {
  SharedRoom<const void*>& share = rooms_[static_cast<std::size_t>(room)];
  const std::size_t ordinary = share.room() - std::min(share.room(), kept_for_vital_calls(share.room()));
  if (!share.fits_in(ordinary, &row, 1)) {
    const CallNeed needed = need();
    const bool fits = needed == CallNeed::kHealth || (needed == CallNeed::kVital && share.fits(&row, 1));
    if (!fits) {
      count(Refused::kCalls);
      return caller_limit("this caller has " + std::to_string(share.held(&row)) +
                          " calls under way, and nobody may have more than all callers together leave free; "
                          "wait until some are answered");
    }
  }
  share.take(&row, 1);
  return std::nullopt;
}

std::optional<ApiError> CallerTable::add_stream(void* row) {
  const std::lock_guard lock(mutex_);
  Caller& caller = static_cast<Row*>(row)->value;
  if (limits_.streams_max != 0 && caller.streams >= limits_.streams_max) {
    count(Refused::kStreams);
    return caller_limit("this caller has " + std::to_string(caller.streams) +
                        " streams and watches open (api.caller_streams_max); close some of them");
  }
  caller.streams += 1;
  return std::nullopt;
}

std::optional<ApiError> CallerTable::add_session(void* row) {
  const std::lock_guard lock(mutex_);
  Caller& caller = static_cast<Row*>(row)->value;
  if (limits_.sessions_max != 0 && caller.sessions >= limits_.sessions_max) {
    count(Refused::kSessions);
    return caller_limit("this caller has " + std::to_string(caller.sessions) +
                        " sessions open (api.caller_sessions_max); end some of them");
  }
  caller.sessions += 1;
  return std::nullopt;
}

void CallerTable::close(const CallTicket& ticket) {
  const std::lock_guard lock(mutex_);
  Row& row = *static_cast<Row*>(ticket.row_);
  if (ticket.is_stream_) row.value.streams -= 1;
  if (ticket.is_session_) row.value.sessions -= 1;
  rooms_[static_cast<std::size_t>(ticket.room_)].give_back(&row, 1);
  callers_.unpin(row);
}

std::size_t CallerTable::callers() const {
  const std::lock_guard lock(mutex_);
  return callers_.size();
}

std::size_t CallerTable::calls_open(CallRoom room) const {
  const std::lock_guard lock(mutex_);
  return rooms_[static_cast<std::size_t>(room)].used();
}

}  // namespace gpusched::api
