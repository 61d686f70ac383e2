#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "node/ports/ports.h"
#include "node/watch/gpu_faults.h"

namespace gpusched {

/// Reads Xids out of /dev/kmsg, or out of a file to which somebody appends the kernel's log. Not thread-safe;
/// never waits.
class KernelLog {
 public:
  /// `position`: what `position` gave last; 0: of /dev/kmsg all that the kernel still has, of a file what
  /// comes from now on. kUnavailable, with the reason, when it may not be read.
  static Result<KernelLog> open(const std::string& path, uint64_t position);
  KernelLog(KernelLog&& other) noexcept;
  KernelLog& operator=(KernelLog&&) = delete;
  ~KernelLog();

  /// Lines since the last call, bounded; a line longer than a record is cut. A file that became shorter is
  /// read from its beginning.
  std::vector<XidLine> take();
  /// Behind what was taken: of /dev/kmsg the record's number plus one, of a file its offset.
  uint64_t position() const { return position_; }

 private:
  KernelLog(int file, bool records, uint64_t position)
      : file_(file), records_(records), position_(position) {}
  void take_records(std::vector<XidLine>& lines);
  void take_lines(std::vector<XidLine>& lines);

  int file_;
  bool records_;  ///< Each read gives one record, as of /dev/kmsg.
  uint64_t position_;
  std::string rest_;  ///< Begin of a line that has no end yet.
};

/// `<data folder>/gpu-faults`, written beside and renamed.
class FaultFile final : public FaultMemory {
 public:
  explicit FaultFile(const std::string& data_folder) : path_(data_folder + "/gpu-faults") {}
  std::string load() override;
  /// Writes the text; a failure is logged, and the text is lost when the agent ends.
  void save(const std::string& text) override;

 private:
  std::string path_;
};

}  // namespace gpusched
