"""A client of the tasks of agents, generated from the contract as clients have it."""

import re
import subprocess
import sys
import threading

import google.protobuf  # noqa: F401  What is generated needs it.
import grpc
from harness import PATIENCE_S, wait_until

# Not the project's file: what existing clients were made of, names and numbers.
CONTRACT = """
syntax = "proto3";
package algogpu;
service GPUScheduler {
  rpc SubmitTask(TaskRequest) returns (TaskResponse);
  rpc GetTaskStatus(TaskStatusRequest) returns (TaskStatusResponse);
  rpc CancelTask(CancelTaskRequest) returns (CancelTaskResponse);
  rpc GetGPUStatus(GetGPUStatusRequest) returns (GPUStatusResponse);
  rpc TaskEvents(TaskEventsRequest) returns (stream TaskEvent);
}
enum TaskType { TASK_TYPE_UNSPECIFIED = 0; TASK_TYPE_EMBEDDING = 1; TASK_TYPE_LLM = 2; TASK_TYPE_DIFFUSION = 3;
                TASK_TYPE_OTHER = 4; }
enum TaskStatus { TASK_STATUS_PENDING = 0; TASK_STATUS_RUNNING = 1; TASK_STATUS_COMPLETED = 2; TASK_STATUS_FAILED = 3;
                  TASK_STATUS_CANCELLED = 4; TASK_STATUS_REJECTED = 5; }
message TaskRequest { string task_id = 1; string user_id = 2; TaskType task_type = 3; int64 gpu_memory_required = 4;
                      int64 gpu_compute_required = 5; int64 estimated_runtime_ms = 6; bytes payload = 7; }
message TaskResponse { bool accepted = 1; string message = 2; TaskStatus status = 3; }
message TaskStatusRequest { string task_id = 1; }
message TaskStatusResponse { string task_id = 1; TaskStatus status = 2; string message = 3; int64 created_at = 4;
                             int64 started_at = 5; int64 completed_at = 6; }
message CancelTaskRequest { string task_id = 1; }
message CancelTaskResponse { bool success = 1; string message = 2; }
message GetGPUStatusRequest {}
message GPUInfo { int32 gpu_id = 1; string name = 2; int64 memory_total = 3; int64 memory_used = 4;
                  int64 memory_free = 5; int32 compute_util = 6; int32 memory_util = 7; int32 temperature = 8;
                  repeated string running_tasks = 9; }
message GPUStatusResponse { repeated GPUInfo gpus = 1; int64 timestamp = 2; }
message TaskEventsRequest {}
message TaskEvent { string task_id = 1; TaskStatus status = 2; string message = 3; int64 timestamp = 4; }
"""

PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, REJECTED = range(6)
UNSPECIFIED, EMBEDDING, LLM, DIFFUSION, OTHER = range(5)


def contract_in(out):
    """The generated module; `out` is a new folder for it."""
    out.mkdir()
    (out / "agents_contract.proto").write_text(CONTRACT)
    done = subprocess.run(["protoc", f"--proto_path={out}", f"--python_out={out}", "agents_contract.proto"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sys.path.insert(0, str(out))
    try:
        import agents_contract_pb2
    finally:
        sys.path.remove(str(out))
    return agents_contract_pb2


class Client:
    """One client: a method for each call, and the events that it was told."""

    def __init__(self, contract, port, secret):
        self.contract = contract
        # A connection of its own: another client's may be of a scheduler that was killed.
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1)])
        self.metadata = (("authorization", f"Bearer {secret}"),)
        self.events = []
        for method in contract.DESCRIPTOR.services_by_name["GPUScheduler"].methods:
            if method.name != "TaskEvents":
                setattr(self, method.name, self._unary(method))

    def _unary(self, method):
        request = getattr(self.contract, method.input_type.name)
        rpc = self.channel.unary_unary(f"/algogpu.GPUScheduler/{method.name}",
                                       request_serializer=request.SerializeToString,
                                       response_deserializer=getattr(self.contract,
                                                                     method.output_type.name).FromString)
        return lambda **fields: rpc(request(**fields), timeout=PATIENCE_S, wait_for_ready=True,
                                    metadata=self.metadata)

    def listen(self):
        rpc = self.channel.unary_stream("/algogpu.GPUScheduler/TaskEvents",
                                        request_serializer=self.contract.TaskEventsRequest.SerializeToString,
                                        response_deserializer=self.contract.TaskEvent.FromString)
        stream = rpc(self.contract.TaskEventsRequest(), metadata=self.metadata, wait_for_ready=True)

        def collect():
            try:
                for event in stream:
                    self.events.append(event)
            except grpc.RpcError:
                pass  # The channel was closed.

        threading.Thread(target=collect, daemon=True).start()

    def told_of(self, task):
        return [event.status for event in list(self.events) if event.task_id == task]

    def submit(self, task, **fields):
        """The job of an accepted task."""
        answer = self.SubmitTask(task_id=task, **fields)
        assert answer.accepted, answer.message
        return re.fullmatch(r"(job-\d+): Task accepted( before)?", answer.message).group(1)

    def refused(self, task, **fields):
        answer = self.SubmitTask(task_id=task, **fields)
        assert (answer.accepted, answer.status) == (False, REJECTED), answer
        return answer.message

    def wait_for(self, task, status):
        wait_until(f"task {task} is {status}", lambda: self.GetTaskStatus(task_id=task).status == status)
        return self.GetTaskStatus(task_id=task)
