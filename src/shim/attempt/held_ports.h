#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/text/service_port.h"

namespace gpusched::shim {

/// The TCP ports of one attempt: a gang's rendezvous port, and the one that a service's replica is reached
/// at. Each is listened on, so that no other program gets it, until the command runs, which binds it then.
///
/// Beside that, the port of a replica is claimed by an abstract Unix socket of its name until this object, or
/// its process, is gone: no two attempts of a machine choose the same one, whichever agents they are of, and
/// nothing is left of the claim whatever is killed. Not thread-safe.
class HeldPorts {
 public:
  HeldPorts() = default;
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;
  ~HeldPorts();

  /// Takes the rendezvous port, unless that is 0, and the port that an entry of the environment asks for:
  /// PORT takes the place of that entry, whose text lives as long as this object. Empty, or why one cannot be
  /// had.
  std::string take(uint32_t rendezvous, std::vector<char*>& environment, const AttemptKey& key,
                   bool is_container);
  /// Line to be noted about the replica's port; empty: it has none.
  const std::string& note() const { return note_; }
  /// A command binds its ports now. Before a container's begins its image is brought and its gang waited for:
  /// until then its runner has one, the gang's if there is one. Returns the descriptor that the new process
  /// is to inherit, to be closed behind its start; -1: none.
  int hand_over(bool to_container);

 private:
  std::string hold_rendezvous(uint32_t port);
  /// The first free port of the range, looked for from a place on that follows from the key. 0: none is free.
  uint32_t take_one_of(const PortRange& ports, const AttemptKey& key);

  int rendezvous_ = -1;
  int endpoint_ = -1;
  int claim_ = -1;
  std::string entry_;  ///< "PORT=12345".
  std::string note_;
};

}  // namespace gpusched::shim
