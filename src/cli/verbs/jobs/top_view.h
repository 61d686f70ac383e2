#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/style.h"
#include "client/json.h"

namespace gpusched::cli {

/// State of the cluster that gpu-cli top shows.
struct TopData {
  Json cluster;
  std::vector<Json> nodes;
  std::vector<Json> running;
  std::vector<Json> waiting;  ///< The newest ones.
};

/// Settings that the keys change.
struct TopControls {
  enum class Sort { kId, kGpus, kRan, kPriority, kName };
  enum class Show { kAll, kRunning, kWaiting };
  Sort sort = Sort::kRan;
  Show show = Show::kAll;
  bool descending = true;
  bool gpus = true;  ///< The GPUs' bars are shown.
  bool help = false;
  int first_job = 0;  ///< The list of jobs begins with this one.
  int first_gpu = 0;

  /// Whether to go on. Keys that mean nothing are ignored.
  bool on_key(int key, const ScreenSize& size);
};

/// The columns of its list of jobs.
const std::vector<std::string>& top_job_columns();

/// The whole screen: never more lines than rows, no line wider than the columns (escape sequences aside).
/// `server` is the name of what we look at; `trouble` why the last look failed.
std::string top_text(const TopData& data, TopControls& controls, const ScreenSize& size, bool color, Time now,
                     const std::string& server, const std::optional<std::string>& trouble);

/// "[██████░░░░]": `share` of 0..1, in so many columns with its brackets.
std::string bar(double share, int columns, Style style, bool color);

}  // namespace gpusched::cli
