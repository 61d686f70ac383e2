#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "access/caller.h"
#include "api/contract/errors.h"
#include "engine/messages/commands.h"
#include "host/core/shared_room.h"

namespace gpusched::api {

/// Limits on what callers have waiting for the host's thread and for the observer's. No caller has more of a
/// kind than all together leave free (SharedRoom), so that one who asks a million things waits for himself
/// alone. All callers without a credential are one. Thread-safe.
class WaitingShares : public std::enable_shared_from_this<WaitingShares> {
 public:
  enum class Kind : uint8_t {
    kCommands,
    kCommandBytes,
    kLookUps,  ///< For jobs, before their commands.
    kScans
  };

  WaitingShares();

  /// A part of a share; given back once.
  struct Charge {
    uint64_t holder = 0;  ///< 0: nobody's.
    std::size_t bytes = 0;
  };
  /// For a command of the caller; nothing: it has too many waiting.
  std::optional<Charge> charge(const access::Caller& caller, const Command& command);
  void give_back(const Charge& charge);
  /// For one look-up or scan; it is given back with the place. Null: the caller has too many waiting.
  std::shared_ptr<void> place(const access::Caller& caller, Kind kind);

  /// The error for a caller that has too many waiting.
  static Error over_share();
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  void count_refused() { refused_.fetch_add(1, std::memory_order_relaxed); }
  std::size_t waiting(Kind kind) const;

 private:
  SharedRoom<uint64_t>& share(Kind kind) { return shares_[static_cast<std::size_t>(kind)]; }

  std::atomic<uint64_t> refused_{0};
  mutable std::mutex mutex_;  // Guards the rest.
  std::array<SharedRoom<uint64_t>, 4> shares_;
};

}  // namespace gpusched::api
