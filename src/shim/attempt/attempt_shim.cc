#include "shim/attempt/attempt_shim.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text/task_payload.h"
#include "base/time.h"
#include "shim/attempt/held_ports.h"
#include "shim/attempt/log_bound.h"
#include "shim/attempt/start_failure.h"
#include "shim/attempt/usage.h"
#include "shim/attempt_files.h"
#include "shim/cgroup.h"
#include "shim/clocks.h"
#include "shim/container/container_runner.h"
#include "shim/processes.h"
#include "shim/protocol.h"
#include "shim/remove_tree.h"
#include "shim/script_file.h"
#include "shim/start_child.h"
#include "shim/worker/worker_task_queue.h"

namespace gpusched::shim {
namespace {

constexpr Duration kKillPauseFirst = milliseconds(1);
constexpr Duration kKillPauseMax = milliseconds(100);
/// While all that is left is another user's, as set-user-id programs are: only they can end it. The end of
/// each is told at once.
constexpr Duration kOthersPauseMax = seconds(10);
constexpr Duration kResendPause = milliseconds(10);
constexpr Duration kDiskPause = milliseconds(200);
constexpr off_t kOutcomeBytes = 4'096;
constexpr Duration kContactPauseMin = milliseconds(20);
constexpr Duration kContactPauseMax = seconds(1);
constexpr Duration kWatchPauseMin = milliseconds(100);
constexpr Duration kWatchPauseMax = milliseconds(500);
constexpr Duration kSavedPause = milliseconds(100);
constexpr Duration kCgroupPauseFirst = milliseconds(1);
constexpr Duration kCgroupPauseMax = milliseconds(50);
constexpr int kCgroupTriesMax = 8;
constexpr Duration kGatePause = milliseconds(10);
constexpr int kStartPauseMs = 20;
/// For a killed process to go before it is left behind.
constexpr Duration kGonePause = milliseconds(10);
constexpr int kGoneTriesMax = 100;
constexpr std::size_t kVerdictBytesMax = 1 << 20;

class AttemptShim {
 public:
  AttemptShim(const ShimContext& context, const StartView& request)
      : context_(context),
        request_(request),
        arguments_(request.arguments),
        environment_(request.environment),
        max_runtime_(request.max_runtime) {}

  void run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!make_folder()) return;
    silent_since_ = last_contact(boot_now());
    if (may_start() && start_command()) {
      if (!request_.container) begin_run();
      supervise();
    }
    if (!left_behind_) empty_cgroups();
    if (running_) outcome_.usage = measure_usage(request_.box, request_.container);
    outcome_.ended_unix_ns = wall_now().ns;
    if (task_queue_) task_queue_->end(outcome_);
    record_outcome();
    send(Event{.kind = EventKind::kEnded, .key = request_.key, .outcome = outcome_});
    flush_events();
    remove_cgroups();  // Nobody waits for these to go.
    if (request_.box.own_folders || request_.box.open_tmp) remove_tree(folder_, kTmpFolder);
    if (*request_.script != '\0') unlinkat(folder_, kScriptFile, 0);
  }

 private:
  enum class Phase { kRunning, kGrace, kKilling };

  /// The attempt's folder comes to be exactly once: whoever finds it there does not run the attempt.
  bool make_folder() {
    const std::string folder = key_text(request_.key);
    const mode_t mode = request_.box.user ? 0711 : 0750;  // Another user goes through to its own folders.
    int made = take_spare_folder(folder);
    if (made != 0 && made != EEXIST) {
      made = mkdirat(context_.attempts_folder, folder.c_str(), mode) == 0 ? 0 : errno;
    }
    if (made == EEXIST) {
      send(Event{.kind = EventKind::kExists, .key = request_.key});
      flush_events();
      return false;
    }
    if (made != 0) {
      fail_start("cannot create the attempt's folder " + folder + ": " + error_words(made));
      return false;
    }
    folder_ = openat(context_.attempts_folder, folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_ >= 0 && set_mode(mode)) {
      if (request_.gated) write_file(kGateFile, "preparing\n", 0640);
      open_outcome();
      return true;
    }
    fail_start("cannot open the attempt's folder " + folder + ": " + error_words(errno));
    return false;
  }

  /// A spare folder may come from a job that needed less of it.
  bool set_mode(mode_t mode) const {
    struct stat facts{};
    if (fstat(folder_, &facts) != 0) return false;
    return (facts.st_mode & 07777) == mode || fchmod(folder_, mode) == 0;
  }

  /// 0, or why there is none; EEXIST: the attempt has its folder already.
  int take_spare_folder(const std::string& folder) {
    if (*request_.spare_folder == '\0') return ENOENT;
    const std::string spare = std::string("../") + kSpareFolder + "/" + request_.spare_folder;
    const int renamed = renameat2(context_.attempts_folder, spare.c_str(), context_.attempts_folder,
                                  folder.c_str(), RENAME_NOREPLACE);
    return renamed == 0 ? 0 : errno;
  }

