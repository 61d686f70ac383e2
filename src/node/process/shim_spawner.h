#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "node/output/folder_files.h"
#include "node/ports/ports.h"
#include "node/process/cgroup_tree.h"
#include "node/process/process_reader.h"
#include "shim/protocol.h"

namespace gpusched {

v1::Outcome to_wire(const shim::Outcome& outcome);

/// Receives outcomes of attempts. NodeCore's on_shim_* functions, by way of the agent.
class ShimListener {
 public:
  virtual ~ShimListener() = default;
  virtual void on_shim_prepared(const AttemptKey& key) = 0;
  virtual void on_shim_started(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) = 0;
  virtual void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) = 0;
  virtual void on_shim_lost(const AttemptKey& key, const std::string& detail) = 0;
  /// An attempt that was asked to save its work has done so, and ends now.
  virtual void on_shim_saved(const AttemptKey& key, int64_t unix_ns) = 0;
  virtual void on_shim_found(const AttemptKey& key, int64_t pid, int64_t started_unix_ns) = 0;
};

struct ShimSpawnerOptions {
  std::string shim_program;  ///< Path of gpu-shim.
  std::string data_folder;   ///< Absolute. `attempts/` and `contact` are in it.
  std::string instance;
  SpareFolders* spares = nullptr;       ///< Folders to take over; null: none.
  const CgroupTree* cgroups = nullptr;  ///< Tree of attempts' groups; null: there are none.
  /// An attempt whose shim could not do it has ended: its temporary folder may go. May be empty.
  std::function<void(const AttemptKey&)> remove_scratch = {};
  int64_t log_bytes_max = 0;  ///< Kept of each output; 0: all.
  /// The processes that own attempts of an earlier agent, by its record.
  std::map<AttemptKey, ShimProcess> shims = {};
};

/// Runs attempts through gpu-shim. One server process forks a shim for each; shims outlive server and agent.
/// After a restart, or when the server dies, the running shims are found again: by the record of which
/// process each is, and before there is one by the name that they carry, of processes that execute our
/// program as us. Their reuse a pidfd excludes, and an outcome on disk counts before anything else.
///
/// Not thread-safe. The owner waits for `descriptor` to become readable or for `next_deadline`, then calls
/// `pump`, which calls the listener.
class ShimSpawner final : public Spawner {
 public:
  static Result<std::unique_ptr<ShimSpawner>> open(ShimSpawnerOptions options, const Clock& clock,
                                                   ShimListener& listener);
  ~ShimSpawner() override;

  void start(SpawnRequest request) override;
  void go(const AttemptKey& key) override;
  void stop(const AttemptKey& key, const StopOrder& order) override;
  void adopt(const std::vector<AttemptKey>& keys) override;
  void set_max_runtime(const AttemptKey& key, Duration limit) override;
  void mark_contact(Duration age) override;
  std::vector<Preparation> preparing() override;
  std::vector<SavedWork> saved() override;
  bool owns(const AttemptKey& key, int64_t pid) override;
  void force_end(const AttemptKey& key) override;
  void replace_server() override;
  std::string image_digest(const AttemptKey& key) override;
  ShimProcess shim_of(const AttemptKey& key) override;

  /// The attempt may run so long: for its shim, which looks there. False: it has no folder yet.
  bool write_limit(const AttemptKey& key, Duration limit) const;

  int descriptor() const { return epoll_; }
  void pump();
  Time next_deadline() const;

  pid_t server_pid() const { return server_pid_; }

 private:
  /// An attempt whose end was not seen yet.
  struct Track {
    bool by_server = true;  ///< The living server is its shim's parent; else `pidfd` watches it.
    pid_t shim_pid = 0;
    ShimProcess shim = {};  ///< As it is on record; else any that is found may be it.
    int pidfd = -1;
    bool started = false;                  ///< on_shim_started was called.
    bool prepared = false;                 ///< on_shim_prepared was called.
    bool container = false;                ///< Its command is a container's runner.
    std::optional<StopOrder> stop_wanted;  ///< Ordered while its shim is being looked for.
    std::optional<Duration> limit_wanted;  ///< Ordered before its folder was there.
  };
  using Tracks = std::map<AttemptKey, Track>;

  ShimSpawner(ShimSpawnerOptions options, const Clock& clock, ShimListener& listener);
  Result<Unit> prepare();

  Result<Unit> start_server();
  void end_server();
  void on_server_gone();
  void queue_request(std::string packet);
  void send_requests();
  bool send_request(const std::string& packet);

  void take_events();
  void on_event(const shim::Event& event);
  void finish(Tracks::iterator track);

  void begin_search(Time now);
  void search(Time now);
  void conclude_search(const std::multimap<AttemptKey, pid_t>& shims, Time now);
  bool watch_one_of(const AttemptKey& key, Track& track, const std::multimap<AttemptKey, pid_t>& shims);
  void report_found(const AttemptKey& key, Track& track);
  void look_at_preparing(Time now);
  bool is_preparing(const AttemptKey& key) const;
  std::string file_of(const AttemptKey& key, const char* name) const;
  std::string hosts_entry(const SpawnRequest& request) const;
  bool is_prepared(const AttemptKey& key) const;
  bool container_gone(const AttemptKey& key);
  bool watch(const AttemptKey& key, Track& track, pid_t pid);
  void on_watched_end(const AttemptKey& key);
  void settle_without_shim(const AttemptKey& key, const std::string& detail, Time now);
  void purge(Time now);
  std::vector<pid_t> strays();
  void begun(const AttemptKey& key, Track& track);
  bool kill_groups(const AttemptKey& key) const;
  void remove_leftovers();

  std::optional<v1::Outcome> recorded_outcome(const AttemptKey& key) const;
  std::string title_of(const AttemptKey& key) const;

  const ShimSpawnerOptions options_;
  const Clock& clock_;
  ShimListener& listener_;
  int epoll_ = -1;
  int control_ = -1;        ///< Socket to the server; -1 while there is none.
  int events_ = -1;         ///< From servers and shims.
  int events_source_ = -1;  ///< The other end, given to each server.
  int contact_ = -1;
  pid_t server_pid_ = -1;
  rlimit files_given_ = {};  ///< The limit of open files that this process began with.
  Tracks tracks_;
  ProcessReader processes_;
  std::deque<std::string> requests_;
  Time search_told_;         ///< When it was said last that processes cannot be read.
  Time next_send_ = kNever;  ///< Requests that could not be sent for want of descriptors wait until then.

  /// Looking for running shims: two looks in a row that show no server and no unnamed shim make the second
  /// whole.
  bool searching_ = false;
  bool unknown_count_ =
      true;  ///< Shims that nobody asked for are reported: only after a restart of the agent.
  int clean_looks_ = 0;
  Time search_since_;
  Time next_look_ = kNever;

  /// Attempts without shim and outcome, whose processes are being killed.
  std::map<AttemptKey, std::string> purging_;
  Time next_purge_ = kNever;
  std::map<AttemptKey, Time> purging_since_;
  std::map<AttemptKey, pid_t> enders_;  ///< Processes that remove containers of such attempts.
  /// Shims found before their container ran: when it does is seen by looking.
  Time next_preparing_look_ = kNever;
  Duration purge_pause_;
};

}  // namespace gpusched
