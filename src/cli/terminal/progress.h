#pragma once

#include <string>

#include "cli/framework/run.h"

namespace gpusched::cli {

/// One line on standard error, on a terminal alone, about something that takes more than a second. Gone at
/// the end.
class Progress {
 public:
  explicit Progress(const CliIo& io) : io_(io), since_(io.wall_now()) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  /// Shows the text in place of the one before, once the first second is over.
  void show(const std::string& text);
  void clear();

 private:
  const CliIo& io_;
  Time since_;
  bool shown_ = false;
};

}  // namespace gpusched::cli
