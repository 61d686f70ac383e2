#include "shim/worker/task_wire.h"

#include <gtest/gtest.h>

namespace gpusched::shim {
namespace {

const AttemptKey kSentTask{JobId{12}, 2, 0};

TEST(TaskWire, ATaskIsReadAsItWasSent) {
  const std::string frame("{\"id\":\"12-2-0\"}\n\0\xFF", 18);
  const std::string packet = encode(WorkerTask{.key = kSentTask, .max_runtime = seconds(3), .frame = frame});
  const std::optional<WorkerTask> read = decode_task(packet);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->key, kSentTask);
  EXPECT_EQ(read->max_runtime, seconds(3));
  EXPECT_EQ(read->frame, frame);
  for (std::size_t size = 0; size < packet.size(); ++size)
    EXPECT_FALSE(decode_task(std::string_view(packet).substr(0, size))) << size;
  EXPECT_FALSE(decode_task(packet + "x"));
  EXPECT_FALSE(decode_task(encode(WorkerTask{.key = kSentTask, .max_runtime = Duration{-1}, .frame = {}})));
  EXPECT_FALSE(decode_task(encode(
      WorkerTask{.key = kSentTask, .max_runtime = {}, .frame = std::string(kTaskFrameBytesMax + 1, 'x')})));
}

TEST(TaskWire, ATaskMayNameASpareFolder) {
  WorkerTask task{.key = kSentTask, .max_runtime = {}, .frame = "{}\n", .spare_folder = "12"};
  const std::string packet = encode(task);
  const std::optional<WorkerTask> read = decode_task(packet);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->frame, "{}\n");
  EXPECT_EQ(read->spare_folder, "12");
  for (std::size_t size = 0; size < packet.size(); ++size)
    EXPECT_FALSE(decode_task(std::string_view(packet).substr(0, size))) << size;
  EXPECT_FALSE(decode_task(packet + "x"));
  task.spare_folder = "../attempts/11-1-0";
  EXPECT_FALSE(decode_task(encode(task)));
}

TEST(TaskWire, ATaskMayHaveItsPayloadInAFile) {
  for (const char* const folder : {"", "12"}) {
    WorkerTask task{.key = kSentTask, .frame = "{}\n", .spare_folder = folder, .payload_bytes = 4u << 20};
    const std::string packet = encode(task);
    const std::optional<WorkerTask> read = decode_task(packet);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->frame, "{}\n");
    EXPECT_EQ(read->spare_folder, folder);
    EXPECT_EQ(read->payload_bytes, 4u << 20);
    for (std::size_t size = 0; size < packet.size(); ++size)
      EXPECT_FALSE(decode_task(std::string_view(packet).substr(0, size))) << size;
    task.payload_bytes += 1;
    EXPECT_FALSE(decode_task(encode(task)));
  }
}

TEST(TaskWire, AGreetingSaysWhichTasksThereAre) {
  WorkerGreeting greeting{.pid = 7, .shim_pid = 6, .tasks = {{.key = kSentTask, .started_unix_ns = 99}}};
  const std::string busy = encode(greeting);
  const std::optional<WorkerGreeting> read = decode_greeting(busy);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->tasks.size(), 1u);
  EXPECT_EQ(read->tasks.front().key, kSentTask);
  EXPECT_EQ(read->pid, 7);
  EXPECT_EQ(read->shim_pid, 6);
  EXPECT_EQ(read->tasks.front().started_unix_ns, 99);
  const std::optional<WorkerGreeting> idle = decode_greeting(encode(WorkerGreeting{.pid = 7}));
  ASSERT_TRUE(idle);
  EXPECT_TRUE(idle->tasks.empty());
  EXPECT_FALSE(decode_greeting(busy.substr(0, 3)));
  EXPECT_FALSE(decode_task(busy));
  greeting.tasks.push_back({.key = {JobId{13}, 1, 0}, .started_unix_ns = 100});
  const std::string two = encode(greeting);
  EXPECT_TRUE(two.starts_with(busy));  // Agents from before several tasks read that much.
  ASSERT_EQ(decode_greeting(two)->tasks.size(), 2u);
  EXPECT_EQ(decode_greeting(two)->tasks.back().started_unix_ns, 100);
  EXPECT_FALSE(decode_greeting(two.substr(0, two.size() - 1)));
}

TEST(TaskWire, WhatIsSaidOfRoomAndStopsIsReadAsItWasSent) {
  const std::optional<WorkerRoom> room = decode_room(encode(WorkerRoom{.tasks = 8, .cancels = true}));
  ASSERT_TRUE(room);
  EXPECT_EQ(room->tasks, 8u);
  EXPECT_TRUE(room->cancels);
  EXPECT_FALSE(decode_room(encode(WorkerRoom{.tasks = kTasksAtOnceMax + 1})));
  const std::string packet = encode(TaskStop{.key = kSentTask, .grace = seconds(2)});
  const std::optional<TaskStop> stop = decode_stop_task(packet);
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->key, kSentTask);
  EXPECT_EQ(stop->grace, seconds(2));
  EXPECT_FALSE(decode_task(packet));
  EXPECT_FALSE(decode_greeting(packet));
  EXPECT_FALSE(decode_stop_task(encode(TaskStop{.key = kSentTask, .grace = Duration{-1}})));
}

TEST(TaskWire, AWorkerSaysHowManyTasksItTakes) {
  EXPECT_EQ(parse_ready_line("ready 8")->tasks, 8u);
  EXPECT_FALSE(parse_ready_line("ready 8")->cancels);
  EXPECT_TRUE(parse_ready_line("ready 1 later cancel")->cancels);
  EXPECT_TRUE(parse_ready_line("ready 1 health cancel")->checked);
  EXPECT_EQ(parse_healthy_line("healthy 7"), 7u);
  for (const char* line : {"healthy", "healthy ", "healthy x", "healthy 7 "})
    EXPECT_FALSE(parse_healthy_line(line)) << line;
  for (const char* line : {"ready ", "ready", "ready x", "ready 0", "ready 65", "ready 8cancel", "12-1-0 0"})
    EXPECT_FALSE(parse_ready_line(line)) << line;
}

TEST(TaskWire, AnAnswerNamesItsTaskAndItsExitCode) {
  const std::optional<AnswerLine> answer = parse_answer_line("12-2-0 3");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->key, kSentTask);
  EXPECT_EQ(answer->exit_code, 3);
  EXPECT_EQ(answer->words, "");
  EXPECT_EQ(parse_answer_line("12-2-0 1 no such model")->words, "no such model");
  EXPECT_EQ(parse_answer_line("12-2-0 1 ")->words, "");
  for (const char* line : {"", "12-2-0", "12-2-0 ", "12-2-0 x", "12-2-0 1x", "12-2-0 -1", "12-2-0 256",
                           "12-2 0", "12-2-0  0", "0"}) {
    EXPECT_FALSE(parse_answer_line(line)) << line;
  }
}

TEST(TaskWire, NoJobHasAWorkersNumber) {
  EXPECT_FALSE(is_worker_key(kSentTask));
  EXPECT_TRUE(is_worker_key({JobId{kWorkerJobFirst}, 1, 0}));
}

}  // namespace
}  // namespace gpusched::shim
