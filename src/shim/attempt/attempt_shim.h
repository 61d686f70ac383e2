#pragma once

#include <string_view>

namespace gpusched::shim {

/// Descriptors that a forked shim inherits from the server. Plain ones: they are the process's.
struct ShimContext {
  const char* data_folder = "";
  int attempts_folder = -1;  ///< DATA_DIR/attempts.
  int events = -1;           ///< To the agent; broken when the agent is gone, which is no failure.
  int contact = -1;          ///< DATA_DIR/contact: CLOCK_BOOTTIME of the last scheduler contact, 8 bytes.
  int null_input = -1;       ///< /dev/null.
};

/// Owns one member of one attempt from its start to its recorded outcome, in a process of its own: leads a
/// session, collects every orphan below it, ends the job by signal, grace and kill, writes the outcome and
/// exits. `packet` is an encoded StartRequest. Call it right after fork, with the signals of
/// `block_shim_signals` blocked.
[[noreturn]] void run_attempt_shim(const ShimContext& context, std::string_view packet);

/// Blocks what the shim waits for, and what a terminal or a service manager may send to its group.
void block_shim_signals();

}  // namespace gpusched::shim
