#pragma once

#include <string>
#include <vector>

#include "anticipate/anticipator.h"
#include "base/net/ip_network.h"
#include "base/result.h"
#include "base/time.h"
#include "pilot/outgoing/model_door.h"

namespace gpusched::pilot {

/// One monitor of the configuration.
struct MonitorSettings {
  std::string name;
  anticipate::Source source = anticipate::Source::kLog;
  std::vector<std::string> paths = {};     ///< Absolute patterns: logs, files, histories of shells.
  std::vector<std::string> suffixes = {};  ///< Endings of files that are read; empty: all.
  std::vector<std::string> command = {};   ///< Words of a custom monitor's program.
  int32_t weight_max = 60;                 ///< Maximum for a custom monitor's conclusions.
};

/// Whether the kernel holds a running pilot to its files and ports (landlock.h).
enum class LandlockUse : uint8_t {
  kAuto = 1,  ///< Where it can.
  kOff,
  kRequired,  ///< Without it the pilot does not run.
};

/// The configuration of gpu-pilot.
struct PilotSettings {
  std::string path;                           ///< File that it was read from.
  std::string api_url;                        ///< Empty: the scheduler of this machine.
  std::string token_file;                     ///< Empty: none.
  std::string ca_file;                        ///< Empty: the machine's authorities.
  std::vector<IpNetwork> api_addresses = {};  ///< Addresses that the scheduler may have; empty: any.
  LandlockUse landlock = LandlockUse::kAuto;
  std::string passphrase_file;  ///< Of sealed secrets; empty: it is asked for on the terminal.
  std::string state_dir;        ///< Absolute.
  Duration poll = seconds(5);   ///< How often the scheduler is asked about a lease.
  anticipate::Settings decide = {};
  std::vector<anticipate::Rule> rules = {};
  std::vector<MonitorSettings> monitors = {};
  ModelSettings model = {};
};

/// Reads a configuration. `home` stands for "~". kNotFound or kIo: the file cannot be read; kInvalidArgument:
/// one problem a line, each with its file and line.
Result<PilotSettings> read_settings(const std::string& path, const std::string& home);
/// The same of a text; `path` stands in messages.
Result<PilotSettings> parse_settings(const std::string& text, const std::string& path,
                                     const std::string& home);

/// A configuration with comments that suits most people: what `gpu-pilot example` prints.
std::string example_settings();

}  // namespace gpusched::pilot
