// Runs every tests/scenarios/**/*.scn: one test a file. The format is in tests/scenarios/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/limits.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"
#include "forecast/moves.h"
#include "scenario_line.h"

namespace gpusched {
namespace {

using Words = std::vector<std::string>;

class Scenario {
 public:
  void run(const Line& line) {
    static const std::map<std::string, std::string (Scenario::*)(const Line&)> kVerbs = {
        {"node", &Scenario::node},           {"reboot", &Scenario::reboot},
        {"reconnect", &Scenario::reconnect}, {"tenant", &Scenario::tenant},
        {"quota", &Scenario::quota},         {"delete-tenant", &Scenario::delete_tenant},
        {"submit", &Scenario::submit},       {"cancel", &Scenario::cancel},
        {"cycle", &Scenario::cycle},         {"explain", &Scenario::explain},
        {"started", &Scenario::started},     {"ended", &Scenario::ended},
        {"released", &Scenario::released},   {"still-busy", &Scenario::still_busy},
        {"node-lost", &Scenario::lost},      {"node-back", &Scenario::back},
        {"confirm-dead", &Scenario::dead},   {"condition", &Scenario::condition},
        {"advance", &Scenario::advance},     {"state", &Scenario::state},
        {"device", &Scenario::device},       {"config", &Scenario::config},
        {"book", &Scenario::book},           {"unbook", &Scenario::unbook},
        {"hold", &Scenario::hold},           {"release", &Scenario::release},
        {"update", &Scenario::update},       {"submit-all", &Scenario::submit_all},
        {"array", &Scenario::array},         {"promise", &Scenario::promise},
        {"preempted", &Scenario::preempted}, {"saved", &Scenario::saved},
        {"drain", &Scenario::drain},         {"reclaimed", &Scenario::reclaimed},
        {"heat", &Scenario::heat},           {"label", &Scenario::label},
        {"fault", &Scenario::fault},         {"watch", &Scenario::watch},
        {"suspect", &Scenario::suspect},     {"service", &Scenario::service},
        {"moves", &Scenario::moves},         {"move", &Scenario::move},
        {"moved", &Scenario::moved},
    };
    const auto verb = kVerbs.find(line.verb);
    ASSERT_NE(verb, kVerbs.end()) << "no such verb: " << line.verb;
    const std::string got = (this->*verb->second)(line);
    for (const std::string& word : line.unknown())
      ADD_FAILURE() << line.verb << " knows no such word: " << word;
    engine_.settle();
    if (line.verb == "explain") {
      EXPECT_EQ(got.substr(0, line.expected.size()), line.expected) << "in full: " << got;
    } else if (!line.expected.empty()) {
      EXPECT_EQ(got, line.expected);
    } else {
      EXPECT_NE(got.substr(0, 8), "rejected") << got;
    }
  }

