#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/time.h"

namespace gpusched {

/// Calls that may never come back, such as a look at a path on a file system whose server is gone: each on a
/// thread of its own. A call that hangs stays there, and is not made again meanwhile. Thread-safe.
class HangTolerantCalls {
 public:
  /// At once; beyond that nothing is called until one comes back.
  static constexpr int kHangingMax = 64;

  HangTolerantCalls();

  /// The result of `call` within `wait`. Nothing: it did not come back yet, or one with the same key did not,
  /// or too many others. `call` may outlive this object, and refers to nothing of the caller's.
  std::optional<std::string> ask(const std::string& key, std::function<std::string()> call, Duration wait);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace gpusched
