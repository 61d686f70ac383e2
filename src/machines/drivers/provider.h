#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "provision/pool.h"

namespace gpusched::machines {

/// State of a machine as its provider has it.
enum class ProviderState : uint8_t {
  kAbsent = 1,  ///< There is none of that name.
  kStarting,
  kRunning,
  kEnding,
  kFailed,  ///< It is there and will never run.
};

/// Why a call of a provider did not do what it should.
enum class Fault : uint8_t {
  kQuota = 1,  ///< The provider has no such machine to give at present. Others of its pool would fare alike.
  kInvalid,    ///< The provider refuses the request as it is.
  kUnavailable,  ///< No answer in time, none that could be read, or a failure: nothing is known.
};
std::string_view to_string(Fault fault);

struct ProviderAnswer {
  std::optional<Fault> fault;  ///< Given: nothing else but `message` is.
  ProviderState state = ProviderState::kAbsent;
  std::vector<std::string> machines;  ///< Names that `list` gives.
  std::string message;                ///< For people; may be empty.
};

/// Somebody who gives machines. A machine's key is its name: creating a name again is the same machine, as is
/// any repeated call. A name is used once, for ever. Calls block; at most one at a time for one name.
/// Thread-safe.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual ProviderAnswer create(const provision::Pool& pool, const std::string& name) = 0;
  virtual ProviderAnswer describe(const provision::Pool& pool, const std::string& name) = 0;
  /// Begins the end of a machine. kAbsent: it is gone, or never was.
  virtual ProviderAnswer destroy(const provision::Pool& pool, const std::string& name) = 0;
  /// The same for a machine whose node never came.
  virtual ProviderAnswer abandon(const provision::Pool& pool, const std::string& name) {
    return destroy(pool, name);
  }
  /// Names of all machines that this scheduler had made in the pool, in any state but gone.
  virtual ProviderAnswer list(const provision::Pool& pool) = 0;
  /// Lets calls that block end soon, and later ones at once, as kUnavailable.
  void stop() { stopping_ = true; }

 protected:
  std::atomic<bool> stopping_ = false;
};

}  // namespace gpusched::machines
