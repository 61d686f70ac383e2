#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpusched {

/// Verdict of one check. Worst last.
enum class Verdict {
  kOk,
  kWarn,  ///< Works with restrictions: the detail says which.
  kFail,  ///< Does not work, or cannot keep its guarantees.
};
std::string_view to_string(Verdict verdict);

/// One thing that was looked at.
struct Finding {
  std::string check;  ///< One word: "memlock".
  Verdict verdict = Verdict::kOk;
  std::string detail;  ///< Finding, one sentence without a full stop.
  std::string fix =
      {};  ///< The command that repairs it, as one types it; empty when there is nothing to repair.
};

/// Findings of a doctor, in the order of the checks.
class Diagnosis {
 public:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  void add_all(std::vector<Finding> findings);

  const std::vector<Finding>& findings() const { return findings_; }
  /// The worst of all.
  Verdict verdict() const;
  /// 0: all well; 1: there are warnings; 2: something fails.
  int exit_code() const;
  /// One line a check, below it the command that repairs it, and a line that sums up.
  std::string text() const;
  /// {"program","host","verdict","checks":[{"check","verdict","detail","fix"}]}
  std::string json(std::string_view program, std::string_view host) const;

 private:
  std::vector<Finding> findings_;
};

}  // namespace gpusched