 private:
  static std::string answer(const Applied& applied) {
    if (applied.rejection) return "rejected " + std::string(to_string(applied.rejection->code));
    return applied.repeated ? "repeated" : "accepted";
  }
  /// "a", or "a[3]" for an element of an array by its index.
  JobId job(const Line& line) const {
    const std::size_t bracket = line.name.find('[');
    const auto it = jobs_.find(line.name.substr(0, bracket));
    if (it != jobs_.end() && bracket != std::string::npos) {
      const JobArray* array = engine_.state().find_array(it->second);
      EXPECT_NE(array, nullptr) << "no array " << line.name;
      const auto position =
          array->position_of_index(std::strtol(line.name.c_str() + bracket + 1, nullptr, 10));
      EXPECT_TRUE(position.has_value()) << "no element " << line.name;
      return position ? array->element(*position) : JobId{};
    }
    EXPECT_NE(it, jobs_.end()) << "no job " << line.name;
    return it == jobs_.end() ? JobId{} : it->second;
  }
  NodeId node_id(const std::string& name) const {
    const Node* found = engine_.state().find_node_named(name);
    EXPECT_NE(found, nullptr) << "no node " << name;
    return found == nullptr ? NodeId{} : found->id;
  }
  TenantId tenant_id(const std::string& name) const {
    const Tenant* found = engine_.state().find_tenant_named(name);
    return found == nullptr ? TenantId{999'999} : found->id;
  }
  /// "n1[2]"
  std::pair<NodeId, uint32_t> device_of(const std::string& text) const {
    const std::size_t bracket = text.find('[');
    return {node_id(text.substr(0, bracket)),
            static_cast<uint32_t>(std::strtoul(text.c_str() + bracket + 1, nullptr, 10))};
  }

  std::string node(const Line& line) {
    testing::Shape shape;
    shape.gpus = static_cast<int>(line.number("gpus"));
    shape.model = line.text("model", shape.model);
    shape.gpu_memory_mb = line.number("gpu_mem", shape.gpu_memory_mb);
    shape.cpu_milli = line.number("cpus", 64) * 1000;
    shape.memory_mb = line.number("mem", shape.memory_mb);
    for (const LabelTerm& term : terms_of(line.text("labels")))
      shape.labels.push_back({.name = term.name, .value = term.value});
    for (const Label& label : labels_of(line)) shape.labels.push_back(label);
    std::sort(shape.labels.begin(), shape.labels.end(),
              [](const Label& a, const Label& b) { return a.name < b.name; });
    for (const int64_t size : numbers_of(line.text("islands")))
      shape.islands.push_back(static_cast<int>(size));
    shape.numa_size = static_cast<int>(line.number("numa"));
    shape.mig = static_cast<int>(line.number("mig"));
    shapes_[line.name] = shape;
    RegisterNode offer = testing::registration_of(line.name, shape);
    if (line.has("external")) offer.features = {"external"};
    return answer(engine_.apply(offer));
  }
  /// Those of `rack=` and so on, sorted by name.
  static std::vector<Label> labels_of(const Line& line) {
    std::vector<Label> labels;
    for (const char* level : {"block", "rack", "zone"}) {
      if (line.has(level))
        labels.push_back({.name = std::string("topology.") + level, .value = line.text(level)});
    }
    return labels;
  }
  std::string label(const Line& line) {
    LabelNode command{.node = node_id(line.name), .set = labels_of(line), .remove = {}};
    for (const LabelTerm& term : terms_of(line.text("set")))
      command.set.push_back({.name = term.name, .value = term.value});
    for (const LabelTerm& term : terms_of(line.text("remove"))) command.remove.push_back(term.name);
    return answer(engine_.apply(command));
  }
  std::string reboot(const Line& line) {
    const std::string boot = "boot-" + std::to_string(++boots_ + 1);
    boot_of_[line.name] = boot;
    engine_.apply(NodeLeaseLost{.node = node_id(line.name)});  // Booting takes longer than its lease.
    return answer(engine_.apply(testing::registration_of(line.name, shapes_[line.name], boot)));
  }
  /// The agent restarted: it knows what its node runs, or with `forgot` nothing.
  std::string reconnect(const Line& line) {
    const std::string boot = boot_of_.contains(line.name) ? boot_of_[line.name] : "boot-1";
    RegisterNode offer = testing::registration_of(line.name, shapes_[line.name], boot);
    for (const AttemptKey& key : engine_.node(node_id(line.name)).attempts) {
      if (!line.has("forgot")) offer.attempts.push_back({.job = key.job, .attempt = key.attempt});
    }
    return answer(engine_.apply(offer));
  }
  static Limits limits_of(const Line& line) {
    Limits limits;
    if (line.has("gpus_max")) limits.set(Resource::kGpus, line.number("gpus_max"));
    if (line.has("gpu_mem_max")) limits.set(Resource::kGpuMemory, line.number("gpu_mem_max"));
    if (line.has("cpus_max")) limits.set(Resource::kCpu, line.number("cpus_max") * 1000);
    if (line.has("mem_max")) limits.set(Resource::kMemory, line.number("mem_max"));
    if (line.has("jobs_max")) limits.set(Resource::kJobs, line.number("jobs_max"));
    if (line.has("waiting_max")) limits.waiting_max = line.number("waiting_max");
    if (line.has("waiting_soft")) limits.soft_waiting_max = line.number("waiting_soft");
    return limits;
  }
  static Amount guarantee_of(const Line& line) {
    return {.gpus = line.number("guarantee_gpus"),
            .gpu_memory_mb = line.number("guarantee_gpu_mem"),
            .cpu_milli = line.number("guarantee_cpus") * 1000,
            .memory_mb = line.number("guarantee_mem"),
            .jobs = line.number("guarantee_jobs")};
  }
  static int64_t gpu_ms_of(const Line& line) { return line.number("gpu_hours") * 3'600'000; }
  std::string tenant(const Line& line) {
    CreateTenant command{.name = line.name, .limits = limits_of(line)};
    command.guarantee = guarantee_of(line);
    if (line.has("window")) command.gpu_time_window = duration_of(line.text("window"));
    command.gpu_time_max_ms = gpu_ms_of(line);
    command.priority_tier = static_cast<int32_t>(line.number("tier", command.priority_tier));
    command.weight_milli = line.number("weight", 1) * 1000;
    command.allow_preemption = line.has("preemptible");
    command.can_preempt_others = line.has("preempts");
    if (line.has("parent")) command.parent = tenant_id(line.text("parent"));
    return answer(engine_.apply(command));
  }
  std::string quota(const Line& line) {
    UpdateTenant command{
        .tenant = tenant_id(line.name), .limits = limits_of(line), .guarantee = guarantee_of(line)};
    using Flag = std::pair<const char*, uint32_t>;
    for (const auto& [option, field] : {Flag("guarantee_gpus", kTenantGuaranteeGpus),
                                        {"guarantee_gpu_mem", kTenantGuaranteeGpuMemory},
                                        {"guarantee_cpus", kTenantGuaranteeCpu},
                                        {"guarantee_mem", kTenantGuaranteeMemory},
                                        {"guarantee_jobs", kTenantGuaranteeJobs},
                                        {"window", kTenantGpuTimeWindow},
                                        {"gpu_hours", kTenantGpuTimeMax},
                                        {"weight", kTenantWeight},
                                        {"tier", kTenantPriorityTier},
                                        {"gpus_max", kTenantMaxGpus},
                                        {"cpus_max", kTenantMaxCpu},
                                        {"mem_max", kTenantMaxMemory},
                                        {"jobs_max", kTenantMaxJobs},
                                        {"waiting_max", kTenantWaiting},
                                        {"no_waiting_max", kTenantWaiting},
                                        {"waiting_soft", kTenantSoftWaiting}}) {
      if (line.has(option)) command.given |= field;
    }
    if (line.has("window")) command.gpu_time_window = duration_of(line.text("window"));
    command.gpu_time_max_ms = gpu_ms_of(line);
    command.weight_milli = line.number("weight") * 1000;
    command.priority_tier = static_cast<int32_t>(line.number("tier"));
    return answer(engine_.apply(command));
  }
  std::string delete_tenant(const Line& line) {
    return answer(engine_.apply(DeleteTenant{.tenant = tenant_id(line.name)}));
  }
  /// "a:ok,b:any,c:start"; "@0:ok" is the first job of the submission.
  std::vector<Dependency> dependencies_of(const std::string& text) const {
    static const std::map<std::string, DependencyKind> kKinds = {{"ok", DependencyKind::kAfterOk},
                                                                 {"any", DependencyKind::kAfterAny},
                                                                 {"start", DependencyKind::kAfterStart}};
    std::vector<Dependency> out;
    std::istringstream words(text);
    std::string word;
    while (std::getline(words, word, ',')) {
      const std::size_t colon = word.find(':');
      const std::string name = word.substr(0, colon);
      Dependency& one = out.emplace_back();
      if (colon != std::string::npos) one.kind = kKinds.at(word.substr(colon + 1));
      if (name.starts_with('@')) {
        one.index = static_cast<uint32_t>(std::strtoul(name.c_str() + 1, nullptr, 10));
      } else {
        one.parent =
            jobs_.contains(name.substr(0, name.find('['))) ? job(Line{.name = name}) : JobId{999'999};
      }
    }
    return out;
  }
  std::vector<JobFlow> flow_of(const Line& line) const {
    if (!line.has("begin") && !line.has("deadline") && !line.has("after") && !line.has("array")) return {};
    JobFlow flow;
    if (line.has("begin")) flow.begin_after = duration_of(line.text("begin"));
    if (line.has("deadline")) flow.deadline_after = duration_of(line.text("deadline"));
    if (line.has("after")) flow.dependencies = dependencies_of(line.text("after"));
    if (line.has("array")) {  // "0-9", "0-9:2", and "%2" behind it.
      const std::string text = line.text("array");
      IndexRange range;
      std::sscanf(text.c_str(), "%ld-%ld:%ld", &range.first, &range.last, &range.step);
      flow.array = {range};
      const std::size_t percent = text.find('%');
      if (percent != std::string::npos)
        flow.array_at_once = std::strtol(text.c_str() + percent + 1, nullptr, 10);
    }
    if (line.has("or_wait")) flow.on_parent_failure = OnParentFailure::kWait;
    return {flow};
  }
  /// "exit,signal,oom,over_limit,timeout", and exit codes alone.
  static void add_retry_causes(const std::string& text, RetryPolicy& retry) {
    static const std::map<std::string, uint32_t> kCauses = {{"exit", kRetryExit},
                                                            {"signal", kRetrySignal},
                                                            {"oom", kRetryOutOfMemory},
                                                            {"over_limit", kRetryOverLimit},
                                                            {"timeout", kRetryTimeout}};
    std::istringstream words(text);
    std::string word;
    std::string codes;
    while (std::getline(words, word, ',')) {
      const auto cause = kCauses.find(word);
      if (cause == kCauses.end()) codes += static_cast<char>(std::strtol(word.c_str(), nullptr, 10));
      retry.causes |= cause == kCauses.end() ? kRetryExit : cause->second;
    }
    retry.exit_codes = Blob(codes);
  }
  static std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) out.push_back(word);
    return out;
  }
  /// "zone:eu,ssd"
  static std::vector<LabelTerm> terms_of(const std::string& text) {
    std::vector<LabelTerm> terms;
    for (const std::string& word : words_of(text)) {
      const std::size_t colon = word.find(':');
      const bool any = colon == std::string::npos;
      terms.push_back(
          {.name = word.substr(0, colon), .value = any ? "" : word.substr(colon + 1), .any_value = any});
    }
    return terms;
  }
  static std::vector<PlaceRequest> place_of(const Line& line) {
    PlaceRequest place;
    place.labels = terms_of(line.text("with"));
    place.without_labels = terms_of(line.text("without"));
    place.gpu_models = words_of(line.text("models"));
    place.exclusive = line.has("exclusive");
    if (line.text("layout") == "spread") place.layout = Layout::kSpread;
    if (line.text("layout") == "contiguous") place.layout = Layout::kContiguous;
    for (const int64_t index : numbers_of(line.text("ids"))) place.device_mask |= uint64_t{1} << index;
    place.device_uuids = words_of(line.text("uuids"));
    place.bandwidth_min = line.number("bandwidth");
    if (place == PlaceRequest{}) return {};
    return {place};
  }
  /// The words of a job, as `submit` has them.
  testing::Want want_of(const Line& line) const {
    testing::Want want;
    want.gpus = static_cast<int32_t>(line.number("gpus"));
    want.gpu_milli = static_cast<int32_t>(line.number("share"));
    want.gpu_share_mb = line.number("share_mem");
    if (want.gpu_milli > 0) want.gpus = std::max(want.gpus, 1);
    want.cpu_milli = static_cast<int32_t>(line.number("cpus") * 1000);
    want.memory_mb = line.number("mem");
    want.gpu_memory_mb = line.number("gpu_mem");
    want.model = line.text("model");
    want.priority = static_cast<int32_t>(line.number("priority"));
    if (line.has("tenant")) want.tenant = tenant_id(line.text("tenant"));
    want.retry.exit_code_retries = static_cast<int32_t>(line.number("retries"));
    want.retry.system_retries = static_cast<int32_t>(line.number("system_retries"));
    want.retry.overlap_allowed = line.has("overlap");
    if (line.has("kill_after")) want.retry.kill_after_lost_contact = duration_of(line.text("kill_after"));
    if (line.has("time")) want.max_runtime = duration_of(line.text("time"));
    want.require_feasible = line.has("feasible");
    if (line.has("external")) want.features |= kFeatureExternal;
    want.preemption_exempt = line.has("exempt");
    want.work = work_named(line.text("class"));
    if (line.has("cancel_when_preempted")) want.preemption_mode = PreemptionMode::kCancel;
    want.interactive = line.has("now");
    want.preempt_grace = duration_of(line.text("grace", "0s"));
    want.held = line.has("held");
    want.task_type = line.text("task");
    want.booking = line.text("reservation");
    if (line.has("retry_on")) add_retry_causes(line.text("retry_on"), want.retry);
    want.flow = flow_of(line);
    want.members = static_cast<int32_t>(line.number("members", 1));
    want.members_max = static_cast<int32_t>(line.number("members_max"));
    want.one_member_per_node = line.has("one_member_per_node");
    want.may_span_nodes = line.has("may_span_nodes");
    want.leader_gpus = static_cast<int32_t>(line.number("leader_gpus", -1));
    want.domain_required = line.has("required");
    for (const DomainLevel level :
         {DomainLevel::kNode, DomainLevel::kRack, DomainLevel::kBlock, DomainLevel::kZone}) {
      if (line.text("domain") == to_string(level)) want.domain = level;
    }
    want.place = place_of(line);
    want.mig = line.text("mig");
    return want;
  }
  /// A task of an agent's user, or any other job.
  Applied submitted(const Line& line) {
    const testing::Want want = want_of(line);
    if (!line.has("agent")) return engine_.try_submit(want, line.text("key"), line.text("user"));
    JobRequest request = request_of(want);
    request.spec =
        testing::task_spec(line.text("agent"), line.number("cost", 1), line.number("weight", 1) * 1'000);
    return engine_.apply(SubmitJobs{.tenant = want.tenant, .jobs = {request}});
  }
  std::string submit(const Line& line) {
    const Applied applied = submitted(line);
    if (!applied.rejection) {
      jobs_[line.name] = JobId{applied.first_id};
      names_[JobId{applied.first_id}] = line.name;
    }
    std::string text = answer(applied);
    // "rejected rate_exceeded, again in 5s"; when may be left out.
    if (applied.rejection && line.expected.find(", again") != std::string::npos)
      text += ", again in " + std::to_string(applied.rejection->retry_after.ms() / 1000) + "s";
    return text;
  }
  /// One submission of several jobs: each is "gpus=1" or the like but named by "jobs=a,b,c"; "after.b=@0:ok".
  std::string submit_all(const Line& line) {
    SubmitJobs command{.tenant = line.has("tenant") ? tenant_id(line.text("tenant")) : kDefaultTenant};
    std::vector<std::string> names;
    std::istringstream words(line.text("jobs"));
    for (std::string name; std::getline(words, name, ',');) {
      Line one = line;
      one.options.erase("after");
      if (line.has("after." + name)) one.options["after"] = line.text("after." + name);
      command.jobs.push_back(request_of(want_of(one)));
      names.push_back(name);
    }
    const Applied applied = engine_.apply(command);
    for (std::size_t i = 0; i < names.size() && !applied.rejection; ++i) {
      jobs_[names[i]] = JobId{applied.first_id + i};
      names_[JobId{applied.first_id + i}] = names[i];
    }
    return answer(applied);
  }
  std::string book(const Line& line) {
    MakeBooking make{.name = line.name,
                     .tenant = line.has("tenant") ? tenant_id(line.text("tenant")) : TenantId{},
                     .begin_after = line.has("begin") ? duration_of(line.text("begin")) : Duration{},
                     .length = duration_of(line.text("length")),
                     .every = line.has("every") ? duration_of(line.text("every")) : Duration{}};
    std::istringstream users(line.text("users"));
    for (std::string user; std::getline(users, user, ',');) make.users.push_back(user);
    std::istringstream nodes(line.text("nodes"));
    for (std::string name; std::getline(nodes, name, ',');) {
      const Node* node = engine_.state().find_node_named(name);
      make.nodes.push_back(node != nullptr ? node->id : NodeId{404});
    }
    return answer(engine_.apply(make));
  }
  std::string unbook(const Line& line) {
    const Booking* booking = engine_.state().find_booking_named(line.name);
    return answer(engine_.apply(CancelBooking{.booking = booking != nullptr ? booking->id : BookingId{}}));
  }
  std::string hold(const Line& line) {
    return answer(engine_.apply(HoldJob{.job = job(line), .held = true}));
  }
  std::string release(const Line& line) {
    return answer(engine_.apply(HoldJob{.job = job(line), .held = false}));
  }
  std::string update(const Line& line) {
    UpdateJob command{.job = job(line)};
    if (line.has("priority")) command.given |= kJobPriority;
    command.priority = static_cast<int32_t>(line.number("priority"));
    if (line.has("begin")) command.given |= kJobBegin;
    if (line.has("begin")) command.begin_after = duration_of(line.text("begin"));
    if (line.has("deadline")) command.given |= kJobDeadline;
    if (line.has("deadline")) command.deadline_after = duration_of(line.text("deadline"));
    if (line.has("time")) command.given |= kJobMaxRuntime;
    if (line.has("time")) command.max_runtime = duration_of(line.text("time"));
    command.may_raise = line.has("operator");
    if (line.has("gpus") || line.has("cpus") || line.has("mem")) {
      command.given |= kJobParts;
      command.parts = request_of(want_of(line)).parts;
    }
    return answer(engine_.apply(command));
  }
  std::string cancel(const Line& line) {
    CancelJob command{.job = job(line)};
    if (line.has("tenant")) command.tenant = tenant_id(line.text("tenant"));
    return answer(engine_.apply(command));
  }
  std::string name_of(JobId id) const {
    const Job& placed = engine_.job(id);
    if (!placed.is_element()) return names_.at(id);
    const JobArray* array = engine_.state().find_array(placed.array);
    return names_.at(placed.array) + "[" + std::to_string(array->index_at(array->position_of(id))) + "]";
  }
  /// "waiting=8 running=2 completed=0 failed=0 cancelled=0 records=2"
  std::string array(const Line& line) {
    const JobArray* found = engine_.state().find_array(job(line));
    if (found == nullptr) return "forgotten";
    const auto number = [](int64_t value) { return std::to_string(value); };
    return "waiting=" + number(found->unexpanded() + found->waiting) +
           " running=" + number(static_cast<int64_t>(found->live.size()) - found->waiting) +
           " completed=" + number(found->completed) + " failed=" + number(found->failed) +
           " cancelled=" + number(found->cancelled) + " records=" + number(found->records);
  }
  std::string cycle(const Line&) {
    std::string placed;
    std::string preempted;
    for (const PlanGroup& group : engine_.cycle()) {
      std::string& text = group.preemptions.empty() ? placed : preempted;
      if (!group.preemptions.empty()) {
        text += text.empty() ? "preempt" : ", preempt";
        for (const Preemption& victim : group.preemptions) text += " " + name_of(victim.job);
        text += " for";
      }
      text += " " + name_of(group.job);
      const Job* job = engine_.state().jobs.find(group.job);
      const bool slice = job != nullptr && engine_.state().class_of(*job).parts.front().is_slice();
      for (const MemberPlacement& member : group.members) {
        text += " " + place_text(engine_.node(member.node).name, member.device_mask);
        if (slice) text += "@" + std::to_string(member.mig_start);
      }
    }
    if (placed.empty()) return preempted.empty() ? "nothing" : preempted;
    return "place" + placed + (preempted.empty() ? "" : "; " + preempted);
  }
  /// The promise that is kept for the job, or "none".
  std::string promise(const Line& line) {
    const Promise* kept = engine_.state().find_promise(job(line));
    if (kept == nullptr) return "none";
    return place_text(engine_.node(kept->members[0].node).name, kept->members[0].device_mask);
  }
  forecast::MovePlan move_plan(const Line& line, JobId only) {
    forecast::World world(engine_.state().clone_unfinished(), policy::default_policies(), engine_.now());
    forecast::Work work{.left = limits::kMoveWorkMax};
    world.settle(work);
    forecast::MoveOptions options{.only = only};
    options.moves_max = static_cast<std::size_t>(line.number("max", 4));
    return plan_moves(world, options, work);
  }
  /// "big to n1[0-3]: small n1[0-1] to n2[2-3], lost 120; starts big", "; " between several, or why none.
  std::string moves(const Line& line) {
    const forecast::MovePlan plan = move_plan(line, line.name.empty() ? JobId{} : job(line));
    std::string text;
    for (const forecast::MoveProposal& proposal : plan.proposals) {
      const MemberPlacement& gets = proposal.command.groups.front().members.front();
      text += (text.empty() ? "" : "; ") + names_.at(proposal.job()) + " to " +
              place_text(engine_.node(gets.node).name, gets.device_mask) + ":";
      for (const forecast::Move& move : proposal.moves) {
        text += " " + names_.at(move.job) + " " + place_text(engine_.node(move.from).name, move.from_mask) +
                " to " + place_text(engine_.node(move.to).name, move.to_mask);
      }
      text += ", lost " + std::to_string(proposal.price.lost_gpu_ms / 1000) + ", starts";
      for (const JobId starts : proposal.starts) text += " " + names_.at(starts);
    }
    if (!text.empty()) return text;
    return plan.unmoved.empty() ? "none" : "none: " + describe(engine_.state(), plan.unmoved.front());
  }
  /// Carries out the moves for the job.
  std::string move(const Line& line) {
    forecast::MovePlan plan = move_plan(line, job(line));
    if (plan.proposals.empty()) return "none";
    MoveJobs command = plan.proposals.front().command;
    command.by = line.text("by", "operator");
    command.why = line.text("why");
    return answer(engine_.apply(command));
  }
  std::string moved(const Line& line) {
    return std::string(engine_.job(job(line)).extras->move_detail.view());
  }
  std::string preempted(const Line& line) {
    return std::to_string(engine_.job(job(line)).extras->preempt_count);
  }
  std::string reclaimed(const Line& line) {
    const Tenant* tenant = engine_.state().find_tenant_named(line.name);
    return std::to_string(tenant->reclaims) + " " + std::to_string(tenant->reclaim_ms_max / 1000) + "s";
  }
  std::string saved(const Line& line) {
    const Job& saver = engine_.job(job(line));
    return answer(engine_.apply(CheckpointSaved{.job = saver.id,
                                                .attempt = saver.attempt_count,
                                                .node = saver.node,
                                                .age = duration_of(line.text("age", "0s"))}));
  }
  std::string drain(const Line& line) {
    return answer(engine_.apply(
        SetNodeAvailability{.node = node_id(line.name),
                            .to = line.has("over") ? Availability::kInService : Availability::kDraining,
                            .by = "operator",
                            .reason = "a test"}));
  }
  std::string explain(const Line& line) {
    const Job& asked = engine_.job(job(line));
    if (const Promise* kept = engine_.state().find_promise(asked.id))
      return "waits: " + describe(promise_facts(engine_.state(), *kept));
    if (!asked.is_queued()) return "does not wait in line: " + std::string(to_string(asked.reason));
    const WaitReason& reason = engine_.planner().reason(asked.job_class);
    std::string text = "waits: " + describe(reason);
    std::string separator = "; lifted by ";
    for (const std::string& event : lifted_by(reason)) {
      text += separator + event;
      separator = ", ";
    }
    return text;
  }
  std::string started(const Line& line) { return answer(engine_.started(job(line))); }
  std::string ended(const Line& line) {
    static const std::map<std::string, EndCause> kCauses = {
        {"start_failed", EndCause::kStartFailed},  {"timeout", EndCause::kTimeout},
        {"stopped", EndCause::kStopped},           {"shim_lost", EndCause::kShimLost},
        {"out_of_memory", EndCause::kOutOfMemory}, {"device_fault", EndCause::kDeviceFault},
        {"not_started", EndCause::kNotStarted},
    };
    Outcome outcome = testing::exited(static_cast<int32_t>(line.number("exit")));
    if (line.has("signal")) {
      outcome = {
          .cause = EndCause::kSignaled, .signal = static_cast<int32_t>(line.number("signal")), .detail = {}};
    }
    if (line.has("cause")) outcome = {.cause = kCauses.at(line.text("cause")), .detail = {}};
    return answer(engine_.ended(job(line), outcome));
  }
  std::string released(const Line& line) {
    const auto [id, index] = device_of(line.name);
    return answer(engine_.apply(DeviceReleased{.node = id,
                                               .device = index,
                                               .generation = engine_.device(id, index).generation,
                                               .share_of = share_of(line)}));
  }
  std::string still_busy(const Line& line) {
    const auto [id, index] = device_of(line.name);
    return answer(engine_.apply(DeviceStillBusy{.node = id,
                                                .device = index,
                                                .generation = engine_.device(id, index).generation,
                                                .evidence = "a process is on it",
                                                .share_of = share_of(line)}));
  }
  /// The last attempt of the job that is named, or nobody's: the whole device.
  AttemptKey share_of(const Line& line) const {
    if (!line.has("share")) return {};
    const JobId job = jobs_.at(line.text("share"));
    return {.job = job, .attempt = engine_.job(job).attempt_count, .member = 0};
  }
  std::string lost(const Line& line) {
    return answer(engine_.apply(NodeLeaseLost{.node = node_id(line.name)}));
  }
  std::string back(const Line& line) {
    return answer(engine_.apply(NodeLeaseBack{.node = node_id(line.name)}));
  }
  std::string dead(const Line& line) {
    return answer(engine_.apply(ConfirmNodeDead{.node = node_id(line.name)}));
  }
  std::string condition(const Line& line) {
    const auto [id, index] = device_of(line.name);
    const DeviceCondition to = line.has("unhealthy") ? DeviceCondition::kUnhealthy
                               : line.has("missing") ? DeviceCondition::kMissing
                                                     : DeviceCondition::kOk;
    return answer(engine_.apply(SetDeviceCondition{.node = id,
                                                   .device = index,
                                                   .condition = to,
                                                   .detail = {},
                                                   .by_operator = line.has("operator"),
                                                   .lasting = line.has("lasting")}));
  }
  std::string heat(const Line& line) {
    const auto [id, index] = device_of(line.name);
    const bool hot = !line.has("cooled");
    return answer(engine_.apply(NoteDeviceHeat{
        .node = id, .device = index, .hot = hot, .detail = hot ? "82 C, threshold 75 C" : ""}));
  }
  /// Its node's word on a device.
  std::string fault(const Line& line) {
    const auto [id, index] = device_of(line.name);
    static const std::map<std::string, FaultClass> kClasses = {{"none", FaultClass::kNone},
                                                               {"note", FaultClass::kNote},
                                                               {"drain", FaultClass::kDrain},
                                                               {"reset", FaultClass::kReset},
                                                               {"replace", FaultClass::kReplace}};
    const FaultClass to = kClasses.at(line.text("class"));
    return answer(engine_.apply(NoteDeviceFault{.node = id,
                                                .device = index,
                                                .fault = to,
                                                .code = line.text("code"),
                                                .detail = {},
                                                .id = line.number("id")}));
  }
  std::string watch(const Line& line) {
    static const std::map<std::string, WatchdogFinding> kKinds = {
        {"none", WatchdogFinding::kNone}, {"idle", WatchdogFinding::kIdle}, {"hung", WatchdogFinding::kHung}};
    static const std::map<std::string, WatchAction> kActions = {
        {"warn", WatchAction::kWarn}, {"requeue", WatchAction::kRequeue}, {"cancel", WatchAction::kCancel}};
    const Job* found = engine_.state().jobs.find(job(line));
    return answer(engine_.apply(ReportWatchdogFinding{.job = job(line),
                                                      .attempt = found == nullptr ? 0 : found->attempt_count,
                                                      .kind = kKinds.at(line.text("kind")),
                                                      .detail = "seen",
                                                      .age = duration_of(line.text("age", "0s")),
                                                      .action = kActions.at(line.text("action", "warn"))}));
  }
  /// Why an operator should look at the node.
  std::string suspect(const Line& line) {
    const std::string& why = engine_.node(node_id(line.name)).suspect_detail;
    return why.empty() ? "no" : why;
  }
  /// Whether the node takes new work, and who said so.
  std::string service(const Line& line) {
    const Node& found = engine_.node(node_id(line.name));
    static const std::map<Availability, std::string> kWords = {{Availability::kInService, "in service"},
                                                               {Availability::kValidating, "validating"},
                                                               {Availability::kDraining, "draining"}};
    return kWords.at(found.availability) +
           (found.availability_by.empty() ? "" : " by " + found.availability_by);
  }
  std::string advance(const Line& line) { return engine_.advance(duration_of(line.name)), ""; }
  /// "failed exit_code"; the reason may be left out.
  std::string state(const Line& line) {
    const Job* found = engine_.state().jobs.find(job(line));
    if (found == nullptr && !engine_.state().has_ended(job(line))) return "unexpanded";
    if (found == nullptr) return "forgotten";
    std::string text(to_string(found->state));
    if (line.expected.find(' ') != std::string::npos) text += " " + std::string(to_string(found->reason));
    return text;
  }
  std::string device(const Line& line) {
    const auto [id, index] = device_of(line.name);
    return std::string(to_string(engine_.device(id, index).state));
  }
  std::string config(const Line& line) {
    EngineConfig config = engine_.state().config;
    config.queue_size_max = line.number("queue_size", config.queue_size_max);
    config.finished_jobs_max = line.number("finished_jobs", config.finished_jobs_max);
    config.aging_per_hour = line.number("aging", config.aging_per_hour);
    config.feature_level = kFeatureLevel;
    config.auto_drain_percent = line.number("auto_drain", config.auto_drain_percent);
    config.use_half_life = line.has("half_life") ? duration_of(line.text("half_life")) : config.use_half_life;
    config.policy.queue_order = line.text("order", config.policy.queue_order);
    config.pools.online_milli = line.number("online", config.pools.online_milli / 10) * 10;
    config.pools.batch_milli = line.number("batch", config.pools.batch_milli / 10) * 10;
    if (line.name == "set")
      return answer(engine_.apply(SetPools{config.pools.online_milli, config.pools.batch_milli, "op"}));
    config.pools.lend = line.has("pools") ? line.text("pools") == "lending" : config.pools.lend;
    if (line.has("reservations")) config.policy.reservations = line.number("reservations");
    AdmissionPolicy& admission = config.admission;
    admission.rate_milli = line.number("rate", admission.rate_milli / 1000) * 1000;
    admission.burst = line.number("burst", admission.burst);
    admission.daily = line.number("daily", admission.daily);
    admission.soft_queue = line.number("soft_queue", admission.soft_queue);
    admission.throttled_milli = line.number("throttled", admission.throttled_milli / 1000) * 1000;
    if (line.has("llm_costs")) admission.costs = {{.type = "llm", .tokens = line.number("llm_costs")}};
    config.policy.job_order = line.text("job_order", config.policy.job_order);
    config.policy.placement = line.text("placement", config.policy.placement);
    if (line.has("levels")) config.policy.attained_levels = numbers_of(line.text("levels"));
    if (line.has("overtaking")) config.policy.overtaking = duration_of(line.text("overtaking"));
    if (line.has("preempt_by_attained")) config.policy.preempt_by_attained = true;
    config.interactive_gpus_max = line.number("now_gpus", config.interactive_gpus_max);
    if (line.has("now_time")) config.interactive_runtime_max = duration_of(line.text("now_time"));
    if (line.has("now_wait")) config.interactive_wait = duration_of(line.text("now_wait"));
    return answer(engine_.apply(Configure{.config = config}));
  }

  testing::TestEngine engine_{testing::policies_with_tasks(/*weight_milli_max=*/2'000)};
  std::map<std::string, testing::Shape> shapes_;
  std::map<std::string, std::string> boot_of_;
  std::map<std::string, JobId> jobs_;
  std::map<JobId, std::string> names_;
  int boots_ = 0;
};

std::vector<std::filesystem::path> all_scenarios() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SCENARIO_FOLDER)) {
    if (entry.path().extension() == ".scn") found.push_back(entry.path());
  }
  std::erase_if(found, [](const auto& path) { return path.parent_path().filename() == "access"; });
  std::sort(found.begin(), found.end());
  return found;
}

class Scenarios : public ::testing::TestWithParam<std::filesystem::path> {};

TEST(ScenarioLines, NameTheWordsThatNobodyAskedFor) {
  const Line line = parse("submit a gpus=1 memebers=2 alone -> accepted");
  EXPECT_EQ(line.number("gpus"), 1);
  EXPECT_FALSE(line.has("members"));
  const Line copy = line;
  EXPECT_EQ(copy.unknown(), (Words{"alone", "memebers"}));
  EXPECT_TRUE(copy.has("alone"));
  EXPECT_EQ(line.unknown(), Words{"memebers"});
}

TEST_P(Scenarios, Holds) {
  std::ifstream file(GetParam());
  ASSERT_TRUE(file.is_open());
  Scenario scenario;
  std::string raw;
  int checked = 0;
  for (int number = 1; std::getline(file, raw); ++number) {
    raw.erase(std::min(raw.find('#'), raw.size()));
    if (raw.find_first_not_of(' ') == std::string::npos) continue;
    const Line line = parse(raw);
    SCOPED_TRACE(GetParam().filename().string() + ":" + std::to_string(number) + ": " + raw);
    scenario.run(line);
    if (!line.expected.empty()) ++checked;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(checked, 0) << "it expects nothing";
}

INSTANTIATE_TEST_SUITE_P(Files, Scenarios, ::testing::ValuesIn(all_scenarios()),
                         [](const ::testing::TestParamInfo<std::filesystem::path>& file) {
                           return file.param.parent_path().filename().string() + "_" +
                                  file.param.stem().string();
                         });

}  // namespace
}  // namespace gpusched
