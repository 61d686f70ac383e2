#pragma once

#include <cstdint>

/// Joins standard input and output to a TCP port on the loopback of this process's network.
namespace gpusched::shim {

/// Connects to the port at 127.0.0.1, or at ::1 where that refuses. Returns the socket; -1 with errno.
int connect_to_port(uint16_t port);

/// Copies bytes from descriptor 0 to the socket and from the socket to descriptor 1 as they come, until both
/// have ended. The end of one way is passed on and leaves the other one open. Before it closes descriptor 1
/// it writes one byte to descriptor 2: without that byte the end of descriptor 1 means that the connection
/// broke. Nothing is held back: at most one piece is on its way in each direction. Returns the exit status: 0
/// when both ended well, 1 when the connection broke.
int relay_port(int socket);

}  // namespace gpusched::shim
