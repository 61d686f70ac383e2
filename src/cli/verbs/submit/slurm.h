#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

/// Options of Slurm's sbatch in those of gpu-cli submit: of a script's #SBATCH lines, and for hints.
namespace gpusched::cli {

/// The requests of #SBATCH lines.
class SlurmRequest {
 public:
  /// Understands the words of one line; `place` is such as "train.sh:3: ".
  void take(const std::vector<std::string>& words, const std::string& place);
  /// A sentence for each option that has no equal here: the place, then what to write instead.
  const std::vector<std::string>& problems() const { return problems_; }
  /// A sentence for each option that is left out.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Options that #GPU lines give as well: those win over the ones that would clash with them.
  struct Given {
    bool gpus = false;
    bool output = false, error = false, memory = false;
    std::string cpus, gpu_count;  ///< As written; empty: not given.
  };
  /// Options of gpu-cli submit for all lines together. kInvalidArgument when they contradict each other.
  Result<std::vector<std::string>> words(const Given& given) const;
  /// The account, which is a tenant here; empty: none.
  const std::string& account() const { return account_; }
  /// Whether a number of tasks is given, for SLURM_NTASKS.
  bool asks_for_tasks() const { return asks_for_tasks_; }

 private:
  /// A number of GPUs and their model, and where it was asked for.
  struct Gpus {
    std::string place, option, count, model;
  };
  /// CPUs, or memory in MB, for each GPU or CPU, and where they were asked for.
  struct Each {
    std::string place, option;
    int64_t amount = 0;
  };

  Result<Unit> take_option(const std::string& name, const std::optional<std::string>& value,
                           const std::string& place);
  Result<Unit> take_gpus(const std::string& name, const std::string& text, const std::string& place);
  Result<Unit> take_each(const std::string& name, const std::string& text, const std::string& place);
  Result<std::vector<std::string>> gpu_words() const;
  Result<std::vector<std::string>> size_words(const Given& given) const;

  std::vector<std::string> words_, problems_, warnings_;
  std::optional<Gpus> all_, each_node_;
  std::optional<Each> memory_each_, cpus_each_;
  std::string account_, nodes_, output_, error_, folder_, cpus_;
  std::string memory_place_;  ///< Place of --mem; empty: it was not given.
  bool asks_for_tasks_ = false;
};

/// The text to write for an option of sbatch that gpu-cli submit does not know: "write --gpus 2", or a
/// sentence; empty: it is none of them, or there is nothing to say. `value` may be empty.
std::string slurm_hint(const std::string& name, const std::string& value);

/// A duration as sbatch reads it: minutes, minutes:seconds, hours:minutes:seconds,
/// days-hours[:minutes[:seconds]]. In seconds; 0: no limit. Nothing when it is none.
std::optional<int64_t> slurm_seconds(const std::string& text);

}  // namespace gpusched::cli
