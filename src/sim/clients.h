#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "engine/messages/commands.h"
#include "engine/policy/task_order.h"
#include "engine/testing/wild_fields.h"
#include "sim/context.h"
#include "sim/machine.h"
#include "sim/sim_host.h"

namespace gpusched::sim {

/// Wishes of this world's clients.
struct Demand {
  int64_t pause_ms = 300;       ///< Mean time between two calls.
  int32_t gpus_max = 4;         ///< No job wants more on one node.
  int32_t share_chance = 0;     ///< Jobs of 1,000 with one GPU that want a share of one.
  int32_t slice_chance = 0;     ///< Jobs of 1,000 with one GPU that want a MIG slice.
  int32_t gang_chance = 0;      ///< Jobs of 1,000 that have several members.
  int32_t wild_chance = 0;      ///< Calls of 1,000 that have fields drawn from all that their types can hold.
  bool changes_rules = false;   ///< Pools and aging change while jobs wait, and some jobs are interactive.
  bool moves_jobs = false;      ///< Tenants let their jobs be ended for others.
  bool keeps_limits = false;    ///< Tenants have limits and no guarantees, pools are strict.
  bool mixes_all = false;       ///< Beside moves there are gangs and shares, and all of a job is changed.
  int32_t external_chance = 0;  ///< Jobs of 1,000 that another program is to start.
  bool has_tasks = false;       ///< Most submissions are tasks of users.
  int64_t runtime_max_ms = 20'000;
  std::vector<std::string> models;
};

/// Knows the tasks that clients submit.
std::shared_ptr<const policy::TaskOrder> some_task_order(Prng prng);

/// People and programs that submit, repeat themselves, cancel, look and change quotas. Calls are late, get
/// lost with the scheduler, and are tried again when that is safe.
class Clients {
 public:
  Clients(Context& context, SimHost& host, Demand demand);

  void begin();
  /// Nothing new is asked for from now on.
  void stop();
  /// Lifts every quota.
  void lift_quotas();
  /// Releases every job that is held.
  void let_all_go();
  void cancel(JobId job);
  void cancel_reservations();
  /// True when no submission waits for its answer or its next try.
  bool settled() const { return open_ == 0 && calls_ == 0; }
  uint64_t submissions() const { return next_submission_ - 1; }

 private:
  struct Submission;
  using Answer = std::function<void(const Result<Decided>&)>;

  void act_later();
  void act();
  void call(Command command, std::function<void()> reached, Answer decided,
            std::function<void(bool lost)> done);
  void submit_something();
  static void make_bulky(SubmitJobs& command, uint64_t number);
  void send(const std::shared_ptr<Submission>& submission);
  void again(const std::shared_ptr<Submission>& submission);
  void after_acceptance(const std::shared_ptr<Submission>& submission);
  void try_conflict(const std::shared_ptr<Submission>& submission);
  void key_something();
  void create_key();
  void identify_something();
  void create_node_ticket(const std::string& node);
  void try_anothers_key(const std::shared_ptr<Submission>& submission);
  JobRequest some_job(const std::string& tag);
  std::vector<Part> some_gang(Part part);
  void label_something();
  void create_tenant();
  void reserve_something();
  void update_tenant();
  void change_rules();
  void make_tasks(SubmitJobs& command, uint64_t number) const;
  void make_interactive(SubmitJobs& command, uint64_t number) const;
  void ask_for_time(SubmitJobs& command, uint64_t number) const;
  void name_reservation(SubmitJobs& command) const;
  void keep_for_somebody(MakeBooking& command) const;
  void delete_tenant();
  void cancel_something();
  void control_something();
  void look_at_something();
  void explain_something();
  /// Something about a job in any state, or an element that is no job yet.
  JobId some_job_of_any_kind();
  Command some_update(JobId job);
  Command any_update(JobId job) const;
  /// The command, or a wild one in its place.
  Command maybe_wild(Command command);
  JobFlow some_flow(std::size_t index);
  TenantId some_tenant();
  Limits some_limits();
  Amount some_guarantee();

  Context& context_;
  SimHost& host_;
  const Demand demand_;
  bool stopped_ = false;
  int open_ = 0;
  int calls_ = 0;  ///< Not answered and not given up yet.
  uint64_t next_submission_ = 1;
  uint64_t next_tenant_ = 1;
  uint64_t next_key_ = 1;
  uint64_t next_node_ticket_ = 1;
  uint64_t rule_changes_ = 0;
  testing::WildFields wild_;
  std::vector<TenantId> tenants_ = {kDefaultTenant};
  std::vector<JobId> jobs_;                                         ///< Acknowledged jobs.
  std::vector<KeyId> keys_;                                         ///< Acknowledged keys.
  std::vector<std::pair<NodeTicketId, std::string>> node_tickets_;  ///< Acknowledged, with their nodes.
  std::vector<JobId> elements_;                                     ///< Some elements of arrays.
};

}  // namespace gpusched::sim
