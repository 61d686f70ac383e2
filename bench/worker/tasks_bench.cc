// rooms: bench_load
//
// Tasks of 0 ms on persistent workers, end to end: each is submitted by a call of its own to the door for
// tasks of agents, and counts when the stream of events has told its client that it completed. Acceptances
// and ends are durable before they are told. More clients can listen to the same events meanwhile.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "algogpu/algogpu.grpc.pb.h"
#include "load/load.h"

namespace gpusched::bench {
namespace {

constexpr double kPatienceSeconds = 120;

bool is_over(const algogpu::TaskEvent& event) {
  return event.status() != algogpu::TASK_STATUS_PENDING && event.status() != algogpu::TASK_STATUS_RUNNING;
}

/// Size of one round: `tasks` of them, at most `in_flight` submissions unanswered.
struct Plan {
  int64_t tasks = 0;
  int in_flight = 256;
};

struct Round {
  double seconds = 0;           ///< From the first submission to the last end that was told.
  double accepted_seconds = 0;  ///< To the last acceptance.
  Samples lives;                ///< One a task, from before its submission until its end was told.
  std::string cores;
  double scheduler_ms = 0;  ///< Processor time of each task.
  double agent_ms = 0;      ///< The same, without shims and workers.
};

/// A client with one connection and one thread: submissions and the stream of events on one completion queue.
class Client {
 public:
  Client(const std::string& address, const std::string& token) : token_(token) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    stub_ = algogpu::GPUScheduler::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
    authorize(events_context_);
    events_ = stub_->AsyncTaskEvents(&events_context_, algogpu::TaskEventsRequest(), &queue_, &begun_);
    expect(next() == &begun_, "the stream of events did not begin");
    events_->ReadInitialMetadata(&begun_);  // From here on every change is told.
    expect(next() == &begun_, "the stream of events did not begin");
    events_->Read(&event_, &event_);
  }
  ~Client() {
    events_context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool good = false;
    while (queue_.Next(&tag, &good)) {
    }
  }

  Round run(const Plan& plan) {
    plan_ = plan;
    ++round_;
    sent_ = answered_ = ended_ = 0;
    begun_at_.assign(static_cast<std::size_t>(plan.tasks), 0);
    Round round;
    const int64_t begin = now_ns();
    std::vector<Call> calls(static_cast<std::size_t>(std::min<int64_t>(plan.in_flight, plan.tasks)));
    for (Call& call : calls) send_next(call);
    while (ended_ < plan.tasks || answered_ < plan.tasks) {
      void* const tag = next();
      if (tag == &event_) {
        take_event(round);
        events_->Read(&event_, &event_);
        continue;
      }
      Call& call = *static_cast<Call*>(tag);
      expect(call.status.ok(), "a submission failed: " + call.status.error_message());
      expect(call.response.accepted(), "a task was refused: " + call.response.message());
      if (++answered_ == plan.tasks) round.accepted_seconds = seconds_between(begin, now_ns());
      send_next(call);
    }
    round.seconds = seconds_between(begin, now_ns());
    return round;
  }

 private:
  struct Call {
    std::optional<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientAsyncResponseReader<algogpu::TaskResponse>> reader;
    algogpu::TaskResponse response;
    grpc::Status status;
  };

  void authorize(grpc::ClientContext& context) const {
    if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
  }

  /// The tag of what came next.
  void* next() {
    void* tag = nullptr;
    bool good = false;
    const gpr_timespec patience =
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                     gpr_time_from_seconds(static_cast<int64_t>(kPatienceSeconds), GPR_TIMESPAN));
    const auto what = queue_.AsyncNext(&tag, &good, patience);
    expect(what == grpc::CompletionQueue::GOT_EVENT,
           text_of("nothing happened for %.0f s; %lld tasks were sent, %lld accepted, %lld ended",
                   kPatienceSeconds, static_cast<long long>(sent_), static_cast<long long>(answered_),
                   static_cast<long long>(ended_)));
    expect(good, "the stream of events ended");
    return tag;
  }

  std::string prefix() const { return "round-" + std::to_string(round_) + "-task-"; }

