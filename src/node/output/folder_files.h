#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "node/output/log_reader.h"
#include "node/output/log_retention.h"
#include "node/output/trash.h"
#include "node/ports/ports.h"
#include "node/process/hang_tolerant_calls.h"

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
  /// One that was taken and not used, as far as is known.
  void give_back(std::string name);
  /// Takes over the attempt's folder, if it holds nothing but the files that every attempt has, as they were
  /// made.
  bool put(const std::string& attempt_folder);

 private:
  const std::string folder_;
  std::mutex mutex_;  ///< Guards what follows.
  std::vector<std::string> names_;
  uint64_t next_name_ = 1;
};

struct FolderFilesOptions {
  std::string data_folder;
  SpareFolders* spares = nullptr;  ///< Takes emptied folders; null: they are removed.
  int64_t log_bytes_max = 0;       ///< Limit of all attempts' output together; 0: none.
  Duration logs_kept = {};         ///< After an attempt's end; zero: for ever.
  std::size_t finished_kept = 0;   ///< Only told: how many ended attempts are kept.
};

/// Attempts' folders on disk. Slow work is done by threads of its own: removing folders, since what a job
/// left there may be much, and reading output. All that is asked for meanwhile is done within some
/// milliseconds, together. One thread calls everything.
class FolderFiles final : public AttemptFiles {
 public:
  explicit FolderFiles(FolderFilesOptions options);
  /// Ends after the file that is being removed; the next agent goes on.
  ~FolderFiles() override;

  void read(const v1::ReadLog& order, AttemptLife life) override;
  /// In `<data folder>/payloads`, where nobody but the agent's user and root reads. Its shim takes it away
  /// when it has opened it.
  Result<Unit> keep_payload(const AttemptKey& key, std::string_view payload) override;
  void began(const AttemptKey& key) override;
  void ended(const AttemptKey& key) override;
  void forget_reads() override;
  void remove(const AttemptKey& key) override;
  int64_t output_size(const AttemptKey& key) override;
  void note_time(Time wall) override;
  /// Removes the attempt's temporary folder only, soon.
  void remove_scratch(const AttemptKey& key);

  /// Becomes readable when `take_chunks` has something.
  int chunks_event() const { return reader_.event(); }
  std::vector<v1::LogChunk> take_chunks() { return reader_.take(); }

  /// Removes folders of ended attempts that nobody knows: an agent died between forgetting and removing them.
  /// And temporary folders of ended attempts: their shims died before they could. And payloads of attempts
  /// that have ended, or are not known.
  void remove_unknown(const std::map<AttemptKey, StoredAttempt>& known);
  /// Returns when everything asked for is done.
  void wait_idle();

 private:
  enum class What : uint8_t { kBegan, kEnded, kScratch, kRemove };
  struct Work {
    What what = What::kBegan;
    AttemptKey key;
    Time at = {};  ///< By the clock that never jumps.
  };

  void add(Work work);
  void run();
  void carry_out(const std::deque<Work>& works, Duration boot_time);
  void remove_folder(const AttemptKey& key);
  void remove_payload(const AttemptKey& key);
  int64_t size_behind(const std::string& link);

  const FolderFilesOptions options_;
  const std::string attempts_folder_, payloads_folder_;
  LogReader reader_;
  HangTolerantCalls looks_;  ///< At files of jobs' choice.
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  std::deque<Work> works_;
  bool working_ = true;
  /// The wall time that was confirmed last, less the time since the boot then; absent: none was.
  std::optional<Duration> boot_time_;

  // The thread's own.
  LogRetention retention_;
  Trash trash_;
  std::thread worker_;
};

}  // namespace gpusched
