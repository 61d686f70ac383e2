#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

/// Options of Slurm's sbatch in those of gpu-cli submit: of a script's #SBATCH lines, and for hints.
namespace gpusched::cli {

/// The requests of #SBATCH lines.
class SlurmRequest {
 public:
  /// Understands the words of one line. kInvalidArgument for an option that has no equal here: `place`, such
  /// as "train.sh:3: ", then what to write instead.
  Result<Unit> take(const std::vector<std::string>& words, const std::string& place);

  /// Options that #GPU lines give as well: those win over the ones that would clash with them.
  struct Given {
    bool gpus = false;
    bool output = false, error = false;
  };
  /// Options of gpu-cli submit for all lines together.
  Result<std::vector<std::string>> words(const Given& given) const;
  /// The account, which is a tenant here; empty: none.
  const std::string& account() const { return account_; }

 private:
  /// A number of GPUs and their model, and where it was asked for.
  struct Gpus {
    std::string place, option, count, model;
  };

  Result<Unit> take_option(const std::string& name, const std::optional<std::string>& value,
                           const std::string& place);
  Result<Unit> take_gpus(const std::string& name, const std::string& text, const std::string& place);

  std::vector<std::string> words_;
  std::optional<Gpus> all_, each_node_;
  std::string account_, nodes_, output_, error_, folder_;
};

/// The text to write for an option of sbatch that gpu-cli submit does not know: "write --gpus 2", or a
/// sentence; empty: it is none of them, or there is nothing to say. `value` may be empty.
std::string slurm_hint(const std::string& name, const std::string& value);

/// A duration as sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds,
/// days-hours[:minutes[:seconds]]. In seconds; 0: no limit. Nothing when it is none.
std::optional<int64_t> slurm_seconds(const std::string& text);

}  // namespace gpusched::cli
