#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "client/http_client.h"

namespace gpusched::cli {

/// Takes the lines of JSON that the scheduler streams an output in, and gives back the job's bytes.
class LogPieces {
 public:
  /// `write` gets bytes, and answers whether it wants more; `skipped` how many bytes are no longer kept.
  LogPieces(HttpOnData write, std::function<void(int64_t)> skipped)
      : write_(std::move(write)), skipped_(std::move(skipped)) {}

  /// Takes a piece of the stream. False: no more is wanted, or it is no such stream (`broken`).
  bool take(std::string_view data);

  int64_t next_offset() const { return next_offset_; }
  bool any() const { return any_; }          ///< A piece came.
  bool stopped() const { return stopped_; }  ///< `write` wants no more.
  bool broken() const { return broken_; }
  /// A new stream begins: half a line of the one before counts for nothing.
  void restart() { line_.clear(); }

 private:
  bool take_line(std::string_view line);

  HttpOnData write_;
  std::function<void(int64_t)> skipped_;
  std::string line_;
  int64_t next_offset_ = 0;
  bool any_ = false;
  bool stopped_ = false;
  bool broken_ = false;
};

}  // namespace gpusched::cli
