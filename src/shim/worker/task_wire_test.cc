#include "shim/worker/task_wire.h"

#include <gtest/gtest.h>

namespace gpusched::shim {
namespace {

const AttemptKey kTask{JobId{12}, 2, 0};

TEST(TaskWire, ATaskIsReadAsItWasSent) {
  const std::string frame("{\"id\":\"12-2-0\"}\n\0\xFF", 18);
  const std::string packet = encode(WorkerTask{.key = kTask, .max_runtime = seconds(3), .frame = frame});
  const std::optional<WorkerTask> read = decode_task(packet);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->key, kTask);
  EXPECT_EQ(read->max_runtime, seconds(3));
  EXPECT_EQ(read->frame, frame);
  for (std::size_t size = 0; size < packet.size(); ++size)
    EXPECT_FALSE(decode_task(std::string_view(packet).substr(0, size))) << size;
  EXPECT_FALSE(decode_task(packet + "x"));
  EXPECT_FALSE(decode_task(encode(WorkerTask{.key = kTask, .max_runtime = Duration{-1}, .frame = {}})));
  EXPECT_FALSE(decode_task(encode(
      WorkerTask{.key = kTask, .max_runtime = {}, .frame = std::string(kTaskFrameBytesMax + 1, 'x')})));
}

TEST(TaskWire, AGreetingSaysWhetherThereIsATask) {
  const std::string busy =
      encode(WorkerGreeting{.pid = 7, .shim_pid = 6, .task = kTask, .started_unix_ns = 99});
  const std::optional<WorkerGreeting> read = decode_greeting(busy);
  ASSERT_TRUE(read && read->task);
  EXPECT_EQ(*read->task, kTask);
  EXPECT_EQ(read->pid, 7);
  EXPECT_EQ(read->shim_pid, 6);
  EXPECT_EQ(read->started_unix_ns, 99);
  const std::optional<WorkerGreeting> idle = decode_greeting(encode(WorkerGreeting{.pid = 7}));
  ASSERT_TRUE(idle);
  EXPECT_FALSE(idle->task);
  EXPECT_FALSE(decode_greeting(busy.substr(0, 3)));
  EXPECT_FALSE(decode_task(busy));
}

TEST(TaskWire, AnAnswerNamesItsTaskAndItsExitCode) {
  const std::optional<AnswerLine> answer = parse_answer_line("12-2-0 3");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->key, kTask);
  EXPECT_EQ(answer->exit_code, 3);
  for (const char* line : {"", "12-2-0", "12-2-0 ", "12-2-0 x", "12-2-0 1x", "12-2-0 -1", "12-2-0 256",
                           "12-2 0", "12-2-0  0", "0"}) {
    EXPECT_FALSE(parse_answer_line(line)) << line;
  }
}

TEST(TaskWire, NoJobHasAWorkersNumber) {
  EXPECT_FALSE(is_worker_key(kTask));
  EXPECT_TRUE(is_worker_key({JobId{kWorkerJobFirst}, 1, 0}));
}

}  // namespace
}  // namespace gpusched::shim
