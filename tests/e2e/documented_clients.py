"""Clients of four other systems, written from their contracts, which run the examples of these systems' documents.

    documented_clients.py SYSTEM HOST [KEY]     jobs, agent-tasks, tasks or allocations

They know their ports and nothing else; only the fourth has a place for a key. Standard library, grpcio and protobuf.
"""

import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import uuid

PATIENCE_S = 60
FINAL = ("completed", "failed", "cancelled")

SCHEDULER_CONTRACT = """
syntax = "proto3";
package scheduler;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
service SchedulerService {
  rpc SubmitJob(SubmitJobRequest) returns (SubmitJobResponse);
  rpc CancelJob(CancelJobRequest) returns (CancelJobResponse);
  rpc GetJobStatus(GetJobStatusRequest) returns (GetJobStatusResponse);
  rpc ListJobs(ListJobsRequest) returns (ListJobsResponse);
  rpc UpdateTenantQuota(UpdateTenantQuotaRequest) returns (UpdateTenantQuotaResponse);
  rpc GetClusterStatus(GetClusterStatusRequest) returns (GetClusterStatusResponse);
}
message SubmitJobRequest { string tenant_id = 1; string name = 2; int32 priority = 3; int32 gpu_count = 4;
  int64 gpu_memory_mb = 5; int32 cpu_cores = 6; int64 memory_mb = 7; string script = 8;
  map<string, string> environment = 9; string image = 10; repeated string command = 11; repeated string args = 12;
  bool gang_scheduling = 13; google.protobuf.Duration max_runtime = 14; bool checkpoint_enabled = 15;
  map<string, string> labels = 16; }
message SubmitJobResponse { string job_id = 1; string status = 2; string message = 3; int32 queue_position = 4;
  google.protobuf.Duration estimated_wait = 5; }
message CancelJobRequest { string job_id = 1; string tenant_id = 2; }
message CancelJobResponse { bool success = 1; string message = 2; }
message GetJobStatusRequest { string job_id = 1; string tenant_id = 2; }
message GetJobStatusResponse { string job_id = 1; string state = 2; string message = 3;
  repeated string allocated_gpus = 4; string node_name = 5; int32 queue_position = 6;
  google.protobuf.Duration estimated_wait = 7; google.protobuf.Timestamp submitted_at = 8;
  google.protobuf.Timestamp started_at = 9; google.protobuf.Timestamp completed_at = 10;
  map<string, double> metrics = 11; }
message ListJobsRequest { string tenant_id = 1; string state = 2; int32 limit = 3; int32 offset = 4; }
message ListJobsResponse { repeated JobInfo jobs = 1; int32 total = 2; }
message JobInfo { string job_id = 1; string name = 2; string state = 3; int32 gpu_count = 4;
  google.protobuf.Timestamp submitted_at = 5; google.protobuf.Timestamp started_at = 6; int32 priority = 7; }
message UpdateTenantQuotaRequest { string tenant_id = 1; int32 max_gpus = 2; int64 max_gpu_memory_mb = 3;
  int32 max_cpu_cores = 4; int64 max_memory_mb = 5; int32 max_concurrent_jobs = 6; }
message UpdateTenantQuotaResponse { bool success = 1; string message = 2; }
message GetClusterStatusRequest {}
message GetClusterStatusResponse { int32 total_gpus = 1; int32 available_gpus = 2; int32 total_nodes = 3;
  int32 online_nodes = 4; int32 total_jobs = 5; int32 pending_jobs = 6; int32 running_jobs = 7;
  double avg_gpu_utilization = 8; }
"""


