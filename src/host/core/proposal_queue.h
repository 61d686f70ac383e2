#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "codec/group.h"
#include "host/core/interfaces.h"

namespace gpusched {

/// For a proposal that finds too many others before it.
inline Error overloaded() {
  return {
      .code = ErrorCode::kUnavailable,
      .message = "the scheduler is overloaded: too many requests are waiting for the disk; try again soon"};
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
  bool is_edit = false;   ///< One of an EditSet: accepted with all others, or not at all.
  std::size_t bytes = 0;  ///< What it takes in a journal record; set by ProposalQueue where it is 0.
};

/// Proposals that wait for their group, with the bytes that they will take in the journal.
class ProposalQueue {
 public:
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  std::size_t bytes() const { return bytes_; }
  const Proposal& front() const { return items_.front(); }

  void push_back(Proposal proposal) { items_.push_back(counted(std::move(proposal))); }
  void push_front(Proposal proposal) { items_.push_front(counted(std::move(proposal))); }
  Proposal take_front() {
    Proposal proposal = std::move(items_.front());
    items_.pop_front();
    bytes_ -= proposal.bytes;
    return proposal;
  }
  std::deque<Proposal> take_all() {
    bytes_ = 0;
    return std::exchange(items_, {});
  }

 private:
  Proposal counted(Proposal proposal) {
    if (proposal.bytes == 0) proposal.bytes = encoded_bytes(proposal.command);
    bytes_ += proposal.bytes;
    return proposal;
  }

  std::deque<Proposal> items_;
  std::size_t bytes_ = 0;
};

}  // namespace gpusched
