#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "node/ports.h"

namespace gpusched {

/// Attempts' folders on disk. Folders are removed by a thread of its own: what a job left there may be much.
/// One thread calls everything.
class FolderFiles final : public AttemptFiles {
 public:
  explicit FolderFiles(std::string attempts_folder);
  /// Ends after the folder that is being removed; the others stay.
  ~FolderFiles() override;

  Result<LogPiece> read(const AttemptKey& key, bool of_stderr, int64_t offset, int32_t size_max) override;
  void remove(const AttemptKey& key) override;
  /// Returns when everything asked for is removed.
  void wait_removed();

 private:
  void run();

  const std::string attempts_folder_;
  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  std::deque<AttemptKey> to_remove_;
  bool removing_ = false;
  bool stopping_ = false;
  std::thread remover_;
};

}  // namespace gpusched
