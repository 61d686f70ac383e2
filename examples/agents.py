#!/usr/bin/env python3
"""Agents that submit many small tasks at once, each in its own thread, and wait until all have ended.

    gpu-scheduler dev                       # in one terminal, with GPU_SCHEDULER_TASKS_OTHER_COMMAND='wc -c'
    examples/agents.py --tasks 2000         # in another

A client of algogpu.GPUScheduler (docs/reference/agent-tasks.md) in Python: needs python3-grpcio, python3-protobuf and
protoc. Exit status 0 only if every task completed. A task that is refused for good ends the run, which says why.
"""

import argparse
import collections
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import grpc

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto" / "algogpu" / "algogpu.proto"
COMPLETED, FAILED, CANCELLED = 2, 3, 4  # TaskStatus
OTHER = 4  # TaskType
LATER = ("queue is full", "insufficient token")  # Refusals that pass.


def contract():
    """The messages, generated from the contract."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["protoc", f"--proto_path={PROTO.parent}", f"--python_out={out}", PROTO.name], check=True)
        sys.path.insert(0, out)
        try:
            return importlib.import_module("algogpu_pb2")
        finally:
            sys.path.remove(out)


class Scheduler:
    """The calls that are used here, over one connection."""

    def __init__(self, address, key):
        self.messages = contract()
        channel = grpc.insecure_channel(address)
        self.metadata = [("authorization", f"Bearer {key}")] if key else []
        self.submit_call = channel.unary_unary("/algogpu.GPUScheduler/SubmitTask",
                                               self.messages.TaskRequest.SerializeToString,
                                               self.messages.TaskResponse.FromString)
        self.events_call = channel.unary_stream("/algogpu.GPUScheduler/TaskEvents",
                                                self.messages.TaskEventsRequest.SerializeToString,
                                                self.messages.TaskEvent.FromString)

    def submit(self, **fields):
        return self.submit_call(self.messages.TaskRequest(task_type=OTHER, **fields), metadata=self.metadata,
                                timeout=60, wait_for_ready=True)

    def events(self):
        return self.events_call(self.messages.TaskEventsRequest(), metadata=self.metadata, wait_for_ready=True)


class Ends:
    """How the tasks of this run ended, as the scheduler tells it."""

    def __init__(self, scheduler, run, tasks):
        self.run, self.tasks = run, tasks
        self.states = {}
        self.last = time.monotonic()  # When one ended, or this began.
        self.broken = ""
        self.changed = threading.Condition()
        self.stream = scheduler.events()
        self.stream.initial_metadata()  # From here on every change is told.
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for event in self.stream:
                if event.task_id.startswith(self.run) and event.status in (COMPLETED, FAILED, CANCELLED):
                    with self.changed:
                        self.states[event.task_id] = event.status
                        self.last = time.monotonic()
                        self.changed.notify()
        except grpc.RpcError as error:
            with self.changed:
                self.broken = f"the events broke off: {error.details()}"
                self.changed.notify()

    def wait(self, patience_s):
        """Prints how far they are until all have ended; else says why it waits no longer."""
        shown = -1
        with self.changed:
            while len(self.states) < self.tasks:
                if self.broken:
                    return self.broken
                if not self.changed.wait(patience_s):
                    return f"nothing happened for {patience_s:g} s; is a node there? (gpu-cli node list)"
                if len(self.states) * 10 // self.tasks != shown:
                    shown = len(self.states) * 10 // self.tasks
                    print(f"  {len(self.states)} of {self.tasks} have ended", flush=True)
        return ""


class Submissions:
    """What all agents have together: what was refused, and whether there is any use in going on."""

    def __init__(self, scheduler, ends, patience_s):
        self.scheduler, self.ends, self.patience_s = scheduler, ends, patience_s
        self.refused = collections.Counter()
        self.failure = ""
        self.over = threading.Event()  # No agent submits any more.

    def end(self, failure):
        self.failure = self.failure or failure
        self.over.set()

    def submit(self, name, user):
        """A full queue is no error: what is refused for now is tried again, and nothing else is."""
        since = time.monotonic()
        while not self.over.is_set():
            try:
                answer = self.scheduler.submit(task_id=name, user_id=user, payload=name.encode())
            except grpc.RpcError as error:
                return self.end(f"{name} could not be submitted: {error.details()}")
            if answer.accepted:
                return None
            if not any(words in answer.message for words in LATER):
                return self.end(f"{name} was refused: {answer.message}")
            self.refused[answer.message] += 1
            if time.monotonic() - max(since, self.ends.last) > self.patience_s:
                return self.end(f"{name} was refused for {self.patience_s:g} s, in which no task ended: "
                                f"{answer.message}")
            self.over.wait(0.1)
        return None


def be_agent(submissions, run, number, tasks):
    """Submits its tasks one after the other."""
    for task in range(tasks):
        submissions.submit(f"{run}-agent-{number}-task-{task}", f"agent-{number}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--address", default="127.0.0.1:9090", help="of the scheduler's gRPC port")
    parser.add_argument("--tasks", type=int, default=2000, help="of all agents together")
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS", help="without any task's end")
    options = parser.parse_args()
    each = max(options.tasks // options.agents, 1)
    tasks = each * options.agents
    scheduler = Scheduler(options.address, os.environ.get("GPU_SCHEDULER_API_TOKEN", ""))
    run = f"run-{os.getpid()}-{int(time.time())}"
    ends = Ends(scheduler, run, tasks)
    submissions = Submissions(scheduler, ends, options.patience)
    began = time.monotonic()
    agents = [threading.Thread(target=be_agent, args=(submissions, run, number, each))
              for number in range(options.agents)]
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    if submissions.failure:
        print(f"{submissions.failure}; what was accepted goes on (gpu-cli list)", file=sys.stderr)
        return 1
    took = time.monotonic() - began
    print(f"{tasks} tasks of {options.agents} agents were accepted in {took:.1f} s ({tasks / took:.0f} per second)")
    for message, times in submissions.refused.items():
        print(f"  {times} times: {message}; tried again")
    problem = ends.wait(options.patience)
    took = time.monotonic() - began
    how = collections.Counter(ends.states.values())
    print(f"completed {how[COMPLETED]}, failed {how[FAILED]}, cancelled {how[CANCELLED]} "
          f"in {took:.1f} s ({len(ends.states) / took:.0f} per second)")
    if problem:
        print(problem, file=sys.stderr)
    return 0 if how[COMPLETED] == tasks else 1


if __name__ == "__main__":
    sys.exit(main())
