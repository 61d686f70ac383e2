#pragma once

#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// Answers who reads attempts' output.
class Output {
 public:
  Output(const NodePorts& ports, const AttemptTable& attempts) : ports_(ports), attempts_(attempts) {}

  void on_read_log(const v1::ReadLog& order) const;
  void not_obeyed(const v1::ReadLog& order, const std::string& why) const;
  /// The answer to AttemptFiles::read.
  void send(v1::LogChunk chunk) const;

 private:
  const NodePorts& ports_;
  const AttemptTable& attempts_;
};

}  // namespace gpusched::agent
