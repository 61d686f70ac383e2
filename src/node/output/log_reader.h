#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "gpusched/v1/node.pb.h"
#include "node/ports/ports.h"

namespace gpusched {

class LogFile;
struct LogTrouble;

/// Answers reads of attempts' output on a thread of its own, so that a slow disk or a search in a large
/// output holds up nothing else. A read that waits for more is woken by the kernel when the file grows, at
/// most 20 times a second; nothing is polled. The thread begins with the first read.
///
/// Thread-safe.
class LogReader {
 public:
  /// Waiting reads at a time; one more is refused.
  static constexpr std::size_t kWaitingMax = 8'192;

  /// `data_folder` is the agent's.
  explicit LogReader(std::string data_folder);
  ~LogReader();

  void read(const v1::ReadLog& order, AttemptLife life);
  /// Nothing writes to the attempt's output any more.
  void ended(const AttemptKey& key);
  /// Forgets all reads: their askers are gone.
  void forget_reads();

  /// Becomes readable when `take` has something.
  int event() const { return done_event_; }
  std::vector<v1::LogChunk> take();

 private:
  struct Read {
    v1::ReadLog order;
    AttemptKey key;
    AttemptLife life = AttemptLife::kRunning;
    Time arrived;
    Time deadline;        ///< End of waiting; then it is answered, whatever there is.
    Time due = kNever;    ///< When to look at the file. Changed by `look_at` alone.
    int64_t skipped = 0;  ///< Told when it is answered.
    bool began = false;   ///< `order.offset` is where it stands; tail and since are done with.
  };
  using Reads = std::map<uint64_t, Read>;

  void run();
  void take_orders();
  void take_growth();
  void look(Time now);
  void look_at(Reads::iterator read, Time when);
  /// True: it is answered.
  bool answer(Reads::iterator at, Time now);
  bool answer_from(LogFile& file, Reads::iterator at, Time now);
  static void begin(const LogFile& file, Read& read);
  static v1::LogChunk take_piece(const LogFile& file, const Read& read, bool partial, bool& more);
  void wait_for_growth(LogFile& file, Reads::iterator at, int64_t size_seen, Time now);
  void finish(const Read& read, v1::LogChunk chunk);
  void refuse(const Read& read, const std::string& code, const std::string& message);
  LogTrouble why_not_there(const Read& read) const;
  int wait_ms(Time now) const;

  const std::string data_folder_;
  int done_event_ = -1;
  int wake_event_ = -1;
  int inotify_ = -1;

  std::mutex mutex_;  ///< Guards what follows.
  std::deque<Read> orders_;
  std::vector<AttemptKey> ended_;
  std::vector<v1::LogChunk> done_;
  bool forget_ = false;
  bool stopping_ = false;
  std::thread thread_;

  // The thread's own.
  Reads reads_;
  uint64_t next_read_ = 1;
  std::set<std::pair<Time, uint64_t>> dues_;
  std::map<int, std::vector<uint64_t>> watchers_;  ///< By watch: the reads that wait for it.
};

}  // namespace gpusched
