#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/config.h"

/// Settings of `gpu-scheduler dev` where nobody chose, so that documented examples of every client run as
/// they are.
namespace gpusched {

/// Opens the doors on the ports that their clients expect, gives each type of task an example worker, and
/// lets callers without a credential do what documented examples do. Keys that were set stay as they are; a
/// port that another key has is left out.
void open_all_doors(LoadedConfig& config);

/// A port of `config` that nobody chose, and that the service could not have: what replaces it.
struct OtherPort {
  int64_t taken = 0;
  bool is_left_out = false;  ///< The door has no port of its own then; else any free port replaces it.
};
/// Replaces the port whose key is the error's field. Nothing: the error is another one, or somebody set that
/// key.
std::optional<OtherPort> replace_port(const Error& error, LoadedConfig& config);

/// Cores that the agent offers, 0 for all: `asked`, or where it is 0 a core for each simulated GPU if there
/// are fewer, for simulated GPUs do not come with the cores that real ones have beside them.
int64_t cores_to_offer(int64_t asked, std::string_view sim_gpus);

/// Number of GPUs in the words of `--sim-gpus`, such as "4xA100-SXM4-80GB,H100-SXM5-80GB"; parts that are
/// none count as one.
int64_t count_simulated_gpus(std::string_view shape);

}  // namespace gpusched
