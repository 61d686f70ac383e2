#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "gpusched/v1/node.pb.h"

namespace gpusched {

/// Decides which orders a node obeys, on one connection. A node that has a certificate was given, with it,
/// the key that its scheduler signs orders with, and takes no order that this key did not sign for it, now.
/// Any other node takes what comes, as the link's proof of the token has it.
class OrderGate {
 public:
  /// Takes everything.
  OrderGate() = default;
  /// `keys`: 32 bytes each, any of which may sign; anything else signs nothing. `nonce`: what the agent drew
  /// for this connection.
  OrderGate(std::string keys, std::string node, std::string nonce)
      : demands_signatures_(true), keys_(std::move(keys)), node_(std::move(node)), nonce_(std::move(nonce)) {}

  /// Puts the order that was signed in the place of what carried it. kUnauthenticated: it is not to be
  /// obeyed, and why; the message is then what somebody wanted it to be.
  Result<Unit> pass(v1::SchedulerMessage& message);
  bool demands_signatures() const { return demands_signatures_; }

 private:
  bool demands_signatures_ = false;
  bool is_signed(const std::string& text, const std::string& signature) const;

  std::string keys_, node_, nonce_;
  uint64_t sequence_ = 0;  ///< Sequence of the last order.
};

/// Whether a message starts, ends and changes nothing: the greetings, and what only says that something was
/// heard. All else is signed, what newer schedulers send too.
bool needs_no_signature(const v1::SchedulerMessage& message);

}  // namespace gpusched