  /// For failures before there is a place for the outcome: only the agent learns of it. They are the node's.
  void fail_start(std::string detail) {
    outcome_.cause = Cause::kNodeFault;
    outcome_.detail = std::move(detail);
    outcome_.ended_unix_ns = wall_now().ns;
    send(Event{.kind = EventKind::kEnded, .key = request_.key, .outcome = outcome_});
    flush_events();
  }

  /// Where the command writes to a file that its job named, a link says so to readers; nothing here follows
  /// it.
  int open_output(const char* name, const std::string& elsewhere) {
    if (!elsewhere.empty()) {
      unlinkat(folder_, name, 0);
      if (symlinkat(elsewhere.c_str(), folder_, name) != 0) return -1;
      return context_.null_input;  // Until the child has opened it, as its user.
    }
    const int file = open_emptied(folder_, name, O_APPEND);
    // Its own, so that /dev/stdout can be opened by name.
    if (file >= 0 && request_.box.user && fchown(file, request_.box.user->uid, request_.box.user->gid) != 0) {
      close(file);
      return -1;
    }
    return file;
  }

  /// Starts the command. A thing that this machine lacks is the node's fault, and no try of the job's; one
  /// that the job named and is not there is the job's.
  bool start_command() {
    outcome_.started_unix_ns = wall_now().ns;
    outcome_.cause = Cause::kNodeFault;
    output_ = open_output(kStdoutFile, request_.box.stdout_path);
    error_output_ = open_output(kStderrFile, request_.box.stderr_path);
    ChildPlan plan{.parent = getpid(),
                   .box = &request_.box,
                   .input = context_.null_input,
                   .output = output_,
                   .error_output = error_output_,
                   .folder = folder_,
                   .arguments = arguments_.data(),
                   .environment = environment_.data()};
    if (output_ < 0 || error_output_ < 0) {
      outcome_.detail = "cannot create the output files: " + error_words(errno);
      return false;
    }
    if (request_.container && !note_container(folder_, request_.arguments)) {
      outcome_.detail = "cannot write the container's plan: " + error_words(errno);
      return false;
    }
    if (*request_.working_directory != '\0') plan.working_directory = request_.working_directory;
    plan.working_directory_optional = request_.working_directory_optional;
    if (!make_box(plan) || !make_hosts() || !make_script() || !open_payload(plan)) return false;
    outcome_.cause = Cause::kStartFailed;
    if (!take_ports() || !open_desk()) return false;
    if (request_.gated && !request_.container && !pass_gate()) return false;
    const std::vector<std::string> candidates =
        command_candidates(request_.arguments.front(), plan.environment);
    std::vector<char*> paths;
    for (const std::string& path : candidates) paths.push_back(const_cast<char*>(path.c_str()));
    paths.push_back(nullptr);
    plan.paths = paths.data();

    plan.patient = comes_to_paths_of_the_job(plan);
    const int of_ports = ports_.hand_over(request_.container);
    const int handed_over = task_queue_ ? task_queue_->hand_over() : of_ports;
    child_ = start_child(plan);
    const int start_error = errno;
    if (handed_over >= 0) close(handed_over);
    if (payload_ >= 0) close(payload_);
    for (const int file : plan.cgroup_files) close(file);
    if (child_ < 0) {
      outcome_.cause = Cause::kNodeFault;
      outcome_.detail = "cannot create a process: " + error_words(start_error);
      return false;
    }
    if (plan.patient && !await_start(plan)) return false;
    if (plan.failed == StartStep::kNone) {
      outcome_.cause = Cause::kUnspecified;
      return true;
    }
    waitpid(child_, nullptr, 0);
    outcome_.detail = start_failure(plan, request_);
    if (plan.failed == StartStep::kCgroup || plan.failed == StartStep::kPrivateFolders)
      outcome_.cause = Cause::kNodeFault;
    if (plan.failed == StartStep::kCommand) end_as_a_shell_would(plan.error);
    return false;
  }

  /// Whether the way to the command leads to what may be on a file system that does not answer. The runner of
  /// a container opens what its job named by itself.
  bool comes_to_paths_of_the_job(const ChildPlan& plan) const {
    const Box& box = request_.box;
    if (request_.container) return false;
    if (plan.working_directory != nullptr || !box.stdin_path.empty() || !box.stdout_path.empty() ||
        !box.stderr_path.empty()) {
      return true;
    }
    const std::string_view first = plan.paths[0];
    return !first.starts_with("/usr/") && !first.starts_with("/bin/");
  }

