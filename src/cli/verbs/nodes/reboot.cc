// gpu-cli node reboot: drains a node, has it rebooted, waits for its next boot and puts it back to work.
// Where each node stands is read from the scheduler at every step, so that the same command goes on where
// another one ended.
#include <csignal>
#include <memory>

#include "cli/framework/verbs.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/units.h"
#include "cli/verbs/nodes/nodes.h"

namespace gpusched::cli {
namespace {

constexpr Duration kRebootLook = milliseconds(500);
constexpr std::string_view kReason = "rolling reboot from boot ";

volatile std::sig_atomic_t interrupted = 0;

struct RebootOptions {
  std::vector<std::string> nodes;
  bool rolling = false;
  bool all = false;
  std::string reason;
  std::string drain_timeout = "1d";
  std::string boot_timeout = "30m";
};

enum class Step { kDrain, kWaitDrained, kReboot, kWaitBoot, kResume, kWaitReady, kDone };

/// One node on its way.
class NodeReboot {
 public:
  NodeReboot(Session& session, std::string name, Duration drain_max, Duration boot_max)
      : session_(session),
        name_(std::move(name)),
        drain_max_(drain_max),
        boot_max_(boot_max),
        patient_(session.io()) {}

  /// Until the node is back. The exit code.
  int run(const std::string& title);

 private:
  /// What is next, as the node's record says.
  Step next_step(const Json& node);
  /// Does it; nothing when it is done or has to be waited for.
  std::optional<Trouble> act(Step step, const Json& node);
  int fail(const std::string& sentence, const std::string& code);
  int overdue(Step step, const Json& node);

