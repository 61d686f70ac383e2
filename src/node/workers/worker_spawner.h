#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "node/ports/ports.h"
#include "node/process/shim_spawner.h"

namespace gpusched {

struct WorkerSpawnerOptions {
  std::string data_folder;
  SpareFolders* spares = nullptr;  ///< Folders for tasks to take over; null: none.
  /// A worker is over: its folder may go. May be empty.
  std::function<void(const AttemptKey&)> remove = {};
};

/// Before ShimSpawner: gives tasks to persistent workers, whose processes that runs like attempts, and passes
/// on everything else.
///
/// A worker has as many tasks at once as its command's operator and it itself say; those of one endpoint have
/// so many together, and further tasks wait without having started. Without one it stays for
/// the next that matches it: the same command, tenant, user, devices and limits. Before anything else starts
/// on one of its devices it is ended, and the start waits until all of it is gone. Its shim has the task and
/// its outcome (src/shim/worker), so that a new agent finds both again; that agent keeps the tasks, and ends
/// workers that have none: it does not know what else they would match.
///
/// Not thread-safe. Used as ShimSpawner is: `descriptor`, `next_deadline`, `pump`.
class WorkerSpawner final : public Spawner, public ShimListener {
 public:
  WorkerSpawner(WorkerSpawnerOptions options, const Clock& clock, ShimListener& listener);
  ~WorkerSpawner() override;
  /// Before anything else; `shims` calls back here.
  void begin(ShimSpawner& shims);

  void start(SpawnRequest request) override;
  void go(const AttemptKey& key) override { shims_->go(key); }
  void stop(const AttemptKey& key, const StopOrder& order) override;
  void adopt(const std::vector<AttemptKey>& keys) override;
  void set_max_runtime(const AttemptKey& key, Duration limit) override;
  void mark_contact(Duration age) override { shims_->mark_contact(age); }
  std::vector<Preparation> preparing() override;
  std::vector<SavedWork> saved() override;
  bool owns(const AttemptKey& key, int64_t pid) override;
  bool keeps(int64_t pid) override;
  std::size_t tasks_beside(const AttemptKey& key) override;
  void force_end(const AttemptKey& key) override;
  void replace_server() override { shims_->replace_server(); }
  std::string image_digest(const AttemptKey& key) override { return shims_->image_digest(key); }
  ShimProcess shim_of(const AttemptKey& key) override;

  void on_shim_prepared(const AttemptKey& key) override { listener_.on_shim_prepared(key); }
  void on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) override;
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) override;
  void on_shim_lost(const AttemptKey& key, const std::string& detail) override;
  void on_shim_saved(const AttemptKey& key, int64_t unix_ns) override;
  void on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) override;

  int descriptor() const { return epoll_; }
  void pump();
  Time next_deadline() const;

  std::size_t worker_count() const { return workers_.size(); }

 private:
  struct Task {
    SpawnRequest request = {};                  ///< Until it has started.
    std::string spare_folder = {};              ///< For it; empty: none, or it is its own by now.
    bool given = false;                         ///< The worker's shim has it.
    bool started = false;                       ///< Its shim said so.
    bool stopping = false;                      ///< It was told to end.
    std::optional<Duration> limit_wanted = {};  ///< Before its folder was there.
  };
  struct Worker {
    AttemptKey key;
    std::string match;           ///< Empty: an earlier agent's.
    std::set<uint32_t> devices;  ///< Not known for a worker that an earlier agent began.
    uint32_t room = 1;           ///< Tasks that it takes at once.
    bool cancels = false;        ///< It can end one of them alone.
    int connection = -1;
    bool begun = false;         ///< It runs, or ran.
    bool silent = false;        ///< An earlier agent's, and its shim did not tell its tasks.
    bool ending = false;        ///< It was told to end.
    std::string endpoint = {};  ///< URL that its tasks are sent to; empty: none.
    std::map<AttemptKey, Task> tasks = {};
  };

  void dispatch(SpawnRequest request);
  void dispatch_held();
  bool is_endpoint_full(const WorkerPlan& plan) const;
  Worker* worker_with_room(const WorkerPlan& plan);
  bool join(Worker& worker, SpawnRequest& request);
  bool clear_way(const SpawnRequest& request);
  void start_worker(SpawnRequest request);
  bool give_task(Worker& worker, const AttemptKey& key);
  void give_again();
  void keep_spare(Task& task);
  void end_worker(Worker& worker);
  Worker* worker_of(const AttemptKey& task);
  std::optional<int> connect_to(const AttemptKey& worker) const;
  void watch(Worker& worker);
  void take_packets(Worker& worker);
  void take_event(Worker& worker, const shim::Event& event);
  void adopt_rest();
  void end_silent();
  void adopt_worker(const AttemptKey& key, std::set<AttemptKey>& running);
  void task_ended(Worker& worker, const AttemptKey& key, const v1::Outcome& outcome);
  void never_began(const AttemptKey& key);
  void task_over(const AttemptKey& key, Task&& task, bool was_begun, const v1::Outcome& outcome);
  void worker_over(const AttemptKey& key, const v1::Outcome& outcome);
  std::optional<v1::Outcome> recorded_outcome(const AttemptKey& task) const;
  std::string folder_of(const AttemptKey& key) const;

  const WorkerSpawnerOptions options_;
  const Clock& clock_;
  ShimListener& listener_;
  ShimSpawner* shims_ = nullptr;
  int epoll_ = -1;
  std::map<AttemptKey, Worker> workers_;
  std::map<AttemptKey, AttemptKey> tasks_;  ///< The worker of each.
  /// They wait until workers on their devices are gone, or their endpoint has room.
  std::deque<SpawnRequest> held_;
  bool has_room_again_ = false;  ///< Some may go.
  /// Attempts of an earlier agent, to be looked for when no silent worker may have them any more.
  std::vector<AttemptKey> to_adopt_;
  Time silence_ends_ = kNever;       ///< End of the wait for silent workers, which are ended by force then.
  Time gives_again_ = kNever;        ///< Next try for tasks for which a shim's socket had no room.
  std::map<AttemptKey, int> tries_;  ///< Tries of tasks whose workers ended before they took them.
  /// Answers that are given when nobody is calling.
  std::vector<std::function<void()>> later_;
};

}  // namespace gpusched
