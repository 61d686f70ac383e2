#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace gpusched::pilot {

/// The file of all bytes that left: one JSON object a line, written before they are sent, only its owner may
/// read it. Beyond kAuditBytesMax it is renamed to FILE.1, which replaces an older one. Not thread-safe.
class AuditFile {
 public:
  static constexpr int64_t kAuditBytesMax = 64 << 20;

  explicit AuditFile(std::string path) : path_(std::move(path)) {}

  /// Notes bytes that are about to be sent to `destination`, with `secrets` in them replaced. False: they
  /// could not be written down, and must not be sent.
  bool sends(std::string_view destination, std::string_view bytes, const std::vector<std::string>& secrets,
             Time wall);
  /// Notes the answer: a status, or why there is none.
  void answered(std::string_view destination, int status, std::string_view problem, Time wall);

 private:
  bool write(const std::string& line);

  const std::string path_;
};

}  // namespace gpusched::pilot