  /// Until the new process runs its command or has failed, which `plan` then says. False: it was told to end
  /// before. A process that the kernel does not let go is left behind: it has a SIGKILL, and comes to nothing
  /// of its job's.
  bool await_start(ChildPlan& plan) {
    while (true) {
      pollfd source{.fd = plan.report, .events = POLLIN, .revents = 0};
      poll(&source, 1, kStartPauseMs);
      StartFailure failure;
      const ssize_t size = read(plan.report, &failure, sizeof failure);
      if (size >= 0 || errno != EAGAIN) {
        close(plan.report);
        if (size == sizeof failure) {
          plan.failed = failure.step;
          plan.error = failure.error;
        }
        return true;
      }
      flush_events_now();
      wait_for_signal({});
      if (!stop_wanted_ && !contact_lost(boot_now())) continue;
      close(plan.report);
      outcome_.cause = stop_wanted_ ? Cause::kStopped : Cause::kContactLost;
      outcome_.detail = stop_wanted_ ? "stopped before its command started" : "no contact with the scheduler";
      kill(child_, SIGKILL);
      for (int tries = 0; tries < kGoneTriesMax && waitpid(child_, nullptr, WNOHANG) == 0; ++tries)
        pause_for(kGonePause);
      left_behind_ = true;
      return false;
    }
  }

  /// The attempt's groups and folders. Those that it needs stay open until the command runs.
  bool make_box(ChildPlan& plan) {
    const Box& box = request_.box;
    for (const CgroupFolder& folder : box.cgroups) {
      std::string trouble = make_cgroup(folder);
      if (trouble.empty() && folder.unified && box.fence_by_program) {
        trouble = fence_devices(folder.path, box.devices);
      }
      const std::string entrance = folder.path + (folder.unified ? "" : "/tasks");
      const int file =
          open(entrance.c_str(), (folder.unified ? O_RDONLY | O_DIRECTORY : O_WRONLY) | O_CLOEXEC);
      if (trouble.empty() && file < 0) trouble = "cannot open " + entrance + ": " + error_words(errno);
      if (request_.container) {  // Its runtime puts it in; the runtime's client is no part of it.
        if (file >= 0) close(file);
      } else {
        if (folder.unified) plan.unified_cgroup = unified_ = file;
        if (!folder.unified && file >= 0) plan.cgroup_files.push_back(file);
      }
      if (trouble.empty()) continue;
      outcome_.detail = std::move(trouble);
      return false;
    }
    for (const char* name : {kWorkFolder, kTmpFolder}) {
      const bool wanted = box.own_folders || (box.open_tmp && name == kTmpFolder);
      if (!wanted || make_own_folder(name)) continue;
      outcome_.detail = std::string("cannot create the attempt's folder ") + name + ": " + error_words(errno);
      return false;
    }
    return true;
  }

  bool write_file(const std::string& name, std::string_view text, mode_t mode) {
    const int file =
        openat(folder_, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file < 0) return false;
    const bool whole =
        write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fchmod(file, mode) == 0;
    close(file);
    return whole;
  }

  /// For launchers, which read it as the job's user.
  bool make_hosts() {
    if (*request_.hosts == '\0') return true;
    const std::string name =
        request_.container ? std::string(kTmpFolder) + '/' + kHostsFile : std::string(kHostsFile);
    if (write_file(name, request_.hosts, 0644)) return true;
    outcome_.detail = "cannot write the gang's hosts: " + error_words(errno);
    return false;
  }

  /// In the folder that nobody but us may change; where the job does not see that, in its TMPDIR. A
  /// container's users are not known here: nobody else comes through the folder above it.
  bool make_script() {
    if (*request_.script == '\0') return true;
    const bool in_tmp = request_.container || request_.box.private_tmp;
    const std::string name = in_tmp ? std::string(kTmpFolder) + '/' + kScriptFile : std::string(kScriptFile);
    if (!write_script(folder_, name, request_.script, request_.box.user, request_.container ? 0755 : 0700)) {
      outcome_.detail = "cannot write the job's script: " + error_words(errno);
      return false;
    }
    script_path_ = request_.box.private_tmp ? std::string("/tmp/") + kScriptFile
                                            : std::string(context_.data_folder) + '/' + kAttemptsFolder +
                                                  '/' + key_text(request_.key) + '/' + name;
    if (request_.script_argument > 0) arguments_[request_.script_argument] = script_path_.data();
    return true;
  }

  /// Has the command read its payload, where its agent left one.
  bool open_payload(ChildPlan& plan) {
    const std::string name = std::string(kTaskPayloadBytesVariable) + '=';
    const auto told = std::find_if(environment_.begin(), environment_.end(), [&name](const char* entry) {
      return entry != nullptr && std::string_view(entry).starts_with(name);
    });
    if (told == environment_.end()) return true;
    payload_ =
        take_payload(context_.attempts_folder, request_.key, std::strtoull(*told + name.size(), nullptr, 10));
    // Its own, so that /dev/stdin can be opened by name.
    const bool is_own = payload_ >= 0 && (!request_.box.user || fchown(payload_, request_.box.user->uid,
                                                                       request_.box.user->gid) == 0);
    plan.input = payload_;
    if (!is_own) outcome_.detail = "cannot open the task's payload: " + error_words(errno);
    return is_own;
  }

