// The queue between an agent and a worker, both played by the test.
#include "shim/worker/worker_task_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "shim/clocks.h"

namespace gpusched::shim {
namespace {

const AttemptKey kWorker{JobId{kWorkerJobFirst + 1}, 1, 0};
const AttemptKey kTask{JobId{12}, 1, 0};
const AttemptKey kOther{JobId{13}, 1, 0};
const AttemptKey kThird{JobId{14}, 1, 0};
const AttemptKey kFourth{JobId{15}, 1, 0};

class WorkerTaskQueueTest : public ::testing::Test {
 protected:
  WorkerTaskQueueTest() {
    std::string name = (std::filesystem::temp_directory_path() / "desk-XXXXXX").string();
    root_ = mkdtemp(name.data());
    path_ = root_ + '/' + kAttemptsFolder;
    std::filesystem::create_directories(path_ + "/worker");
    attempts_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    folder_ = ::open((path_ + "/worker").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    begin_desk();
  }
  void begin_desk() {
    task_queue_.emplace(attempts_, kWorker, seconds(5));
    EXPECT_EQ(task_queue_->open(folder_, environment_), "");
    worker_ = task_queue_->hand_over();
    EXPECT_EQ(worker_, kFrameDescriptor);
    task_queue_->begin(77, boot_now());
  }
  /// One that may have several tasks at once.
  void begin_desk_for(const char* tasks) {
    task_queue_.reset();
    close(worker_);
    std::filesystem::remove(path_ + "/worker/" + kWorkerSocket);
    tasks_ = std::string(kTasksVariable) + '=' + tasks;
    environment_ = {const_cast<char*>("GPU_SCHEDULER_WORKER_IDLE_MS=1000"), tasks_.data(), nullptr};
    begin_desk();
  }
  ~WorkerTaskQueueTest() override {
    task_queue_.reset();
    for (const int descriptor : {attempts_, folder_, worker_, agent_, signals_}) {
      if (descriptor >= 0) close(descriptor);
    }
    std::filesystem::remove_all(root_);
  }

  void connect_agent() {
    agent_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    const std::string path = "/proc/self/fd/" + std::to_string(folder_) + '/' + kWorkerSocket;
    std::memcpy(place.sun_path, path.c_str(), path.size() + 1);
    ASSERT_EQ(connect(agent_, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    turn();
  }
  /// Everything that waits is done.
  void turn() {
    for (int i = 0; i < 5; ++i) task_queue_->wait(signals_, Duration{});
  }
  void give(const AttemptKey& key, const std::string& frame = "{}\npayload", Duration limit = {},
            const std::string& spare = {}, uint32_t payload_bytes = 0) {
    const std::string packet = encode(WorkerTask{.key = key,
                                                 .max_runtime = limit,
                                                 .frame = frame,
                                                 .spare_folder = spare,
                                                 .payload_bytes = payload_bytes});
    ASSERT_EQ(send(agent_, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    turn();
  }
  std::string packet() {
    std::array<char, 4096> buffer;
    const ssize_t size = recv(agent_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : "";
  }
  Event event() { return decode_event(packet()).value_or(Event{.kind = EventKind::kLost}); }
  std::string frame() {
    std::array<char, 4096> buffer;
    const ssize_t size = recv(worker_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    return size > 0 ? std::string(buffer.data(), static_cast<std::size_t>(size)) : "";
  }
  void answer(const std::string& text, std::size_t at_once = 1'000) {
    const auto size = static_cast<uint32_t>(text.size());
    std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
    for (std::size_t at = 0; at < bytes.size(); at += at_once) {
      const std::string piece = bytes.substr(at, at_once);
      ASSERT_EQ(send(worker_, piece.data(), piece.size(), MSG_NOSIGNAL), static_cast<ssize_t>(piece.size()));
      turn();
    }
  }
  std::string file(const AttemptKey& key, const char* name) const {
    std::ifstream in(path_ + '/' + key_text(key) + '/' + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  void stop(const AttemptKey& key, Duration grace) {
    const std::string packet = encode(TaskStop{.key = key, .grace = grace});
    ASSERT_EQ(send(agent_, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    turn();
  }
  bool must_end(Duration later = {}) { return task_queue_->must_end(boot_now() + later); }

  std::string root_;  ///< The data folder.
  std::string path_;  ///< Its attempts.
  std::string tasks_;
  std::vector<char*> environment_ = {const_cast<char*>("GPU_SCHEDULER_WORKER_IDLE_MS=1000"), nullptr};
  int attempts_ = -1;
  int folder_ = -1;
  int worker_ = -1;
  int agent_ = -1;
  int signals_ = eventfd(0, EFD_CLOEXEC);
  std::optional<WorkerTaskQueue> task_queue_;
};

TEST_F(WorkerTaskQueueTest, AnAnswerMaySayWhyInWords) {
  connect_agent();
  packet();
  give(kTask);
  EXPECT_EQ(event().kind, EventKind::kStarted);
  answer("12-1-0 1 no such model\nits body");
  const Event ended = event();
  EXPECT_EQ(ended.outcome.exit_code, 1);
  EXPECT_EQ(ended.outcome.detail, "no such model");
  EXPECT_EQ(file(kTask, kStdoutFile), "its body");
  EXPECT_EQ(parse_outcome(kTask, file(kTask, kOutcomeFile))->detail, "no such model");
}

TEST_F(WorkerTaskQueueTest, ATaskGoesToTheWorkerAndItsAnswerIsItsOutcome) {
  connect_agent();
  const std::optional<WorkerGreeting> greeting = decode_greeting(packet());
  ASSERT_TRUE(greeting);
  EXPECT_EQ(greeting->pid, 77);
  EXPECT_TRUE(greeting->tasks.empty());
  EXPECT_NE(task_queue_->next_look(), kNever);
  EXPECT_FALSE(must_end());
  EXPECT_TRUE(must_end(seconds(2)));  // It had nothing to do.
  give(kTask);
  EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_EQ(frame(), std::string("\x0A\0\0\0{}\npayload", 14));
  EXPECT_EQ(task_queue_->next_look(), kNever);
  answer("12-1-0 3\nthe\nresult", 1);  // A byte at a time.
  const Event ended = event();
  EXPECT_EQ(ended.kind, EventKind::kEnded);
  EXPECT_EQ(ended.key, kTask);
  EXPECT_EQ(ended.outcome.cause, Cause::kExited);
  EXPECT_EQ(ended.outcome.exit_code, 3);
  EXPECT_EQ(file(kTask, kStdoutFile), "the\nresult");
  EXPECT_EQ(parse_outcome(kTask, file(kTask, kOutcomeFile)), ended.outcome);
  EXPECT_NE(task_queue_->next_look(), kNever);
  EXPECT_EQ(task_queue_->broken(), "");
  give(kOther);
  answer("13-1-0 0");
  EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_EQ(event().outcome.exit_code, 0);
  EXPECT_EQ(file(kOther, kStdoutFile), "");
}

TEST_F(WorkerTaskQueueTest, APayloadInAFileComesBehindItsFrame) {
  connect_agent();
  packet();
  std::string payload(1'000'000, 'p');  // More than the socket holds.
  payload.back() = '\0';
  const std::string path = root_ + '/' + kPayloadsFolder + '/' + key_text(kTask);
  std::filesystem::create_directory(root_ + '/' + kPayloadsFolder);
  std::ofstream(path) << payload;
  give(kTask, "{}\n", {}, {}, 1'000'000);
  EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_FALSE(std::filesystem::exists(path));
  std::string read;
  for (std::string piece = frame(); !piece.empty(); piece = frame()) {
    read += piece;
    turn();
  }
  const uint32_t size = 1'000'003;
  EXPECT_TRUE(read == std::string(reinterpret_cast<const char*>(&size), 4) + "{}\n" + payload);
  answer("12-1-0 0");
  EXPECT_EQ(event().outcome.exit_code, 0);
  give(kOther, "{}\nnext");
  EXPECT_EQ(frame(), std::string("\x07\0\0\0{}\nnext", 11));
}

TEST_F(WorkerTaskQueueTest, ATaskWhosePayloadIsGoneIsNotBegun) {
  connect_agent();
  packet();
  std::filesystem::create_directory(root_ + '/' + kPayloadsFolder);
  std::ofstream(root_ + '/' + kPayloadsFolder + '/' + key_text(kTask)) << "short";
  for (const AttemptKey& key : {kTask, kOther}) {
    give(key, "{}\n", {}, {}, 70'000);
    const Event ended = event();
    EXPECT_EQ(ended.kind, EventKind::kEnded);
    EXPECT_EQ(ended.outcome.cause, Cause::kNodeFault);
    EXPECT_TRUE(ended.outcome.detail.starts_with("cannot open the task's payload: ")) << ended.outcome.detail;
    EXPECT_EQ(frame(), "");
  }
}

/// Files that this process writes have so many bytes at most; more is an error.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &less);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  sighandler_t handler_;
  rlimit before_{};
};

TEST_F(WorkerTaskQueueTest, AResultThatCannotBeWrittenFailsItsTaskAlone) {
  connect_agent();
  packet();
  give(kTask);
  EXPECT_EQ(event().kind, EventKind::kStarted);
  {
    const FileLimit limit(4'096);
    answer("12-1-0 0\n" + std::string(6'000, 'x'));
  }
  const Event ended = event();
  EXPECT_EQ(ended.kind, EventKind::kEnded);
  EXPECT_EQ(ended.outcome.cause, Cause::kNodeFault);
  EXPECT_EQ(ended.outcome.detail, "cannot write the task's result: File too large");
  EXPECT_EQ(parse_outcome(kTask, file(kTask, kOutcomeFile)), ended.outcome);
  EXPECT_EQ(task_queue_->broken(), "");
  give(kOther);
  EXPECT_EQ(event().kind, EventKind::kStarted);
  answer("13-1-0 0\nfine");
  EXPECT_EQ(event().outcome.exit_code, 0);
  EXPECT_EQ(file(kOther, kStdoutFile), "fine");
}

TEST_F(WorkerTaskQueueTest, ATaskIsBegunOnce) {
  std::filesystem::create_directory(path_ + "/12-1-0");
  connect_agent();
  packet();
  give(kTask);
  EXPECT_EQ(event().kind, EventKind::kExists);
  EXPECT_EQ(frame(), "");
}

TEST_F(WorkerTaskQueueTest, ATaskTakesOverASpareFolderWithoutATraceOfItsPast) {
  const std::string spare = root_ + '/' + kSpareFolder + "/7";
  std::filesystem::create_directories(spare);
  chmod(spare.c_str(), 0700);
  std::ofstream(spare + '/' + kStdoutFile) << "an old and longer output";
  const Outcome old{.cause = Cause::kExited, .exit_code = 9, .detail = std::string(200, 'x')};
  std::ofstream(spare + '/' + kOutcomeFile) << format_outcome(kOther, old);
  connect_agent();
  packet();
  give(kTask, "{}\n", {}, "7");
  EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_FALSE(std::filesystem::exists(spare));
  EXPECT_EQ(file(kTask, kStdoutFile), "");
  EXPECT_FALSE(parse_outcome(kTask, file(kTask, kOutcomeFile)));
  struct stat facts{};
  ASSERT_EQ(stat((path_ + "/12-1-0").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u);
  answer("12-1-0 0\nnew");
  EXPECT_EQ(file(kTask, kStdoutFile), "new");
  EXPECT_EQ(parse_outcome(kTask, file(kTask, kOutcomeFile)), event().outcome);
}

TEST_F(WorkerTaskQueueTest, ATaskWhoseSpareFolderIsGoneGetsANewOneAndOneThatHasAFolderNone) {
  const std::string spare = root_ + '/' + kSpareFolder + "/8";
  std::filesystem::create_directories(spare);
  std::filesystem::create_directory(path_ + "/13-1-0");
  connect_agent();
  packet();
  give(kTask, "{}\n", {}, "7");
  EXPECT_EQ(event().kind, EventKind::kStarted);
  answer("12-1-0 0\n");
  event();
  give(kOther, "{}\n", {}, "8");
  EXPECT_EQ(event().kind, EventKind::kExists);
  EXPECT_TRUE(std::filesystem::exists(spare));
}

TEST_F(WorkerTaskQueueTest, ANewAgentFindsTheTaskAndTheOldOnesLastWordCounts) {
  connect_agent();
  packet();
  const std::string last = encode(WorkerTask{.key = kTask, .max_runtime = {}, .frame = "{}\n"});
  ASSERT_GT(send(agent_, last.data(), last.size(), 0), 0);
  close(agent_);  // Before the queue read it.
  connect_agent();
  const std::optional<WorkerGreeting> greeting = decode_greeting(packet());
  ASSERT_TRUE(greeting);
  ASSERT_EQ(greeting->tasks.size(), 1u);
  EXPECT_EQ(greeting->tasks.front().key, kTask);
  close(std::exchange(agent_, -1));
  turn();
  answer("12-1-0 0\nx");  // Nobody is there to hear it.
  EXPECT_TRUE(parse_outcome(kTask, file(kTask, kOutcomeFile)));
  connect_agent();
  EXPECT_TRUE(decode_greeting(packet())->tasks.empty());
}

TEST_F(WorkerTaskQueueTest, ATaskThatWaitsWhenItsAgentIsGoneNeverBegins) {
  connect_agent();
  packet();
  give(kTask);
  give(kOther);  // The worker takes one at once.
  EXPECT_EQ(event().key, kTask);
  close(std::exchange(agent_, -1));
  connect_agent();  // It is told of the first only, and takes the other for lost.
  EXPECT_EQ(decode_greeting(packet())->tasks.size(), 1u);
  frame();
  answer("12-1-0 0\n");
  EXPECT_EQ(event().key, kTask);
  EXPECT_EQ(packet(), "");
  EXPECT_EQ(frame(), "");
  EXPECT_FALSE(std::filesystem::exists(path_ + "/13-1-0"));
  give(kThird);  // Tasks that the new agent gives begin.
  EXPECT_EQ(event().key, kThird);
}

TEST_F(WorkerTaskQueueTest, AWorkerWhoseTasksOnlyWaitedEndsWithItsAgent) {
  connect_agent();
  packet();
  give(kTask);
  give(kOther);
  close(std::exchange(agent_, -1));
  turn();
  EXPECT_FALSE(must_end(seconds(60)));
  answer("12-1-0 0\n");
  EXPECT_TRUE(must_end());
}

TEST_F(WorkerTaskQueueTest, AWorkerThatDoesNotKeepToTheFramesHasToEnd) {
  connect_agent();
  packet();
  give(kTask);
  event();
  answer("99-1-0 0\n");
  EXPECT_NE(task_queue_->broken(), "");
  task_queue_->end({.cause = Cause::kSignaled, .signal = 15, .detail = "killed by SIGTERM"});
  const Event ended = event();
  EXPECT_EQ(ended.kind, EventKind::kEnded);
  EXPECT_EQ(ended.outcome.cause, Cause::kExited);
  EXPECT_EQ(ended.outcome.exit_code, 1);
  EXPECT_EQ(ended.outcome.detail, task_queue_->broken());
  EXPECT_TRUE(parse_outcome(kTask, file(kTask, kOutcomeFile)));
}

TEST_F(WorkerTaskQueueTest, AnAnswerWithoutATaskIsNone) {
  connect_agent();
  answer("12-1-0 0\n");
  EXPECT_EQ(task_queue_->broken(), "the worker answered without a task");
}

TEST_F(WorkerTaskQueueTest, AWorkerThatEndsFailsItsTask) {
  connect_agent();
  packet();
  give(kTask);
  event();
  close(std::exchange(worker_, -1));
  turn();
  EXPECT_NE(task_queue_->broken(), "");
  task_queue_->end({.cause = Cause::kExited, .exit_code = 0});
  const Event ended = event();
  EXPECT_EQ(ended.outcome.cause, Cause::kExited);
  EXPECT_EQ(ended.outcome.exit_code, 1);
  EXPECT_EQ(ended.outcome.detail, "its worker ended with exit code 0 before it answered");
}

TEST_F(WorkerTaskQueueTest, WhatEndsTheWorkerByOrderEndsItsTask) {
  connect_agent();
  packet();
  give(kTask);
  event();
  task_queue_->take_no_more();
  task_queue_->end({.cause = Cause::kTimeout, .detail = "stopped at its time limit"});
  EXPECT_EQ(event().outcome.cause, Cause::kTimeout);
}

TEST_F(WorkerTaskQueueTest, ALimitIsTheTasksAndMayBecomeLonger) {
  connect_agent();
  packet();
  give(kTask, "{}\n", milliseconds(10));
  const Time deadline = task_queue_->next_look();
  EXPECT_NE(deadline, kNever);
  EXPECT_FALSE(task_queue_->must_end(deadline - milliseconds(1)));
  std::ofstream(path_ + "/12-1-0/" + kRuntimeFile) << 60'000;
  EXPECT_FALSE(task_queue_->must_end(deadline));
  EXPECT_EQ(task_queue_->next_look(), deadline + milliseconds(59'990));
  EXPECT_TRUE(task_queue_->must_end(deadline + seconds(60)));
  EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_EQ(decode_room(packet())->tasks, 0u);
  task_queue_->end({.cause = Cause::kSignaled, .signal = 15, .detail = "killed by SIGTERM"});
  const Event ended = event();
  EXPECT_EQ(ended.outcome.cause, Cause::kTimeout);
  EXPECT_EQ(ended.outcome.detail, "stopped at its time limit of 60000 ms");
}

TEST_F(WorkerTaskQueueTest, AWorkerHasAsManyTasksAtOnceAsItTakes) {
  begin_desk_for("3");
  connect_agent();
  packet();
  for (const AttemptKey& key : {kTask, kOther, kThird, kFourth}) give(key, "{}\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(event().kind, EventKind::kStarted);
  EXPECT_EQ(packet(), "");
  EXPECT_EQ(frame(), std::string("\3\0\0\0{}\n\3\0\0\0{}\n\3\0\0\0{}\n", 21));
  EXPECT_FALSE(std::filesystem::exists(path_ + "/15-1-0"));
  answer("13-1-0 4\nin any order");
  const Event ended = event();
  EXPECT_EQ(ended.key, kOther);
  EXPECT_EQ(ended.outcome.exit_code, 4);
  EXPECT_EQ(file(kOther, kStdoutFile), "in any order");
  EXPECT_EQ(event().key, kFourth);  // It has room again.
  answer("13-1-0 0\n");             // This one was answered before.
  EXPECT_NE(task_queue_->broken(), "");
}

TEST_F(WorkerTaskQueueTest, AWorkerMayTakeFewerTasksThanItIsAllowed) {
  begin_desk_for("8");
  connect_agent();
  packet();
  answer("ready 1 cancel");
  const std::optional<WorkerRoom> room = decode_room(packet());
  ASSERT_TRUE(room);
  EXPECT_EQ(room->tasks, 1u);
  EXPECT_TRUE(room->cancels);
  give(kTask);
  give(kOther);
  EXPECT_EQ(event().key, kTask);
  EXPECT_EQ(packet(), "");
  answer("ready 64");  // It never takes more than 8.
  EXPECT_EQ(decode_room(packet())->tasks, 8u);
  EXPECT_EQ(event().key, kOther);
  answer("ready 0");
  EXPECT_NE(task_queue_->broken(), "");
}

TEST_F(WorkerTaskQueueTest, AWorkerThatCanEndsOneTaskAlone) {
  begin_desk_for("2");
  connect_agent();
  packet();
  answer("ready 2 cancel");
  packet();
  give(kTask, "{}\n", seconds(1));
  give(kOther, "{}\n");
  event();
  event();
  frame();
  EXPECT_FALSE(must_end(seconds(1)));
  EXPECT_EQ(frame(), std::string("\x14\0\0\0{\"cancel\":\"12-1-0\"}\n", 24));
  EXPECT_TRUE(must_end(seconds(7)));  // Were it not to answer.
  answer("12-1-0 0\n");
  EXPECT_EQ(event().outcome.cause, Cause::kTimeout);
  EXPECT_FALSE(must_end(seconds(7)));
  stop(kOther, seconds(1));
  EXPECT_EQ(frame().substr(4), "{\"cancel\":\"13-1-0\"}\n");
  answer("13-1-0 0\n");
  const Event ended = event();
  EXPECT_EQ(ended.key, kOther);
  EXPECT_EQ(ended.outcome.cause, Cause::kStopped);
}

TEST_F(WorkerTaskQueueTest, AWorkerThatCannotEndsWhenItsOtherTasksHave) {
  begin_desk_for("4");
  connect_agent();
  packet();
  for (const AttemptKey& key : {kTask, kOther, kThird}) give(key);
  for (int i = 0; i < 3; ++i) event();
  stop(kTask, seconds(3));
  EXPECT_EQ(decode_room(packet())->tasks, 0u);
  EXPECT_FALSE(must_end());
  give(kFourth);  // It was on its way.
  EXPECT_FALSE(std::filesystem::exists(path_ + "/15-1-0"));
  answer("13-1-0 0\n");
  EXPECT_EQ(event().key, kOther);
  EXPECT_FALSE(must_end());
  EXPECT_TRUE(must_end(seconds(3)));  // They have no longer than the one has.
  task_queue_->end({.cause = Cause::kSignaled, .signal = 15, .detail = "killed by SIGTERM"});
  const Event stopped = event();
  EXPECT_EQ(stopped.key, kTask);
  EXPECT_EQ(stopped.outcome.cause, Cause::kStopped);
  const Event other = event();
  EXPECT_EQ(other.key, kThird);
  EXPECT_EQ(other.outcome.cause, Cause::kStopped);  // Not its own doing.
  EXPECT_NE(other.outcome.detail.find("12-1-0"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path_ + "/15-1-0"));
}

TEST_F(WorkerTaskQueueTest, AWorkerThatAnswersTheTaskItWasToEndForGoesOn) {
  begin_desk_for("2");
  connect_agent();
  packet();
  give(kTask);
  give(kOther);
  event();
  event();
  stop(kTask, seconds(3));
  EXPECT_EQ(decode_room(packet())->tasks, 0u);
  give(kThird);
  answer("12-1-0 0\n");
  EXPECT_EQ(decode_room(packet())->tasks, 2u);
  EXPECT_EQ(event().outcome.cause, Cause::kStopped);  // As it was told to.
  EXPECT_EQ(event().key, kThird);
  EXPECT_FALSE(must_end(seconds(60)));
}

TEST_F(WorkerTaskQueueTest, AWorkerThatDiesFailsAllItsTasks) {
  begin_desk_for("2");
  connect_agent();
  packet();
  give(kTask);
  give(kOther);
  event();
  event();
  task_queue_->end({.cause = Cause::kSignaled, .signal = 9, .detail = "killed by SIGKILL"});
  for (const AttemptKey& key : {kTask, kOther}) {
    EXPECT_EQ(event().outcome.cause, Cause::kSignaled);
    EXPECT_TRUE(parse_outcome(key, file(key, kOutcomeFile)));
  }
}

TEST_F(WorkerTaskQueueTest, AWorkerThatWantsToBeAskedIsAndHangsWhenItDoesNotAnswer) {
  connect_agent();
  packet();
  EXPECT_FALSE(must_end(milliseconds(10)));  // It does not know of checks.
  answer("ready 1 health");
  give(kTask, "{}\n");
  event();
  frame();
  EXPECT_FALSE(must_end(milliseconds(9'000)));
  EXPECT_EQ(frame(), "");
  EXPECT_FALSE(must_end(seconds(11)));
  EXPECT_EQ(frame().substr(4), "{\"check\":1}\n");
  answer("healthy 1");
  EXPECT_FALSE(must_end(milliseconds(9'000)));
  EXPECT_FALSE(must_end(seconds(11)));
  EXPECT_EQ(frame().substr(4), "{\"check\":2}\n");
  EXPECT_FALSE(must_end(seconds(20)));
  EXPECT_TRUE(must_end(seconds(22)));
  task_queue_->end({.cause = Cause::kSignaled, .signal = 9, .detail = "killed by SIGKILL"});
  const Event ended = event();
  EXPECT_EQ(ended.outcome.cause, Cause::kExited);
  EXPECT_EQ(ended.outcome.exit_code, 1);
  EXPECT_NE(ended.outcome.detail.find("hangs"), std::string::npos);
}

TEST_F(WorkerTaskQueueTest, AWorkerWithoutATaskEndsWithItsAgent) {
  connect_agent();
  packet();
  give(kTask);
  close(std::exchange(agent_, -1));
  turn();
  EXPECT_FALSE(must_end(seconds(60)));  // It has one.
  answer("12-1-0 0\n");
  EXPECT_TRUE(must_end());
}

TEST_F(WorkerTaskQueueTest, AWorkerThatIsBeingEndedGetsNoTask) {
  connect_agent();
  packet();
  task_queue_->take_no_more();
  give(kTask);
  EXPECT_EQ(frame(), "");
  EXPECT_FALSE(std::filesystem::exists(path_ + "/12-1-0"));
}

}  // namespace
}  // namespace gpusched::shim
