#include "sim/sim_node.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpusched::sim {

SimNode::SimNode(Context& context, Network& network, std::size_t index, std::vector<DeviceFacts> devices,
                 int64_t cpu_milli, int64_t memory_mb)
    : context_(context),
      network_(network),
      index_(index),
      name_("n" + std::to_string(index)),
      agent_name_(name_),
      instance_("folder-" + name_ + "-0"),
      cpu_milli_(cpu_milli),
      memory_mb_(memory_mb),
      clock_(context.schedule),
      machine_(context, std::move(devices), [this](const Machine::Input& given) { input(given); }),
      store_(
          context,
          [this](uint64_t position) { input([position](NodeCore& core) { core.on_synced(position); }); },
          [this] {
            kill_agent();
            context_.schedule.in(context_.some_ms(20, 10'000), [this] { start_agent(); });
          }),
      has_checks_(context.on(Fault::kAgentDisk)) {}

void SimNode::power_on() {
  if (std::exchange(powered_, true)) return;
  ++boot_;
  clock_.reboot();
  context_.trace.note("power-on", {index_, boot_});
  start_agent();
}

void SimNode::power_off() {
  if (!powered_) return;
  context_.trace.note("power-off", {index_});
  powered_ = false;
  const bool ran = core_ != nullptr;
  core_.reset();
  inbox_.clear();
  ++agent_;
  store_.power_fails();
  machine_.power_fails();
  // Somebody switches MIG mode of some of its GPUs meanwhile.
  for (uint32_t i = 0; context_.on(Fault::kGpu) && i < machine_.gpu_count(); ++i) {
    if (context_.prng.chance(50) && machine_.switch_mig(i)) switched_ = true;
  }
  if (ran) network_.agent_died(index_);
}

void SimNode::start_agent(const std::string& as) {
  if (!powered_ || core_ != nullptr) return;
  ++agent_;
  agent_name_ = as.empty() ? name_ : as;
  context_.trace.note("agent-starts", {index_});
  NodeOptions options{.node_name = agent_name_,
                      .instance = instance_,
                      .boot_id = boot_id(),
                      .version = "sim",
                      .machine = "machine-" + std::to_string(index_),
                      .process = (uint64_t{index_} << 32) + agent_,
                      .cpu_milli = cpu_milli_,
                      .memory_mb = memory_mb_};
  if (external_) options.features = {"external"};
  std::vector<uint32_t> order(machine_.gpu_count());
  std::iota(order.begin(), order.end(), 0u);
  // A driver counts them again each time that it opens.
  if (context_.on(Fault::kGpu) && context_.prng.chance(300))
    std::rotate(order.begin(), order.begin() + (order.empty() ? 0 : 1), order.end());
  for (const uint32_t gpu : order) options.devices.push_back(machine_.gpu(gpu).facts);
  machine_.set_order(std::move(order));
  // A late copy of an order must still find its tombstone.
  const bool late_copies = context_.on(Fault::kDuplicate) || context_.on(Fault::kReorder);
  options.finished_kept = late_copies ? 1'000 : 20;
  // Nobody sets the clocks right here.
  options.clock_skew_max = hours(24 * 365);
  const StoreImage image = store_.open();
  core_ = std::make_unique<NodeCore>(std::move(options),
                                     NodePorts{.clock = clock_,
                                               .link = *this,
                                               .spawner = machine_,
                                               .store = store_,
                                               .files = *this,
                                               .devices = machine_,
                                               .host = *this,
                                               .hooks = has_checks_ ? &checks_ : nullptr,
                                               .memory = &faults_,
                                               .slices = &machine_},
                                     image);
  run_is_near_ = false;
  wake_at_ = kNever;
  paused_until_ = {};
  run_soon(Duration{});
  network_.dial(index_);
}

void SimNode::kill_agent() {
  if (core_ == nullptr) return;
  context_.trace.note("agent-killed", {index_});
  core_.reset();
  inbox_.clear();
  ++agent_;
  store_.process_dies();
  machine_.agent_dies();
  network_.agent_died(index_);
}

void SimNode::reinstall() {
  CHECK(!powered_);
  ++installation_;
  context_.trace.note("reinstall", {index_, installation_});
  instance_ = "folder-" + name_ + "-" + std::to_string(installation_);
  store_.wipe();
  faults_.text.clear();
}

void SimNode::Checks::check() {
  node.context_.schedule.in(node.context_.some_ms(1, 500), [this, agent = node.agent_] {
    if (agent == node.agent_) node.input([](NodeCore& core) { core.on_checked({}); });
  });
}

void SimNode::break_disk(Prng& prng) {
  if (prng.chance(500)) return store_.fail_next_sync(true);
  context_.trace.note("agent-disk-full", {index_});
  store_.set_full(true);
  context_.schedule.in(milliseconds(prng.between(100, 30'000)), [this] { store_.set_full(false); });
}

void SimNode::heal_disk() {
  store_.set_full(false);
  store_.fail_next_sync(false);
}

void SimNode::make_external(uint32_t refusals) {
  external_ = true;
  machine_.set_refusals(refusals);
}

void SimNode::become_copy_of(const SimNode& other) {
  CHECK(!powered_);
  context_.trace.note("copy", {other.index_, index_});
  name_ = other.name_;
  instance_ = other.instance_;
  external_ = other.external_;
  store_.become_copy_of(other.store_);
  faults_.text = other.faults_.text;
}

void SimNode::link_up() {
  input([](NodeCore& core) { core.on_link_up(); });
}
void SimNode::link_down() {
  input([](NodeCore& core) { core.on_link_down(); });
}
void SimNode::receive(std::shared_ptr<const v1::SchedulerMessage> message) {
  input([message = std::move(message)](NodeCore& core) { core.on_message(*message); });
}

void SimNode::send(const v1::AgentMessage& message) {
  // A fault of a device that is only noted is forgotten by itself, minutes later.
  if (message.has_report() && !message.report().has_device_fault()) ++reports_sent_;
  network_.from_agent(index_, message);
}

// The agent's loop: what came meanwhile is taken at once, then carried out.

void SimNode::input(const Machine::Input& given) {
  if (core_ == nullptr) return;
  inbox_.push_back(given);
  run_soon(context_.some_us(1, 300));
}

void SimNode::run_soon(Duration delay) {
  if (std::exchange(run_is_near_, true)) return;
  context_.schedule.in(delay, [this, agent = agent_] {
    if (agent == agent_) run();
  });
}

void SimNode::run() {
  run_is_near_ = false;
  if (paused_until_ > context_.schedule.now()) return run_soon(paused_until_ - context_.schedule.now());
  for (const Machine::Input& given : std::exchange(inbox_, {})) given(*core_);
  const Time now = clock_.monotonic();
  if (core_->next_deadline() <= now) core_->on_tick();
  core_->settle();
  wake_at(std::max(clock_.to_schedule(core_->next_deadline()), context_.schedule.now() + microseconds(100)));
}

void SimNode::wake_at(Time when) {
  if (when >= wake_at_ && wake_at_ > context_.schedule.now()) return;
  wake_at_ = when;
  context_.schedule.at(when, [this, agent = agent_, when] {
    if (agent != agent_ || wake_at_ != when) return;
    wake_at_ = kNever;
    run_soon(Duration{});
  });
}

}  // namespace gpusched::sim