  /// They are its own until the command runs. A replica's is noted, for agents, before it may be used.
  bool take_ports() {
    outcome_.detail = ports_.take(request_.port, environment_, request_.key, request_.container);
    if (!outcome_.detail.empty() || ports_.note().empty()) return outcome_.detail.empty();
    const std::string fresh = std::string(kPortFile) + ".new";
    if (write_file(fresh, ports_.note(), 0640) && renameat(folder_, fresh.c_str(), folder_, kPortFile) == 0)
      return true;
    outcome_.detail = "cannot note the attempt's port: " + error_words(errno);
    return false;
  }

  /// Opens the queue of a persistent worker, from which its tasks come. It is one by its environment.
  bool open_desk() {
    const auto is_frames = [](const char* entry) {
      return entry != nullptr && std::string_view(entry).starts_with(std::string(kFrameVariable) + '=');
    };
    if (std::none_of(request_.environment.begin(), request_.environment.end(), is_frames)) return true;
    task_queue_.emplace(context_.attempts_folder, request_.key, request_.grace);
    sigset_t set = awaited_signals();
    signals_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    outcome_.detail = task_queue_->open(folder_, request_.environment);
    return outcome_.detail.empty();
  }

  /// Waits until every member of its gang is prepared. False: it is over before it began.
  bool pass_gate() {
    announce_prepared();
    while (faccessat(folder_, kGoFile, F_OK, 0) != 0) {
      flush_events_now();
      if (stop_wanted_ || contact_lost(boot_now())) {
        outcome_.cause = stop_wanted_ ? Cause::kStopped : Cause::kContactLost;
        outcome_.detail = stop_wanted_ ? "stopped before its gang started" : "no contact with the scheduler";
        return false;
      }
      wait_for_signal(kGatePause);
    }
    outcome_.started_unix_ns = wall_now().ns;
    return true;
  }

  /// On disk too, for an agent that was not there to hear it.
  void announce_prepared() {
    const std::string fresh = std::string(kGateFile) + ".new";
    write_file(fresh, "prepared\n", 0640);
    renameat(folder_, fresh.c_str(), folder_, kGateFile);
    send(Event{.kind = EventKind::kPrepared, .key = request_.key, .shim_pid = getpid()});
  }

  /// In the attempt's folder, which nobody but us may change, so that what is found there is ours.
  bool make_own_folder(const char* name) {
    if (mkdirat(folder_, name, 0700) != 0 && errno != EEXIST) return false;
    // Open to the container's users, whoever they are here: nobody else comes through the folder above it.
    if (request_.box.open_tmp) return fchmodat(folder_, name, 01777, 0) == 0;
    const std::optional<Credentials>& user = request_.box.user;
    return !user || fchownat(folder_, name, user->uid, user->gid, AT_SYMLINK_NOFOLLOW) == 0;
  }

  /// A command that is not there or may not run is the job's own mistake: trying again changes nothing. It
  /// ends with a shell's exit code for that, and its error output says why.
  void end_as_a_shell_would(int error) {
    const bool absent = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
    const bool unfit = error == EACCES || error == EPERM || error == ENOEXEC || error == EISDIR;
    if (!absent && !unfit) return;
    outcome_.cause = Cause::kExited;
    outcome_.exit_code = absent ? 127 : 126;
    add_to_errors(outcome_.detail);  // The outcome has it too.
  }

  /// An order may have lain about for so long that its attempt is taken for over already.
  bool may_start() {
    if (!contact_lost(boot_now())) return true;
    outcome_.cause = Cause::kContactLost;
    outcome_.started_unix_ns = wall_now().ns;
    outcome_.detail = "not started: no contact with the scheduler for " +
                      std::to_string(request_.lost_contact.ms()) + " ms";
    return false;
  }

  /// The command runs: its time counts from here.
  void begin_run() {
    if (std::exchange(running_, true)) return;
    if (request_.gated) unlinkat(folder_, kGateFile, 0);
    started_ = boot_now();
    if (max_runtime_.ns > 0) deadline_ = started_ + max_runtime_;
    if (task_queue_) task_queue_->begin(child_, started_);
    send(Event{.kind = EventKind::kStarted,
               .key = request_.key,
               .pid = child_,
               .shim_pid = getpid(),
               .started_unix_ns = outcome_.started_unix_ns});
  }