class Rest:
    def __init__(self, host, port, prefix="", key=None):
        self.host, self.port, self.prefix, self.key = host, port, prefix, key

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        try:
            sent = dict(headers or {})
            if self.key:
                sent["Authorization"] = f"Bearer {self.key}"
            if body is not None:
                sent["Content-Type"] = "application/json"
            connection.request(method, self.prefix + path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ask(self, method, path, body=None, expected=200, headers=None):
        status, answer = self.call(method, path, body, headers)
        assert status == expected, (method, path, body, status, answer)
        return answer


def wait_until(what, look):
    end = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"not within {PATIENCE_S} s: {what}; last seen: {found}"
        time.sleep(0.05)


def contract(name, text):
    """The module that protoc makes of a contract."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / f"{name}.proto").write_text(text)
        subprocess.run(["protoc", f"--proto_path={folder}", "--proto_path=/usr/include", f"--python_out={folder}",
                        f"{name}.proto"], check=True, timeout=PATIENCE_S)
        sys.path.insert(0, folder)
        return __import__(f"{name}_pb2")


class Grpc:
    """The calls of one service by their names."""

    def __init__(self, module, service, target):
        import grpc  # pylint: disable=import-outside-toplevel

        self.module = module
        self.channel = grpc.insecure_channel(target)
        descriptor = module.DESCRIPTOR.services_by_name[service]
        for method in descriptor.methods:
            request, response = getattr(module, method.input_type.name), getattr(module, method.output_type.name)
            path = f"/{descriptor.full_name}/{method.name}"
            if method.name == "TaskEvents":
                self.events = self.channel.unary_stream(path, request.SerializeToString, response.FromString)
                continue
            rpc = self.channel.unary_unary(path, request.SerializeToString, response.FromString)
            setattr(self, method.name,
                    lambda rpc=rpc, request=request, **fields: rpc(request(**fields), timeout=PATIENCE_S))


def jobs(host, _):
    """Tenants, jobs and the cluster, over REST on 8080 and gRPC on 9090."""
    bare, rest = Rest(host, 8080), Rest(host, 8080, "/api/v1")
    assert bare.ask("GET", "/health")["status"] == "healthy"
    assert rest.ask("GET", "/health")["status"] == "healthy"
    tenant = rest.ask("POST", "/tenants", {"name": "research-team", "email": "research@example.com", "max_gpus": 4,
                                           "max_concurrent_jobs": 10, "priority_tier": "critical",
                                           "fair_share_weight": 1.0}, 201)
    assert tenant["id"].startswith("tenant-") and tenant["priority_tier"] == "critical"
    body = {"tenant_id": tenant["id"], "name": "training-job", "priority": 500, "gpu_count": 2, "gpu_memory_mb": 16384,
            "script": "echo $CUDA_VISIBLE_DEVICES", "environment": {"EPOCHS": "3"}, "gang_scheduling": True}
    job = rest.ask("POST", "/jobs", body, 201)
    assert job["status"] == "submitted" and job["message"] == "Job submitted successfully"
    path = f"/jobs/{job['job_id']}"
    done = wait_until("the job ends", lambda: (seen := rest.ask("GET", path))["state"] in FINAL and seen)
    assert done["state"] == "completed" and len(done["allocated_gpus"]) == 2 and done["exit_code"] == 0, done
    listed = rest.ask("GET", f"/jobs?tenant_id={tenant['id']}")
    assert listed["total"] == 1 and listed["jobs"][0]["id"] == job["job_id"]
    long = rest.ask("POST", "/jobs", {"tenant_id": tenant["id"], "command": ["sleep", "600"], "gpu_count": 1}, 201)
    assert rest.ask("DELETE", f"/jobs/{long['job_id']}") == {"message": "Job cancelled successfully"}
    cluster = rest.ask("GET", "/cluster/status")
    assert cluster["total_nodes"] == cluster["online_nodes"] == 1 and cluster["total_gpus"] == 4
    assert rest.ask("PUT", f"/tenants/{tenant['id']}", {"max_gpus": 3})["max_gpus"] == 3

    grpc = Grpc(contract("scheduler", SCHEDULER_CONTRACT), "SchedulerService", f"{host}:9090")
    made = grpc.SubmitJob(tenant_id=tenant["id"], name="by-grpc", priority=100, gpu_count=1, script="true")
    wait_until("it ends", lambda: grpc.GetJobStatus(job_id=made.job_id, tenant_id=tenant["id"]).state == "completed")
    assert grpc.ListJobs(tenant_id=tenant["id"], limit=10).total == 3
    assert grpc.GetClusterStatus().total_gpus == 4
    assert grpc.UpdateTenantQuota(tenant_id=tenant["id"], max_gpus=2).success
    rest.ask("DELETE", f"/tenants/{tenant['id']}")


def agent_tasks(host, _):
    """Small tasks over gRPC on 50051, and what is told of them over HTTP on 8081."""
    from agent_client import CONTRACT  # pylint: disable=import-outside-toplevel

    module = contract("agents_contract", CONTRACT)
    client = Grpc(module, "GPUScheduler", f"{host}:50051")
    tag = uuid.uuid4().hex[:6]
    stream = client.events(module.TaskEventsRequest(), timeout=PATIENCE_S)
    kinds = (module.TASK_TYPE_EMBEDDING, module.TASK_TYPE_LLM, module.TASK_TYPE_DIFFUSION, module.TASK_TYPE_OTHER,
             module.TASK_TYPE_UNSPECIFIED)
    tasks = {f"task-{tag}-{number}": kind for number, kind in enumerate(kinds)}
    for task, kind in tasks.items():
        answer = client.SubmitTask(task_id=task, user_id="user-1", task_type=kind, gpu_memory_required=1024,
                                   gpu_compute_required=10, estimated_runtime_ms=500, payload=b"hello")
        assert answer.accepted, answer
    for task in tasks:
        done = wait_until(f"{task} ends", lambda task=task: (seen := client.GetTaskStatus(task_id=task)).status in (
            module.TASK_STATUS_COMPLETED, module.TASK_STATUS_FAILED) and seen)
        assert done.status == module.TASK_STATUS_COMPLETED, done
        assert 0 < done.created_at <= done.started_at <= done.completed_at
    ended = set()
    for event in stream:
        ended |= {event.task_id} if event.status == module.TASK_STATUS_COMPLETED else set()
        if ended >= set(tasks):
            break
    stream.cancel()
    unknown = client.GetTaskStatus(task_id="nobody's")
    assert (unknown.status, unknown.message) == (module.TASK_STATUS_FAILED, "Task not found")
    assert not client.CancelTask(task_id="nobody's").success
    gpus = client.GetGPUStatus().gpus
    assert len(gpus) == 4 and all(gpu.memory_total > 0 and gpu.name for gpu in gpus)

    rest = Rest(host, 8081)
    health = rest.ask("GET", "/health")
    assert health["status"] == "healthy" and isinstance(health["timestamp"], int)
    assert len(rest.ask("GET", "/gpu/metrics")) == 4
    assert rest.ask("GET", "/queue/status")["queue_size"] == 0
    metrics = rest.ask("GET", "/metrics")
    assert metrics["completed_tasks"] >= len(tasks) and len(json.loads(metrics["gpu_metrics"])) == 4


def tasks(host, _):
    """Online and batch tasks over REST on 8080, and the quota between them."""
    rest = Rest(host, 8080, "/api/v1")
    before = rest.ask("GET", "/quota")
    assert before["total_gpus"] == 4
    # Nobody divided the cluster: each kind may use all of it, and the first task changes nothing of that.
    assert before["online"]["quota"] == before["batch"]["quota"] == 4, before
    made = {priority: rest.ask("POST", "/tasks", {
        "priority": priority, "gpu_count": 1, "command": "sh -c 'echo \"two words\"'", "env": {"MODEL": "x"}}, 201)
        for priority in ("high", "low")}
    for priority, task in made.items():
        assert task["status"] == "pending" and task["created_at"]
        seen = wait_until("it ends", lambda task=task: (now := rest.ask("GET", f"/tasks/{task['task_id']}"))[
            "status"] in ("success", "failed") and now)
        assert (seen["status"], seen["priority"], seen["gpu_count"]) == ("success", priority, 1), seen
    assert rest.ask("GET", "/quota")["online"]["quota"] == 4
    assert rest.ask("GET", "/tasks?priority=high&status=success")["total"] >= 1
    gpus = rest.ask("GET", "/gpus")
    assert (gpus["total"], gpus["offline"]) == (4, 0) and {gpu["status"] for gpu in gpus["gpus"]} <= {"idle", "busy"}
    long = rest.ask("POST", "/tasks", {"priority": "low", "gpu_count": 1, "command": "sleep 600"}, 201)["task_id"]
    wait_until("it runs", lambda: rest.ask("GET", f"/tasks/{long}")["status"] == "running")
    assert rest.ask("DELETE", f"/tasks/{long}") == {"message": "Task cancelled"}
    assert rest.ask("PUT", "/quota", {"online_percent": 0.75}) == {"message": "Quota updated"}
    after = rest.ask("GET", "/quota")
    assert (after["online"]["quota"], after["batch"]["quota"]) == (3, 1)


def allocations(host, key):
    """GPUs held for somebody, over REST on 8000, with a key."""
    assert Rest(host, 8000).ask("GET", "/health") == {"status": "ok"}
    prefix = "/api/gpuscheduler/v1"
    Rest(host, 8000, prefix).ask("GET", "/gpus", expected=401)
    rest = Rest(host, 8000, prefix, key)
    once = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"requirements": {"min_memory_gb": 40}, "job_type": "training", "lease_minutes": 30}
    held = rest.ask("POST", "/allocate", body, 202, once)
    assert rest.ask("POST", "/allocate", body, 202, once)["gpu_id"] == held["gpu_id"]
    path = f"/gpu/{held['gpu_id']}"
    seen = wait_until("it is ready", lambda: (now := rest.ask("GET", path))["status"] in ("AVAILABLE", "BUSY") and now)
    assert seen["hostname"] and seen["lease_expires_at"]
    assert held["gpu_id"] in [gpu["id"] for gpu in rest.ask("GET", "/gpus/")]
    rest.ask("PUT", f"{path}/heartbeat", {})
    rest.ask("POST", f"{path}/renew", {"lease_minutes": 60})
    assert rest.call("DELETE", path)[0] == 200


if __name__ == "__main__":
    {"jobs": jobs, "agent-tasks": agent_tasks, "tasks": tasks, "allocations": allocations}[sys.argv[1]](
        sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
