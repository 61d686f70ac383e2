#pragma once

#include <cstdint>
#include <string>

namespace gpusched {

/// Names who listens on a TCP port of this machine, for a message to a person: "nginx (process 812)", or "a
/// process of user bob" where another user's processes cannot be looked into. Empty when nobody is found.
/// `proc` is the folder where /proc is mounted.
std::string port_holder(uint16_t port, const std::string& proc = "/proc");

}  // namespace gpusched
