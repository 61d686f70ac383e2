#pragma once

#include "gpusched/v1/node.pb.h"
#include "node/attempts/attempt_table.h"
#include "node/ports/ports.h"

namespace gpusched::agent {

/// The attempts that have interactive sessions and files: sessions while their command runs, files as long as
/// the attempt is known.
class Sessions {
 public:
  Sessions(const NodePorts& ports, const AttemptTable& attempts) : ports_(ports), attempts_(attempts) {}

  void on_open(const v1::OpenSession& order) const;
  void on_input(const v1::SessionInput& input) const;
  void on_read_file(const v1::ReadFile& order) const;
  /// Refuses an order whose giver may not give it or is not believed.
  void not_obeyed(const v1::OpenSession& order, const std::string& why) const;
  void not_obeyed(const v1::ReadFile& order, const std::string& why) const;
  /// Those of a scheduler that is gone.
  void end_all() const;

 private:
  const NodePorts& ports_;
  const AttemptTable& attempts_;
};

}  // namespace gpusched::agent