  void send_next(Call& call) {
    if (sent_ == plan_.tasks) return;
    algogpu::TaskRequest request;
    request.set_task_id(prefix() + std::to_string(sent_));
    request.set_user_id("agent-" + std::to_string(sent_ % 20));
    request.set_task_type(algogpu::TASK_TYPE_OTHER);
    request.set_payload(request.task_id());
    begun_at_[static_cast<std::size_t>(sent_++)] = now_ns();
    call.context.emplace();
    authorize(*call.context);
    call.response.Clear();
    call.reader = stub_->AsyncSubmitTask(&*call.context, request, &queue_);
    call.reader->Finish(&call.response, &call.status, &call);
  }

  void take_event(Round& round) {
    if (!is_over(event_) || !event_.task_id().starts_with(prefix())) return;
    expect(event_.status() == algogpu::TASK_STATUS_COMPLETED,
           event_.task_id() + " did not complete: " + event_.message());
    int64_t& begun_at =
        begun_at_.at(static_cast<std::size_t>(std::atoll(event_.task_id().c_str() + prefix().size())));
    expect(begun_at > 0, event_.task_id() + " ended twice");
    round.lives.add(now_ns() - begun_at);
    begun_at = 0;
    ++ended_;
  }

  const std::string token_;
  std::unique_ptr<algogpu::GPUScheduler::Stub> stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext events_context_;
  std::unique_ptr<grpc::ClientAsyncReader<algogpu::TaskEvent>> events_;
  algogpu::TaskEvent event_;
  int begun_ = 0;  ///< A tag.
  Plan plan_;
  int round_ = 0;
  int64_t sent_ = 0, answered_ = 0, ended_ = 0;
  std::vector<int64_t> begun_at_;  ///< Begin of each task that has not ended; 0: it has.
};