  void supervise() {
    const Time started = boot_now();
    LogBound logs(folder_, request_.box.stdout_path.empty() ? output_ : -1,
                  request_.box.stderr_path.empty() ? error_output_ : -1, request_.log_bytes_max);
    Time next_log_look = started + LogBound::kLookFirst;
    while (true) {
      reap();
      if (none_left_) break;
      flush_events_now();
      const Time now = boot_now();
      if (phase_ != Phase::kKilling) watch(now);
      advance(now);
      if (now >= next_log_look) next_log_look = now + logs.look(now, wall_now());
      wait_for_signal(std::min(next_wake(now), next_log_look) - now);
    }
    logs.finish(wall_now());
    tell_what_was_cut_short(logs);
    finish_outcome();
  }

  /// The files are the command's own to write: nothing here could keep what it gave up.
  void tell_what_was_cut_short(const LogBound& logs) const {
    for (const bool error : {false, true}) {
      if (!logs.was_cut_short(error ? 1 : 0)) continue;
      const std::string name = error ? "stderr" : "stdout";
      add_to_errors("gpu-shim: the job truncated its " + name + ", as '> /dev/" + name +
                    "' does: earlier output is lost; '>> /dev/" + name + "' or '>&" + (error ? "2" : "1") +
                    "' keeps it");
    }
  }

  void add_to_errors(const std::string& text) const {
    const int file = openat(folder_, kStderrFile, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0) return;  // A file of the job's own.
    const std::string line = text + "\n";
    static_cast<void>(!write(file, line.data(), line.size()));
    close(file);
  }

  void advance(Time now) {
    if (child_ended_ && phase_ == Phase::kRunning) phase_ = Phase::kKilling;
    if (phase_ == Phase::kRunning) {
      if (stop_wanted_) begin_stop(Cause::kStopped, now);
      if (now >= deadline_ && !has_longer(now)) begin_stop(Cause::kTimeout, now);
      if (contact_lost(now)) begin_stop(Cause::kContactLost, now);
      if (task_queue_) advance_task_queue(now);
    }
    if (phase_ == Phase::kGrace) {
      if (stop_wanted_) hurry_stop(now);
      if (until_saved_ && now >= next_saved_look_) poll_checkpoint(now);
      // A process that got the signal may use its grace period; a daemon outside the group did not get it.
      const bool group_gone = child_ended_ && kill(-child_, 0) != 0 && errno == ESRCH;
      if (now >= kill_at_ || group_gone) phase_ = Phase::kKilling;
    }
    if (phase_ == Phase::kKilling) kill_round();
  }

  /// A task that takes too long, or a worker that is no good or has nothing to do, ends the worker.
  void advance_task_queue(Time now) {
    if (task_queue_->must_end(now)) begin_stop(Cause::kUnspecified, now);
  }

  /// The limit is over: whether the agent wrote down a longer one since.
  bool has_longer(Time now) {
    const std::optional<Duration> written = written_limit(folder_);
    if (!written) return false;
    const Duration limit = *written;
    max_runtime_ = limit;
    if (running_) deadline_ = limit.ns == 0 ? kNever : started_ + limit;
    return now < deadline_;
  }

  void begin_stop(Cause cause, Time now) {
    if (phase_ != Phase::kRunning) return;
    if (task_queue_) task_queue_->take_no_more();
    phase_ = Phase::kGrace;
    outcome_.cause = cause;
    kill_at_ = now + (cause == Cause::kStopped ? stop_.grace : request_.grace);
    until_saved_ = cause == Cause::kStopped && stop_.until_saved;
    if (until_saved_) saved_before_ = saved_at();
    next_saved_look_ = now + kSavedPause;
    stop_wanted_ = false;
    send_stop(cause == Cause::kStopped && stop_.signal != 0 ? stop_.signal : SIGTERM);
  }

  /// To the job's processes, which are not reaped yet, so that the group is surely ours. The runner of a
  /// container is told which signal to pass on.
  void send_stop(int signal) {
    sent_signal_ = signal;
    if (!request_.container) {
      kill(-child_, signal);
      // A stopped process would run no handler before its SIGKILL.
      kill(-child_, SIGCONT);
      return;
    }
    sigqueue(child_, SIGTERM, sigval{.sival_int = signal});
  }

  /// A later order may be less patient. An end of a job that was only asked to save its work is told to it.
  void hurry_stop(Time now) {
    kill_at_ = std::min(kill_at_, now + stop_.grace);
    stop_wanted_ = false;
    if (stop_.until_saved) return;
    until_saved_ = false;
    if (sent_signal_ != SIGTERM && stop_.signal == 0 && !child_ended_) send_stop(SIGTERM);
  }

