#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machines/drivers/provider.h"

namespace gpusched::machines {

struct SlurmProviderOptions {
  std::vector<std::string> resume;       ///< As ResumeProgram: a program by its path, and its arguments.
  std::vector<std::string> suspend;      ///< As SuspendProgram.
  std::vector<std::string> resume_fail;  ///< As ResumeFailProgram; empty: none.
  Duration timeout = seconds(120);       ///< For one run; then it is killed.
  /// As SuspendTimeout: a machine is gone so long after the end of its suspend program.
  Duration suspend_time = seconds(30);
  std::string folder;  ///< Absolute; notes on the machines that were resumed.
};

/// A provider behind programs of Slurm's convention (slurm.conf: ResumeProgram, SuspendProgram,
/// ResumeFailProgram). Each gets the machine's name as a host list behind its own arguments; the first also
/// finds a file in SLURM_RESUME_FILE, `{"all_nodes_resume":"burst-3","jobs":[]}`. Exit status 0 means that it
/// was begun. ResumeTimeout is the pool's `boot_limit_seconds`.
///
/// The convention has no question about a machine, so one that was resumed and not suspended counts as there;
/// one that fails shows by its node, which does not come. A scheduler that was killed while it resumed one
/// resumes it again, under the same name.
class SlurmProvider final : public Provider {
 public:
  explicit SlurmProvider(SlurmProviderOptions options) : options_(std::move(options)) {}

  ProviderAnswer create(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer describe(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer destroy(const provision::Pool& pool, const std::string& name) override;
  /// Runs the program for machines that failed, once and whatever its exit status, before it destroys.
  ProviderAnswer abandon(const provision::Pool& pool, const std::string& name) override;
  ProviderAnswer list(const provision::Pool& pool) override;

 private:
  /// Nothing: it ended well.
  std::optional<ProviderAnswer> run(const std::vector<std::string>& program, const std::string& name,
                                    const std::string& resume_file);
  std::optional<ProviderAnswer> write_note(const std::string& path);
  std::string note(const std::string& name) const { return options_.folder + "/" + name; }

  const SlurmProviderOptions options_;
};

}  // namespace gpusched::machines