/// Clients that only listen: a stream of events each, all read by one thread.
class Listeners {
 public:
  Listeners(int count, const std::string& address, const std::string& token)
      : streams_(static_cast<std::size_t>(count)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection each.
    for (Stream& stream : streams_) {
      stream.stub = algogpu::GPUScheduler::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
      if (!token.empty()) stream.context.AddMetadata("authorization", "Bearer " + token);
      stream.reader =
          stream.stub->AsyncTaskEvents(&stream.context, algogpu::TaskEventsRequest(), &queue_, &stream);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Listeners() {
    ending_ = true;
    for (Stream& stream : streams_) stream.context.TryCancel();
    queue_.Shutdown();
    thread_.join();
  }
  std::size_t count() const { return streams_.size(); }
  /// Told so far to all of them together: events, and those of them that say that a task is over.
  int64_t events() const { return events_.load(); }
  int64_t ends() const { return ends_.load(); }

 private:
  struct Stream {
    std::unique_ptr<algogpu::GPUScheduler::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientAsyncReader<algogpu::TaskEvent>> reader;
    algogpu::TaskEvent event;
    bool reads = false;
  };

  void run() {
    void* tag = nullptr;
    bool good = false;
    while (queue_.Next(&tag, &good)) {
      if (!good && ending_) continue;
      expect(good, "a listener's stream of events ended");
      Stream& stream = *static_cast<Stream*>(tag);
      if (std::exchange(stream.reads, true)) {
        events_.fetch_add(1);
        if (is_over(stream.event)) ends_.fetch_add(1);
      }
      if (!ending_) stream.reader->Read(&stream.event, &stream);
    }
  }

  std::vector<Stream> streams_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> ending_ = false;
  std::atomic<int64_t> events_ = 0, ends_ = 0;
  std::thread thread_;
};

Round measure(Client& client, Scheduler& scheduler, const Process& agent, const Plan& plan) {
  const double scheduler_before = scheduler.process().cpu_seconds();
  const double agent_before = agent.cpu_seconds();
  const CpuMeter meter({&scheduler.process(), &agent});
  Round round = client.run(plan);
  round.cores = meter.text({"scheduler", "agent"});
  const double per_task = 1'000 / static_cast<double>(plan.tasks);
  round.scheduler_ms = (scheduler.process().cpu_seconds() - scheduler_before) * per_task;
  round.agent_ms = (agent.cpu_seconds() - agent_before) * per_task;
  return round;
}

int run(int rounds, const Plan& plan, int cpus, int listener_count, std::string command) {
  const WorkFolder folder;
  if (command.empty()) {
    program("gpu-shim");  // Says what to do where nothing is built.
    command = "exec " + program("../bench/bench_worker");
  }
  print_head(folder.path());
  print_line("sizes",
             text_of("%d rounds of %lld tasks, %d submissions in flight, one node that offers %d cores and "
                     "one GPU, so as many tasks at a time; %d more streams of events; worker: %s",
                     rounds, static_cast<long long>(plan.tasks), plan.in_flight, cpus, listener_count,
                     command.c_str()));
  Scheduler scheduler(folder.path(), {{"GPU_SCHEDULER_TASKS_OTHER_COMMAND", command},
                                      {"GPU_SCHEDULER_TASKS_OTHER_WORKER", "persistent"},
                                      {"GPU_SCHEDULER_TASKS_QUEUE_SIZE", std::to_string(plan.tasks + 1)},
                                      {"GPU_SCHEDULER_TASKS_TOKENS_PER_SECOND", "0"}});
  const Process agent = start_agent(folder.path(), scheduler,
                                    {"--cpus", std::to_string(cpus), "--sim-gpus", "1xA100-SXM4-80GB"});
  Client client(scheduler.grpc_address(), scheduler.token());
  client.run({.tasks = std::max<int64_t>(plan.tasks / 10, 1), .in_flight = plan.in_flight});  // Warms up.
  const Listeners listeners(listener_count, scheduler.grpc_address(), scheduler.token());
  std::vector<double> rates;
  for (int number = 0; number < rounds; ++number) {
    const int64_t events_before = listeners.events();
    const int64_t ends_before = listeners.ends();
    const int64_t begin = now_ns();
    const Round round = measure(client, scheduler, agent, plan);
    rates.push_back(static_cast<double>(plan.tasks) / round.seconds);
    print_line(
        "round",
        text_of(
            "%6.0f tasks/s (accepted %6.0f/s)  a task's life p50 %.0f ms, p99 %.0f ms  CPU a task: scheduler "
            "%.3f ms, agent %.3f ms  ",
            rates.back(), static_cast<double>(plan.tasks) / round.accepted_seconds,
            round.lives.percentile_ms(0.5), round.lives.percentile_ms(0.99), round.scheduler_ms,
            round.agent_ms) +
            round.cores);
    if (listeners.count() == 0) continue;
    const int64_t ends = ends_before + static_cast<int64_t>(listeners.count()) * plan.tasks;
    wait_until("every listener to be told of every end", kPatienceSeconds,
               [&] { return listeners.ends() >= ends; });
    print_line(
        "events",
        text_of("%6.0f/s told to %zu streams, beside %.0f submissions/s (target >= 40000)",
                static_cast<double>(listeners.events() - events_before) / seconds_between(begin, now_ns()),
                listeners.count(), static_cast<double>(plan.tasks) / round.accepted_seconds));
  }
  const int64_t all = std::max<int64_t>(plan.tasks / 10, 1) + rounds * plan.tasks;
  expect(scheduler.job_count("completed") == all && scheduler.job_count("") == all,
         "the API counts other tasks than were told");
  print_line("checked",
             text_of("every task's end was told once, as completed, and the API counts as many (%lld)",
                     static_cast<long long>(all)));
  print_line("figure",
             text_of("%.0f tasks/s end to end, median of %d rounds (target >= 5000)", median(rates), rounds));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// tasks_bench [ROUNDS [TASKS [CORES [IN_FLIGHT [STREAMS [WORKER'S COMMAND]]]]]]
int main(int argc, char** argv) {
  const auto number = [&](int at, int64_t otherwise) { return argc > at ? std::atoll(argv[at]) : otherwise; };
  return gpusched::bench::run(static_cast<int>(number(1, 3)),
                              {.tasks = number(2, 10'000), .in_flight = static_cast<int>(number(4, 256))},
                              static_cast<int>(number(3, 16)), static_cast<int>(number(5, 0)),
                              argc > 6 ? argv[6] : "");
}
