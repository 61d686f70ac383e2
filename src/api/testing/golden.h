#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/time.h"

/// Texts that are compared byte for byte with the files in tests/api/golden. GPUSCHED_RECORD_GOLDEN=1 writes
/// these again.
namespace gpusched::api {

/// The time at which everything compared was made: 2025-01-31, 09:00 UTC.
constexpr Time kMorning{1'738'314'000'000'000'000};

inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(GPUSCHED_SOURCE_DIR "/tests/api/golden/") + name;
  if (std::getenv("GPUSCHED_RECORD_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream recorded;
  recorded << file.rdbuf();
  EXPECT_EQ(text, recorded.str()) << path
                                  << "; record it again with GPUSCHED_RECORD_GOLDEN=1 if it should differ";
}

}  // namespace gpusched::api
