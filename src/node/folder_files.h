#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "node/ports.h"

namespace gpusched {

/// Makes `<data folder>/attempts` if it is missing.
Result<Unit> make_attempts_folder(const std::string& data_folder);

/// Emptied folders of forgotten attempts, in `<data folder>/spare`, for new attempts to take over.
/// Thread-safe.
class SpareFolders {
 public:
  explicit SpareFolders(std::string data_folder);

  /// The name of one, which is the caller's now; empty when there is none.
  std::string take();
  /// Takes over the attempt's folder, if it holds nothing but the files that every attempt has, as they were
  /// made.
  bool put(const std::string& attempt_folder);

 private:
  const std::string folder_;
  std::mutex mutex_;  ///< Guards what follows.
  std::vector<std::string> names_;
  uint64_t next_name_ = 1;
};

/// Attempts' folders on disk. Folders are removed by a thread of its own: what a job left there may be much.
/// One thread calls everything.
class FolderFiles final : public AttemptFiles {
 public:
  FolderFiles(std::string attempts_folder, SpareFolders* spares);
  /// Ends after the folder that is being removed; the others stay.
  ~FolderFiles() override;

  Result<LogPiece> read(const AttemptKey& key, bool of_stderr, int64_t offset, int32_t size_max) override;
  void remove(const AttemptKey& key) override;
  /// Removes the attempt's temporary folder only, soon.
  void remove_scratch(const AttemptKey& key);
  /// Removes folders of ended attempts that nobody knows: an agent died between forgetting and removing them.
  /// And temporary folders of ended attempts: their shims died before they could.
  void remove_unknown(const std::map<AttemptKey, StoredAttempt>& known);
  /// Returns when everything asked for is removed.
  void wait_removed();

 private:
  void run();

  const std::string attempts_folder_;
  SpareFolders* const spares_;
  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  struct Removal {
    AttemptKey key;
    bool scratch_only = false;
  };
  void queue(const Removal& removal);
  void carry_out(const Removal& removal) const;

  std::deque<Removal> to_remove_;
  bool removing_ = false;
  bool stopping_ = false;
  std::thread remover_;
};

}  // namespace gpusched
