#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace gpusched::cli {

/// The outputs of a job that are shown, and how.
struct OutputChoice {
  bool out = true;
  bool err = true;
  bool follow = false;  ///< Until the job ends.
  int64_t attempt = 0;  ///< 0: the latest; followed, all later ones too unless `one_attempt`.
  bool one_attempt = false;
  std::optional<int64_t> member;  ///< None: every member, the lines of several marked with its number.
  LogChoice lines = {};           ///< Its member and `skipped` are set here.
  std::string prefix = {};        ///< Before each line, and before the mark of a member.
  std::mutex* writing = nullptr;  ///< Guards writing, where several outputs are printed at once.
};

/// Prints a job's output: its standard output to ours, its standard error to ours. Of an array, that of its
/// elements, each line behind "[index] ". Not thread-safe.
class JobOutput {
 public:
  JobOutput(Session& session, std::string job, OutputChoice choice)
      : session_(session), job_(std::move(job)), choice_(std::move(choice)) {}

  /// The first trouble, if there was any. One stream that the job sent to a file of its own hides no other.
  Reply print();
  /// The job's record as it was before its output.
  const Json& record() const { return record_; }
  bool any() const { return any_; }  ///< Whether something was printed.

 private:
  struct Stream {
    int64_t member = 0;
    bool is_err = false;
    std::string prefix;  ///< Before each line; empty: bytes go through as they are.
  };
  std::vector<Stream> streams();
  Reply print_elements();
  Reply print_element(Session& session, int64_t index);
  Reply print_stream(Session& session, const Stream& stream);
  Reply print_followed(const std::vector<Stream>& streams);
  void write(bool is_err, std::string_view data);

  Session& session_;
  const std::string job_;
  const OutputChoice choice_;
  Json record_;
  std::mutex mutex_;  ///< Guards what is below, and writing unless the choice names another.
  bool any_ = false;
};

/// Puts a text before each line. A line that is longer than 64 KiB is ended there.
class LinePrefixer {
 public:
  explicit LinePrefixer(std::string prefix) : prefix_(std::move(prefix)) {}
  /// The whole lines that there are now.
  std::string take(std::string_view data);
  /// The last line when it has no end, with one.
  std::string finish();

 private:
  const std::string prefix_;
  std::string line_;
};

}  // namespace gpusched::cli
