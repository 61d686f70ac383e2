#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace gpusched::pilot {

/// A custom monitor's own conclusion.
struct Conclusion {
  int32_t weight = 0;
  int32_t gpus = 1;
};

/// Something that a monitor saw. `bytes` are as they came: untrusted, and perhaps with secrets.
struct Sighting {
  std::string origin;  ///< Path or process.
  std::string bytes;
  bool has_lines = false;  ///< It is a file's text, with newlines.
  std::optional<Conclusion> conclusion = {};
};

using Sink = std::function<void(Sighting)>;

/// Looks at one kind of thing of the user's. Never blocks. Not thread-safe.
class Monitor {
 public:
  virtual ~Monitor() = default;
  /// Descriptors that become readable when there is something to look at; they may change with each look.
  virtual std::vector<int> descriptors() const = 0;
  /// Tells what is new. Called after a descriptor became readable, and every second besides. `now` is of a
  /// clock that does not go back.
  virtual void look(Time now, const Sink& sink) = 0;
};

}  // namespace gpusched::pilot
