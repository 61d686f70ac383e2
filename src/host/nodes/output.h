#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "base/result.h"
#include "gpusched/v1/node.pb.h"
#include "host/nodes/connections.h"

namespace gpusched::hub {

/// Pieces of attempts' output, asked of the node that has them. Each question is answered once: by the agent,
/// or when its stream ends.
class Output {
 public:
  using Done = std::function<void(Result<v1::LogChunk>)>;

  explicit Output(Connections& connections) : connections_(connections) {}

  /// `done` gets kUnavailable when the node is not connected or owes too many answers.
  void read(NodeId node, v1::ReadLog request, Done done);
  /// Taken from the node alone that was asked: requests' numbers can be guessed.
  void on_chunk(NodeId node, const v1::LogChunk& chunk);
  /// Its stream ended.
  void node_gone(NodeId node);

 private:
  struct Pending {
    NodeId node;
    Done done;
  };

  Connections& connections_;
  std::map<uint64_t, Pending> pending_;
  uint64_t next_request_ = 1;
};

}  // namespace gpusched::hub
