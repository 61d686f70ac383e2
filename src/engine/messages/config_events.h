#pragma once

#include "base/time.h"
#include "model/types.h"

namespace gpusched {

struct Configured {
  EngineConfig config;
  Time at;  ///< Since feature level 9.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "config", self.config);
    visit(2, "at", self.at);
  }
};

}  // namespace gpusched
