#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"

namespace gpusched::api {

/// How many sockets each party has open, where somebody else closes them and tells nobody. The socket behind
/// a descriptor has its own number (st_ino), so a descriptor that was closed, or is another socket's by
/// now, is seen when it is looked at. Each addition looks at some, so that what has ended is forgotten in
/// time. Not thread-safe.
class OpenSockets {
 public:
  /// Between two looks at all sockets of a party that has no room.
  static constexpr Duration kLookEvery = milliseconds(100);

  struct Limits {
    std::size_t of_party_max = 0;  ///< 0: no bound.
    std::size_t all_max = 0;       ///< 0: no bound.
  };
  explicit OpenSockets(Limits limits) : limits_(limits) {}

  /// Whether there is room for one more. `party` empty: nobody's, in no bound but that of all.
  bool has_room(const std::string& party, Time now);
  /// A socket that was just opened.
  void add(const std::string& party, int descriptor);

  /// As far as is known: some may have been closed.
  std::size_t known() const { return all_.size(); }
  std::size_t known_of(const std::string& party) const;

 private:
  struct Socket {
    std::string party;
    ino_t number = 0;
    std::size_t index = 0;  ///< Among its party's.
  };
  struct Party {
    std::vector<int> descriptors;
    Time looked_at = {};
  };
  using Sockets = std::map<int, Socket>;
  Sockets::iterator forget(Sockets::iterator socket);
  void look_at_all_of(std::vector<int> descriptors);
  void look_at_some();

  const Limits limits_;
  Sockets all_;  ///< By descriptor.
  std::unordered_map<std::string, Party> parties_;
  Time looked_at_ = {};  ///< At all.
  int next_ = 0;         ///< Where look_at_some goes on.
};

}  // namespace gpusched::api
