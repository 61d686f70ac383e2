#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "sim/schedule/schedule.h"

namespace gpusched::sim {

/// Events, in order: always into a digest, as text only on demand.
class Trace {
 public:
  Trace(const Schedule& schedule, bool print) : schedule_(schedule), print_(print) {}

  bool prints() const { return print_; }
  /// `words` are part of the digest; `detail` is for people.
  void note(std::string_view what, std::initializer_list<uint64_t> words, std::string_view detail = {});
  void mix(uint64_t word) { digest_.mix(word); }
  Digest digest() const { return digest_; }

 private:
  const Schedule& schedule_;
  bool print_;
  Digest digest_;
};

}  // namespace gpusched::sim