  /// When the job last said that its work is saved, by this machine's clock; 0: never.
  int64_t saved_at() const {
    struct stat file{};
    const std::string name = std::string(kTmpFolder) + '/' + kCheckpointFile;
    if (fstatat(folder_, name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    return int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
  }

  void poll_checkpoint(Time now) {
    next_saved_look_ = now + kSavedPause;
    const int64_t at = saved_at();
    if (at == 0 || at == saved_before_) return;
    until_saved_ = false;
    send(Event{.kind = EventKind::kSaved, .key = request_.key, .saved_unix_ns = at});
    phase_ = Phase::kKilling;
  }

  bool contact_lost(Time now) {
    if (request_.lost_contact.ns <= 0) return false;
    silent_since_ = std::max(silent_since_, last_contact(silent_since_));
    return now - silent_since_ >= request_.lost_contact;
  }

  /// Last contact by the agent's file; `otherwise` when there was none in this boot.
  Time last_contact(Time otherwise) const {
    int64_t contact = 0;
    const bool known = pread(context_.contact, &contact, sizeof contact, 0) == sizeof contact;
    return known && contact <= boot_now().ns ? Time{contact} : otherwise;
  }

  void kill_round() {
    if (const CgroupFolder* group = killing_cgroup(request_.box.cgroups)) kill_cgroup(group->path);
    bool any = false;
    bool ours = false;
    for (const pid_t pid : descendants_of(getpid())) {
      any = true;
      ours = kill(pid, SIGKILL) == 0 || errno != EPERM || ours;
    }
    others_left_ = any && !ours;
  }

  /// Where no cgroup holds it, we look from time to time what it uses.
  void watch(Time now) {
    if (!request_.box.watched || now < next_watch_) return;
    const Usage usage = usage_of(descendants_of(getpid()), request_.box.memory_bytes_max);
    const Box& box = request_.box;
    const bool much = box.memory_bytes_max > 0 && usage.memory_bytes > box.memory_bytes_max / 2;
    next_watch_ = now + (much ? kWatchPauseMin : kWatchPauseMax);
    if (box.memory_bytes_max > 0 && usage.memory_bytes > box.memory_bytes_max) {
      over(Cause::kOutOfMemory, "its processes used " + std::to_string(usage.memory_bytes >> 20) +
                                    " MB of memory, more than its limit of " +
                                    std::to_string(box.memory_bytes_max >> 20) + " MB");
    } else if (box.processes_max > 0 && usage.tasks > box.processes_max) {
      over(Cause::kOverLimit, "it had " + std::to_string(usage.tasks) +
                                  " processes and threads, more than its limit of " +
                                  std::to_string(box.processes_max));
    }
  }

  void over(Cause cause, std::string detail) {
    outcome_.cause = cause;
    outcome_.detail = std::move(detail);
    phase_ = Phase::kKilling;
  }

  /// Nothing of ours is left; what else is in the groups was brought there, such as a session's commands. The
  /// groups say whether the kernel stepped in.
  void empty_cgroups() {
    const CgroupFolder* const group = killing_cgroup(request_.box.cgroups);
    if (group == nullptr) return;
    kill_pause_ = kKillPauseFirst;
    while (!kill_cgroup(group->path)) pause_for(kill_pause_ = std::min(kill_pause_ * 2, kKillPauseMax));
    explain_end();
  }

  /// Without processes they bind nobody any more. Processes that came in meanwhile go as well.
  void remove_cgroups() {
    if (unified_ >= 0) close(unified_);
    Duration pause = kCgroupPauseFirst;
    for (int tries = 0; tries < kCgroupTriesMax; ++tries) {
      bool gone = true;
      for (const CgroupFolder& folder : request_.box.cgroups) {
        const bool removed = remove_cgroup(folder.path);
        if (!removed) kill_cgroup(folder.path);
        gone = removed && gone;
      }
      if (gone) {
        for (const CgroupFolder& folder : request_.box.cgroups) remove_left_folder(folder.path);
        return;  // Else the agent removes them later.
      }
      pause_for(pause);
      pause = std::min(pause * 2, kCgroupPauseMax);
    }
  }

  void explain_end() {
    const bool badly =
        outcome_.cause == Cause::kSignaled || (outcome_.cause == Cause::kExited && outcome_.exit_code != 0);
    if (!badly || child_ < 0) return;
    uint64_t kills = 0;
    uint64_t refused_forks = 0;
    for (const CgroupFolder& folder : request_.box.cgroups) {
      kills = std::max(kills, cgroup_oom_kills(folder.path));
      refused_forks = std::max(refused_forks, cgroup_refused_forks(folder.path));
    }
    if (kills > 0) {
      outcome_.cause = Cause::kOutOfMemory;
      outcome_.detail = "it needed more than its " + std::to_string(request_.box.memory_bytes_max >> 20) +
                        " MB of memory and was killed; ask for more with --mem (memory_mb)";
    } else if (refused_forks > 0) {
      outcome_.detail += std::string(outcome_.detail.empty() ? "" : "; ") + "it reached its limit of " +
                         std::to_string(request_.box.processes_max) + " processes and threads";
    }
  }

  static void pause_for(Duration span) {
    const timespec pause = to_timespec(span);
    nanosleep(&pause, nullptr);
  }

  Time next_wake(Time now) {
    Time wake = kNever;
    if (!unsent_.empty()) wake = now + kResendPause;
    if (request_.box.watched && phase_ != Phase::kKilling) wake = std::min(wake, next_watch_);
    switch (phase_) {
      case Phase::kRunning:
        wake = std::min(wake, deadline_);
        if (task_queue_) wake = std::min(wake, task_queue_->next_look());
        if (request_.lost_contact.ns > 0) {
          const Duration pause{
              std::clamp(request_.lost_contact.ns / 8, kContactPauseMin.ns, kContactPauseMax.ns)};
          wake = std::min(wake, now + pause);
        }
        return wake;
      case Phase::kGrace:
        if (until_saved_) wake = std::min(wake, next_saved_look_);
        return std::min(wake, kill_at_);
      case Phase::kKilling:
        kill_pause_ = std::min(kill_pause_ * 2, others_left_ ? kOthersPauseMax : kKillPauseMax);
        return std::min(wake, now + kill_pause_);
    }
    UNREACHABLE();
  }

  static sigset_t awaited_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGCHLD, SIGTERM, stop_signal(), ready_signal()}) sigaddset(&set, signal);
    return set;
  }

  void wait_for_signal(Duration span) {
    const sigset_t set = awaited_signals();
    siginfo_t info{};
    if (task_queue_ && running_) task_queue_->wait(signals_, std::exchange(span, Duration{}));
    const timespec limit = to_timespec(std::min(span, hours(24)));
    const int signal = sigtimedwait(&set, &info, &limit);
    if (signal == SIGTERM) want_stop(StopRequest{.key = request_.key, .grace = request_.grace});
    if (signal == stop_signal()) want_stop(read_stop_value(info.si_value));
    if (signal == ready_signal() && info.si_pid == child_ && !running_) {
      if (info.si_value.sival_int == kReadyToGo) return announce_prepared();
      outcome_.started_unix_ns = wall_now().ns;
      begin_run();
    }
  }

  /// The least patient of several orders holds, and one that asks for nothing goes before one that does.
  void want_stop(StopRequest order) {
    if (stop_wanted_) {
      order.grace = std::min(order.grace, stop_.grace);
      if (!stop_.until_saved) order.until_saved = false;
      if (stop_.signal == 0) order.signal = 0;
    }
    stop_ = order;
    stop_wanted_ = true;
  }

  void reap() {
    while (true) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid == 0) return;
      if (pid < 0) {
        if (errno == EINTR) continue;
        none_left_ = true;
        return;
      }
      if (pid != child_ || child_ended_) continue;
      child_ended_ = true;
      if (WIFEXITED(status)) outcome_.exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
    }
  }

  void finish_outcome() {
    if (request_.container && take_verdict()) return;
    switch (outcome_.cause) {
      case Cause::kStopped:
        outcome_.detail = "stopped by order";
        return;
      case Cause::kTimeout:
        outcome_.detail = "stopped at its time limit of " + std::to_string(max_runtime_.ms()) + " ms";
        return;
      case Cause::kContactLost:
        outcome_.detail =
            "no contact with the scheduler for " + std::to_string(request_.lost_contact.ms()) + " ms";
        return;
      case Cause::kOutOfMemory:
      case Cause::kOverLimit:
        return;  // Said when it was seen.
      default:
        break;
    }
    outcome_.cause = outcome_.signal != 0 ? Cause::kSignaled : Cause::kExited;
    if (outcome_.signal == 0) return;
    const char* name = sigabbrev_np(outcome_.signal);
    outcome_.detail = name == nullptr ? "killed by a signal" : std::string("killed by SIG") + name;
  }

  /// With room for what will be written, so that an outcome fits though the job filled the disk meanwhile.
  void open_outcome() {
    outcome_file_ = open_emptied(folder_, kOutcomeFile);
    if (outcome_file_ < 0) return;
    // Where it is not possible, a full disk is waited out.
    static_cast<void>(fallocate(outcome_file_, FALLOC_FL_KEEP_SIZE, 0, kOutcomeBytes) == 0);
  }

  /// Takes the verdict of a container's runner, which counts unless we ended the attempt. A runner that left
  /// no word left a container, and the attempt is over only without it. True: the outcome stands.
  bool take_verdict() {
    unlinkat(folder_, kProgressFile, 0);
    const std::string path = "/proc/self/fd/" + std::to_string(folder_) + '/' + kVerdictFile;
    std::optional<Outcome> verdict =
        parse_outcome(request_.key, read_small_file(path.c_str(), kVerdictBytesMax));
    if (!verdict) remove_container(request_.arguments);
    if (outcome_.cause != Cause::kUnspecified) return false;
    if (verdict) {
      outcome_ = std::move(*verdict);
      return true;
    }
    if (running_) return false;
    outcome_.cause = Cause::kStartFailed;
    outcome_.detail = "the container's runner ended without reporting an outcome";
    return true;
  }

  /// Tries until it is on disk: a full disk delays an outcome and never loses it.
  void record_outcome() {
    const std::string text = format_outcome(request_.key, outcome_);
    while (true) {
      if (outcome_file_ < 0) open_outcome();
      if (outcome_file_ >= 0) {
        const ssize_t written = pwrite(outcome_file_, text.data(), text.size(), 0);
        struct stat facts{};
        const bool removed = fstat(outcome_file_, &facts) == 0 && facts.st_nlink == 0;
        if (written == static_cast<ssize_t>(text.size()) && !removed) return;
        if (removed && rescue_outcome(text)) return;
      } else if (errno == ENOENT && rescue_outcome(text)) {
        return;
      }
      pause_for(kDiskPause);
    }
  }

  /// Somebody removed the attempt's folder, and perhaps those of all: an agent that was restarted meanwhile
  /// finds the outcome only where it looks.
  bool rescue_outcome(const std::string& text) const {
    const std::string attempts = std::string(context_.data_folder) + "/" + kAttemptsFolder;
    const std::string folder = attempts + "/" + key_text(request_.key);
    mkdir(attempts.c_str(), request_.box.user ? 0711 : 0750);
    mkdir(folder.c_str(), 0750);
    const int file = open((folder + "/" + kOutcomeFile).c_str(),
                          O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (file < 0) return errno != ENOSPC && errno != EDQUOT;  // Else nothing can be done: the agent is told.
    const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    return whole;
  }

  void send(const Event& event) {
    unsent_.push_back(encode(event));
    flush_events_now();
  }

  void flush_events_now() {
    while (!unsent_.empty() && send_first(MSG_DONTWAIT)) unsent_.erase(unsent_.begin());
  }
  void flush_events() {
    while (!unsent_.empty() && send_first(0)) unsent_.erase(unsent_.begin());
  }

  /// False only when there is no room now. An agent that is gone finds the outcome on disk.
  bool send_first(int flags) {
    const std::string& packet = unsent_.front();
    while (true) {
      if (::send(context_.events, packet.data(), packet.size(), flags | MSG_NOSIGNAL) >= 0) return true;
      if (errno == EINTR) continue;
      return errno != EAGAIN && errno != ENOBUFS;
    }
  }

  const ShimContext& context_;
  const StartView& request_;
  Outcome outcome_;
  std::optional<WorkerTaskQueue> task_queue_;  ///< Set for a persistent worker.
  int signals_ = -1;                           ///< Readable when one is pending; with a queue.
  std::vector<std::string> unsent_;
  int folder_ = -1;
  int outcome_file_ = -1;
  int output_ = -1;        ///< Our own end of the command's, to bound what is kept.
  int error_output_ = -1;  ///< The same.
  int payload_ = -1;       ///< The command's standard input; -1: nothing.
  pid_t child_ = -1;
  HeldPorts ports_;
  std::string script_path_;         ///< Its script file, as the job sees it.
  std::vector<char*> arguments_;    ///< The request's, and the path of its script.
  std::vector<char*> environment_;  ///< The request's, and the port that was taken.
  bool child_ended_ = false;
  bool left_behind_ = false;  ///< A process that had a SIGKILL before its command began has not gone yet.
  bool running_ = false;      ///< The command was seen to run.
  bool none_left_ = false;
  bool others_left_ = false;  ///< All that is left are other users' processes.
  Phase phase_ = Phase::kRunning;
  bool stop_wanted_ = false;
  StopRequest stop_;          ///< As it was ordered.
  int sent_signal_ = 0;       ///< To the job, before its SIGKILL.
  bool until_saved_ = false;  ///< In its grace: it ends as soon as it says that its work is saved.
  int64_t saved_before_ = 0;  ///< Time that it had said until then.
  Time next_saved_look_;
  Duration kill_pause_ = kKillPauseFirst;
  Time started_;
  Duration max_runtime_;  ///< As it is now.
  Time deadline_ = kNever;
  Time kill_at_ = kNever;
  Time silent_since_;
  Time next_watch_;
  int unified_ = -1;
};

}  // namespace

void block_shim_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, stop_signal(), ready_signal()})
    sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

void run_attempt_shim(const ShimContext& context, std::string_view packet) {
  const std::optional<StartView> request = decode_start(packet);
  if (!request) _exit(2);  // The agent encodes what we decode: this is another version's agent.
  AttemptShim shim(context, *request);
  shim.run();
  _exit(0);
}

}  // namespace gpusched::shim