  Session& session_;
  const std::string name_;
  const Duration drain_max_;
  const Duration boot_max_;
  Patience patient_;
  std::string old_boot_;
  bool ordered_ = false;  ///< The reboot was ordered by us.
  bool resumed_ = false;
};

std::string_view words_of(Step step) {
  switch (step) {
    case Step::kDrain:
      return "drain";
    case Step::kWaitDrained:
      return "waits for its jobs to end";
    case Step::kReboot:
      return "reboot";
    case Step::kWaitBoot:
      return "reboots";
    case Step::kResume:
      return "resume";
    case Step::kWaitReady:
      return "is up; its checks are running";
    case Step::kDone:
      return "is ready";
  }
  UNREACHABLE();
}

Step NodeReboot::next_step(const Json& node) {
  const std::string state = node["state"].text();
  const std::string reason = node["state_reason"].text();
  const std::string boot = node["boot_id"].text();
  const bool connected = node["contact"].text() == "connected";
  if (old_boot_.empty()) {
    // Another gpu-cli may have begun: it wrote down which boot it began with.
    const bool begun = reason.starts_with(kReason) && (state == "draining" || state == "drained");
    old_boot_ = begun ? reason.substr(kReason.size()) : boot;
  }
  if (boot != old_boot_ && connected) {
    if (resumed_ && state == "ready") return Step::kDone;
    if (resumed_ || state == "validating") return state == "ready" ? Step::kDone : Step::kWaitReady;
    return state == "draining" || state == "drained" ? Step::kResume : Step::kWaitReady;
  }
  if (ordered_) return Step::kWaitBoot;
  if (state == "draining") return Step::kWaitDrained;
  if (state == "drained") return Step::kReboot;
  return Step::kDrain;
}

std::optional<Trouble> NodeReboot::act(Step step, const Json& node) {
  JsonObjectWriter body;
  std::string what;
  switch (step) {
    case Step::kDrain:
      what = "drain";
      body.add("reason", std::string(kReason) + node["boot_id"].text());
      break;
    case Step::kReboot:
      what = "reboot";
      body.add("reason", std::string(kReason) + node["boot_id"].text());
      break;
    case Step::kResume:
      what = "resume";
      break;
    case Step::kWaitDrained:
    case Step::kWaitBoot:
    case Step::kWaitReady:
    case Step::kDone:
      return std::nullopt;
  }
  const Reply reply = change_node(session_, name_, what, body.text());
  if (!reply) return reply.trouble;
  ordered_ = ordered_ || step == Step::kReboot;
  resumed_ = resumed_ || step == Step::kResume;
  return std::nullopt;
}

int NodeReboot::fail(const std::string& sentence, const std::string& code) {
  return session_.fail(code == "timeout" ? kExitWaitedInVain : kExitRefused, name_ + ": " + sentence, code);
}

int NodeReboot::overdue(Step step, const Json& node) {
  if (step == Step::kWaitDrained) {
    return fail("its " + std::to_string(node["attempts"].integer()) +
                    " attempts have not ended in time; requeue or cancel them (gpu-cli node show " + name_ +
                    "), or raise --drain-timeout",
                "timeout");
  }
  if (step == Step::kWaitBoot) {
    return fail(
        "it has not come back in time; check its console and repeat this command, or declare it dead with: "
        "gpu-cli node confirm-dead " +
            name_,
        "timeout");
  }
  return fail("it came back, but its checks do not pass: " + node["state_reason"].text() +
                  "; repair it, then run: gpu-cli node resume " + name_,
              "timeout");
}

int NodeReboot::run(const std::string& title) {
  const CliIo& io = session_.io();
  Progress progress(io);
  Step last = Step::kDone;
  Time since = io.wall_now();
  while (interrupted == 0) {
    const Reply node = get_node(session_, name_);
    if (!node) {
      if (!node.trouble->passing || !patient_.wait_again()) return session_.fail(*node.trouble);
      continue;
    }
    patient_.renew();
    const Step step = next_step(node.json);
    if (step != last) {
      progress.clear();
      io.out(title + " " + std::string(words_of(step)) + "\n");
      since = io.wall_now();
    }
    if (step == Step::kDone) return kExitOk;
    last = step;
    if (const std::optional<Trouble> trouble = act(step, node.json)) {
      return session_.fail({.exit_code = trouble->exit_code,
                            .sentence = name_ + ": " + trouble->sentence,
                            .code = trouble->code});
    }
    const Duration waited = io.wall_now() - since;
    if (waited > (step == Step::kWaitDrained ? drain_max_ : boot_max_)) return overdue(step, node.json);
    progress.show(title + " " + std::string(words_of(step)) + ", " +
                  format_duration(waited.ns / 1'000'000'000));
    io.pause(kRebootLook);
  }
  return 128 + SIGINT;
}

/// All nodes that can be rebooted, by name.
Reply all_nodes(Session& session, std::vector<std::string>& names) {
  Reply reply = session.get("/v1/nodes");
  for (const Json& node : reply.json["nodes"].items()) {
    if (node["contact"].text() == "connected") names.push_back(node["name"].text());
  }
  return reply;
}

int reboot_rolling(Session& session, const RebootOptions& reboot) {
  std::vector<std::string> nodes = reboot.nodes;
  if (reboot.all) {
    const Reply listed = all_nodes(session, nodes);
    if (!listed) return session.fail(*listed.trouble);
  }
  const Result<int64_t> drain = parse_duration_seconds(reboot.drain_timeout);
  if (!drain) return session.fail(kExitUsage, "--drain-timeout: " + drain.error().message, "usage");
  const Result<int64_t> boot = parse_duration_seconds(reboot.boot_timeout);
  if (!boot) return session.fail(kExitUsage, "--boot-timeout: " + boot.error().message, "usage");
  std::signal(SIGINT, [](int) { interrupted = 1; });
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string title =
        "[" + std::to_string(i + 1) + "/" + std::to_string(nodes.size()) + "] " + nodes[i];
    const int code = NodeReboot(session, nodes[i], seconds(*drain), seconds(*boot)).run(title);
    if (code == kExitOk) continue;
    std::string rest;
    for (size_t left = i; left < nodes.size(); ++left) rest += " " + nodes[left];
    session.io().err("To continue: gpu-cli node reboot --rolling" + rest + "\n");
    return code;
  }
  std::signal(SIGINT, SIG_DFL);
  return kExitOk;
}

int reboot_nodes(Session& session, const RebootOptions& reboot) {
  if (reboot.nodes.empty() == !reboot.all) {
    return session.fail(kExitUsage, "give the names of nodes, or --all with --rolling", "usage");
  }
  if (reboot.rolling) return reboot_rolling(session, reboot);
  if (reboot.all) return session.fail(kExitUsage, "--all: only with --rolling", "usage");
  int exit_code = kExitOk;
  JsonObjectWriter body;
  if (!reboot.reason.empty()) body.add("reason", reboot.reason);
  for (const std::string& name : reboot.nodes) {
    const Reply reply = change_node(session, name, "reboot", body.text());
    if (reply) {
      session.io().out(session.options().json ? reply.text + "\n" : name + " is rebooting\n");
    } else {
      exit_code = session.fail(*reply.trouble);
    }
  }
  return exit_code;
}

}  // namespace

Action define_node_reboot(Grammar& grammar) {
  const auto reboot = std::make_shared<RebootOptions>();
  grammar.argument("NODE", &reboot->nodes, "Names of nodes").optional().completes(Complete::kNode);
  grammar.flag(
      "--rolling", reboot->rolling,
      "One by one: drain, wait until no jobs run, reboot, wait until the node is back and ready, resume");
  grammar.flag("--all", reboot->all, "With --rolling: all nodes that report");
  grammar.option("--reason", "TEXT", &reboot->reason, "Reason, shown in the lists");
  grammar.option("--drain-timeout", "SPAN", &reboot->drain_timeout,
                 "With --rolling: time for a node's jobs to end (default: 1d)");
  grammar.option("--boot-timeout", "SPAN", &reboot->boot_timeout,
                 "With --rolling: time for a boot and its checks (default: 30m)");
  grammar.details(
      "Without `--rolling` the nodes must be drained, and are rebooted at once. Each node runs the reboot "
      "command of its configuration.");
  grammar.details(
      "With `--rolling` the command stops at the first failure and says what to do. It can be interrupted at "
      "any time: the same command, with the remaining nodes, continues where it stopped. The reason of each "
      "drain records which boot the node was in.");
  grammar.example("gpu-cli node reboot --rolling n1 n2 n3",
                  "a new kernel for three nodes, without losing a job");
  return [reboot](Session& session) { return reboot_nodes(session, *reboot); };
}

}  // namespace gpusched::cli
