#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpusched {

/// How one check went. Worst last.
enum class Verdict {
  kOk,
  kWarn,  ///< It works, with less than it could: the detail says what is lost.
  kFail,  ///< It does not work, or will not keep its promises.
};
std::string_view to_string(Verdict verdict);

/// One thing that was looked at.
struct Finding {
  std::string check;  ///< One word: "memlock".
  Verdict verdict = Verdict::kOk;
  std::string detail;  ///< What was found, one sentence without its full stop.
  std::string mend =
      {};  ///< The command that mends it, as one types it; empty when there is nothing to mend.
};

/// What a doctor found, in the order of looking.
class Diagnosis {
 public:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add_all(std::vector<Finding> findings);

  const std::vector<Finding>& findings() const { return findings_; }
  /// The worst of all.
  Verdict verdict() const;
  /// 0: all well; 1: there are warnings; 2: something fails.
  int exit_code() const;
  /// One line a check, below it the command that mends it, and a line that sums up.
  std::string text() const;
  /// {"program","host","verdict","checks":[{"check","verdict","detail","mend"}]}
  std::string json(std::string_view program, std::string_view host) const;

 private:
  std::vector<Finding> findings_;
};

}  // namespace gpusched
