#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "api/contract/errors.h"
#include "base/time.h"

namespace gpusched::api {

/// Answers to calls with an Idempotency-Key, so that a repetition gets the first one's and does nothing. Kept
/// in memory, 24 hours, until the scheduler ends: what must outlive that is kept with the command in the
/// journal (SubmitRequest::request_key). Only good answers are kept. Thread-safe.
class RepeatedCalls {
 public:
  static constexpr Duration kKept = hours(24);
  static constexpr std::size_t kAnswersMax = 10'000;            ///< Then the oldest go first.
  static constexpr std::size_t kAnswersOfOneCallerMax = 1'000;  ///< Likewise.

  struct Reply {
    int status = 0;
    std::string body;
  };
  /// A request that a caller has sent. `content` tells requests under one key apart.
  struct Request {
    std::string caller, key, content;
  };

  /// Keeps the answer of a call under way; gone without one, the key is free again.
  class Turn {
   public:
    /// The turn of a call without a key, which keeps nothing.
    Turn() = default;
    Turn(std::shared_ptr<RepeatedCalls> calls, Request request)
        : calls_(std::move(calls)), request_(std::move(request)) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();
    void keep(int status, const std::string& body);

   private:
    std::shared_ptr<RepeatedCalls> calls_;
    Request request_;
  };
  using TurnPtr = std::shared_ptr<Turn>;

  /// Begins a call: a turn, or the answer that its first one got. kKeyConflict: the key stands for another
  /// request; kConflict: the first one has no answer yet.
  struct Begun {
    TurnPtr turn;
    std::optional<Reply> known;
  };
  static Answer<Begun> begin(const std::shared_ptr<RepeatedCalls>& calls, Request request, Time now);

 private:
  struct Entry {
    std::string content;
    std::optional<Reply> reply;  ///< Nothing: under way.
    Time until;
  };
  using Name = std::pair<std::string, std::string>;  ///< Caller, key.

  void end(const Request& request, std::optional<Reply> reply);
  void make_room(const std::string& caller, Time now);
  void forget(std::list<Name>::iterator at);

  std::mutex mutex_;
  std::map<Name, Entry> entries_;
  std::map<std::string, std::size_t> counts_;  ///< By caller.
  std::list<Name> order_;                      ///< The oldest first.
};

inline RepeatedCalls::Turn::~Turn() {
  if (calls_ != nullptr) calls_->end(request_, std::nullopt);
}

inline void RepeatedCalls::Turn::keep(int status, const std::string& body) {
  if (calls_ == nullptr) return;
  calls_->end(request_, Reply{.status = status, .body = body});
  calls_.reset();
}

inline Answer<RepeatedCalls::Begun> RepeatedCalls::begin(const std::shared_ptr<RepeatedCalls>& calls,
                                                         Request request, Time now) {
  const std::lock_guard lock(calls->mutex_);
  calls->make_room(request.caller, now);
  const Name name{request.caller, request.key};
  const auto found = calls->entries_.find(name);
  if (found == calls->entries_.end()) {
    calls->entries_.emplace(name, Entry{.content = request.content, .reply = {}, .until = now + kKept});
    calls->counts_[request.caller] += 1;
    calls->order_.push_back(name);
    return Begun{.turn = std::make_shared<Turn>(calls, std::move(request)), .known = {}};
  }
  if (found->second.content != request.content) {
    return ApiError{ErrorKind::kKeyConflict,
                    "this Idempotency-Key was used for another request; use a new key for each request",
                    "Idempotency-Key"};
  }
  if (!found->second.reply) {
    return ApiError{
        .kind = ErrorKind::kConflict,
        .message = "the first request with this Idempotency-Key is being carried out; repeat it soon",
        .field = "Idempotency-Key",
        .retry_after = seconds(1)};
  }
  return Begun{.turn = {}, .known = found->second.reply};
}

inline void RepeatedCalls::end(const Request& request, std::optional<Reply> reply) {
  const std::lock_guard lock(mutex_);
  const Name name{request.caller, request.key};
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.reply || found->second.content != request.content) return;
  if (reply) {
    found->second.reply = std::move(reply);
    return;
  }
  forget(std::ranges::find(order_, name));
}

inline void RepeatedCalls::forget(std::list<Name>::iterator at) {
  if (at == order_.end()) return;
  const auto count = counts_.find(at->first);
  if (count != counts_.end() && --count->second == 0) counts_.erase(count);
  entries_.erase(*at);
  order_.erase(at);
}

inline void RepeatedCalls::make_room(const std::string& caller, Time now) {
  while (!order_.empty() && entries_.at(order_.front()).until <= now) forget(order_.begin());
  const auto count = counts_.find(caller);
  if (count != counts_.end() && count->second >= kAnswersOfOneCallerMax)
    forget(std::ranges::find(order_, caller, &Name::first));
  if (order_.size() >= kAnswersMax) forget(order_.begin());
}

}  // namespace gpusched::api
