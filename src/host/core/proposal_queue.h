#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "codec/group.h"
#include "host/core/interfaces.h"
#include "host/core/shared_room.h"

namespace gpusched {

/// For a proposal that finds too many others before it.
inline Error overloaded() {
  return {
      .code = ErrorCode::kUnavailable,
      .message = "the scheduler is overloaded: too many requests are waiting for the disk; try again soon"};
}
/// For new work of a holder that has too much waiting: not now, because of whose it is.
inline Error over_share() {
  return {.code = ErrorCode::kUnavailable,
          .message =
              "the scheduler is busy, and this tenant has as many requests waiting for the disk as one "
              "may have beside others; try again when some of them are answered",
          .field = "tenant_id"};
}
/// Whether that was said.
inline bool is_over_share(const Error& error) {
  return error.code == ErrorCode::kUnavailable && !error.field.empty();
}
/// For a proposal that nobody will decide any more.
inline Error shutting_down() {
  return {.code = ErrorCode::kUnavailable, .message = "the scheduler is shutting down; try again soon"};
}

/// A command on its way to the journal.
struct Proposal {
  Command command;
  Decision decision;
  bool is_plan = false;
  bool is_edit = false;                 ///< One of an EditSet: accepted with all others, or not at all.
  std::size_t bytes = 0;                ///< Size in a journal record; set where it is 0.
  std::optional<TenantId> holder = {};  ///< Tenant that answers for it (State::spec_holder); none: nobody.
  std::optional<Proposer> by = {};      ///< Journaled with the command; none: an agent or this program.
};

/// Size in a journal record.
inline std::size_t encoded_bytes(const Proposal& proposal) {
  return encoded_bytes(proposal.command) + (proposal.by ? encoded_bytes(*proposal.by) : 0);
}

/// Proposals that wait for their group, with the bytes that they will take in the journal.
///
/// Holders of new work share the room: none has more waiting than all together leave free (SharedRoom).
class ProposalQueue {
 public:
  ProposalQueue(std::size_t holders_count_max, std::size_t holders_bytes_max)
      : counts_(holders_count_max), shares_(holders_bytes_max) {}

  /// Whether the holder may have one more waiting, of so many bytes.
  bool fits(TenantId holder, std::size_t bytes) const {
    return counts_.fits(holder.value, 1) && shares_.fits(holder.value, bytes);
  }
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  std::size_t bytes() const { return bytes_; }
  const Proposal& front() const { return items_.front(); }

  void push_back(Proposal proposal) { items_.push_back(counted(std::move(proposal))); }
  void push_front(Proposal proposal) { items_.push_front(counted(std::move(proposal))); }
  Proposal take_front() {
    Proposal proposal = std::move(items_.front());
    items_.pop_front();
    discount(proposal);
    return proposal;
  }
  std::deque<Proposal> take_all() {
    for (const Proposal& proposal : items_) discount(proposal);
    return std::exchange(items_, {});
  }

 private:
  Proposal counted(Proposal proposal) {
    if (proposal.bytes == 0) proposal.bytes = encoded_bytes(proposal);
    bytes_ += proposal.bytes;
    if (proposal.holder) {
      counts_.take(proposal.holder->value, 1);
      shares_.take(proposal.holder->value, proposal.bytes);
    }
    return proposal;
  }
  void discount(const Proposal& proposal) {
    bytes_ -= proposal.bytes;
    if (!proposal.holder) return;
    counts_.give_back(proposal.holder->value, 1);
    shares_.give_back(proposal.holder->value, proposal.bytes);
  }

  std::deque<Proposal> items_;
  std::size_t bytes_ = 0;
  SharedRoom<uint64_t> counts_;
  SharedRoom<uint64_t> shares_;  ///< Shares of bytes.
};

}  // namespace gpusched
