"""Nothing on an event loop waits for the disk: a scheduler whose syncs take 250 ms, and which ends itself when a step
of its HTTP, gRPC or host loop takes more than 100 ms, lives through one of each kind of write. Time in which the
scheduler has no processor does not count, so that a busy machine fails nothing."""

import sys
import threading

import pytest
from harness import bin_dir, wait_until
from test_grpc import Client, messages_fixture, modules_fixture, services_fixture  # noqa: F401

SLOW_DISK = bin_dir().parent / "tests" / "libslow_disk.so"
SYNC_MS = 250
STEP_MS_MAX = 100
FOREVER = {"spec": {"command": ["sleep", "1000"]}}


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world(SCHEDULER_DEBUG_BLOCKED_MS=STEP_MS_MAX)
    scheduler = world.scheduler
    assert SLOW_DISK.is_file(), f"{SLOW_DISK} is missing: build the target slow_disk"
    scheduler.prefix = ["env", f"LD_PRELOAD={SLOW_DISK}", f"GPUSCHED_SLOW_DISK_MS={SYNC_MS}"]
    scheduler.start()
    world.add_agent("n1").start()
    yield world
    assert scheduler.alive(), scheduler.log_since_start()
    assert "loop_not_watched" not in scheduler.log_since_start(), scheduler.log_since_start()
    assert seconds_of_a_sync(world) >= SYNC_MS / 1_000
    assert scheduler.stop() == 0, scheduler.log_since_start()


def seconds_of_a_sync(world):
    """The mean of the journal's, as the scheduler tells it."""
    status, text, _ = world.api().call("GET", "/api/v1/metrics")
    assert status == 200, text
    told = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if "journal_sync_seconds" in line
                and not line.startswith("#"))
    (total,) = (float(value) for name, value in told.items() if name.endswith("_sum"))
    (count,) = (float(value) for name, value in told.items() if name.endswith("_count"))
    return total / count


def call(world, method, path, body=None):
    status, answer, _ = world.api().call(method, path, body)
    assert status < 300, (method, path, body, status, answer)
    return answer


def jobs_over_rest(world):
    job = call(world, "POST", "/v1/jobs", FOREVER)["job_ids"][0]
    world.api().wait_for(job, "running")
    call(world, "POST", f"/v1/jobs/{job}/requeue")
    waits = call(world, "POST", "/v1/jobs", {"jobs": [FOREVER | {"resources": {"gpu_count": 64}}] * 3})["job_ids"]
    call(world, "PATCH", f"/v1/jobs/{waits[0]}", {"priority": 7})
    call(world, "POST", f"/v1/jobs/{waits[0]}/hold")
    call(world, "POST", f"/v1/jobs/{waits[0]}/release")
    call(world, "POST", f"/v1/jobs/{waits[0]}/cancel")
    call(world, "POST", "/v1/jobs:cancel", {"job_ids": [job, *waits[1:]]})
    task = call(world, "POST", "/api/v1/tasks", {"priority": "low", "gpu_count": 1, "command": "sleep 1000"})
    call(world, "DELETE", f"/api/v1/tasks/{task['task_id']}")
    world.api().cancel(world.api().submit(["sleep", "1000"]))


def tenants_and_keys_over_rest(world):
    call(world, "POST", "/v1/tenants", {"name": "lab", "max_gpus": 4})
    call(world, "PATCH", "/v1/tenants/lab", {"max_gpus": 5})
    call(world, "POST", "/v1/cluster:edit", {"tenants": [{"name": "lab", "max_gpus": 6}, {"name": "other"}]})
    key = call(world, "POST", "/v1/keys", {"name": "robot", "tenant_id": "lab"})["key_id"]
    call(world, "POST", f"/v1/keys/{key}/bind", {"role": "user", "tenant_id": "lab"})
    call(world, "DELETE", f"/v1/keys/{key}")
    call(world, "DELETE", "/v1/tenants/other")


def services_over_rest(world):
    call(world, "POST", "/v1/services", {"name": "llm", "replicas": 1, "job": FOREVER, "ready_after_ms": 100})
    call(world, "POST", "/v1/services/llm/scale", {"replicas": 2})
    call(world, "POST", "/v1/services/llm/rollout", {"job": {"spec": {"command": ["sleep", "2000"]}}})
    wait_until("llm is rolled out", lambda: call(world, "GET", "/v1/services/llm")["state"] == "ready")
    call(world, "DELETE", "/v1/services/llm")
    wait_until("its replicas are ended", lambda: world.api().call("GET", "/v1/services/llm")[0] == 404)


def nodes_over_rest(world):
    call(world, "POST", "/v1/nodes/n1/label", {"set": {"site": "a"}})
    call(world, "POST", "/v1/nodes/n1/drain", {"reason": "a test"})
    call(world, "POST", "/v1/nodes/n1/resume")
    call(world, "POST", "/v1/nodes/n1/devices/0/condition", {"condition": "unhealthy"})
    call(world, "POST", "/v1/nodes/n1/devices/0/condition", {"condition": "ok"})
    call(world, "POST", "/v1/reservations", {"name": "r", "node_names": ["n1"], "begin_after_ms": 3_600_000,
                                             "duration_ms": 60_000})
    call(world, "DELETE", "/v1/reservations/r")
    call(world, "POST", "/v1/cluster/pause", {"reason": "a test"})
    call(world, "POST", "/v1/cluster/resume")


def leases_and_users_over_rest(world):
    prefix = "/api/gpuscheduler/v1"
    lease = call(world, "POST", f"{prefix}/allocate", {})["gpu_id"]
    call(world, "POST", f"{prefix}/gpu/{lease}/renew", {"lease_minutes": 90})
    call(world, "PUT", f"{prefix}/gpu/{lease}/heartbeat", {})
    call(world, "DELETE", f"{prefix}/gpu/{lease}")
    call(world, "POST", f"{prefix}/organizations", {"name": "vision"})
    user = call(world, "POST", f"{prefix}/users", {"email": "bo@example.org", "password": "correct horse"})["id"]
    call(world, "PUT", f"{prefix}/users/{user}", {"password": "battery staple"})
    key = call(world, "POST", f"{prefix}/api-keys", {"user_id": user})["id"]
    call(world, "DELETE", f"{prefix}/api-keys/{key}")


@pytest.mark.parametrize("write", [jobs_over_rest, tenants_and_keys_over_rest, services_over_rest, nodes_over_rest,
                                   leases_and_users_over_rest])
def test_no_write_over_rest_waits_for_the_disk_on_a_loop(world, write):
    others = [threading.Thread(target=world.api().submit, args=(["true"],)) for _ in range(8)]
    for other in others:
        other.start()
    write(world)
    for other in others:
        other.join()


def test_no_write_over_grpc_waits_for_the_disk_on_a_loop(world, messages, services):
    client = Client(world.scheduler, messages)
    keys = sys.modules["gpusched.v1.keys_pb2"]
    ask = client.call
    jobs = messages.SubmitJobsRequest()
    for gpus in (0, 64):
        wanted = jobs.jobs.add()
        wanted.spec.command.extend(["sleep", "1000"])
        wanted.resources.gpu_count = gpus
    job, waits = ask("SubmitJobs", jobs, messages.SubmitJobsResponse).job_ids
    world.api().wait_for(job, "running")
    ask("RequeueJob", messages.GetJobRequest(job_id=job), messages.Job)
    ask("UpdateJob", messages.UpdateJobRequest(job_id=waits, priority=7), messages.Job)
    ask("HoldJob", messages.GetJobRequest(job_id=waits), messages.Job)
    ask("ReleaseJob", messages.GetJobRequest(job_id=waits), messages.Job)
    ask("CancelJobs", messages.CancelJobsRequest(job_ids=[job, waits]), messages.CancelJobsResponse)

    lab = ask("CreateTenant", messages.Tenant(name="lab"), messages.Tenant)
    ask("UpdateTenant", messages.UpdateTenantRequest(tenant=messages.Tenant(tenant_id=lab.tenant_id, max_gpus=4)),
        messages.Tenant)
    key = ask("CreateKey", keys.CreateKeyRequest(name="robot", tenant_id="lab"), keys.Key)
    ask("BindRole", keys.BindRoleRequest(key_id=key.key_id, role="user", tenant_id="lab"), keys.Key)
    ask("RevokeKey", keys.RevokeKeyRequest(key_id=key.key_id), keys.Key)
    ask("DeleteTenant", messages.TenantRequest(tenant_id="lab"), messages.DeleteTenantResponse)

    ask("LabelNode", messages.LabelNodeRequest(node_name="n1", set={"site": "a"}), messages.Node)
    ask("DrainNode", messages.DrainNodeRequest(node_name="n1", reason="a test"), messages.Node)
    ask("ResumeNode", messages.NodeRequest(node_name="n1"), messages.Node)
    ask("CreateReservation", messages.Reservation(name="r", node_names=["n1"], begin_after_ms=3_600_000,
                                                  duration_ms=60_000), messages.Reservation)
    ask("CancelReservation", messages.ReservationRequest(reservation="r"), messages.CancelReservationResponse)
    ask("PauseStarts", messages.PauseStartsRequest(reason="a test"), messages.Cluster)
    ask("ResumeStarts", messages.PauseStartsRequest(), messages.Cluster)

    service = services.CreateServiceRequest(name="llm", job=jobs.jobs[0])
    ask("CreateService", service, services.Service, "Services")
    ask("ScaleService", services.ScaleServiceRequest(service="llm", replicas=2), services.Service, "Services")
    ask("DeleteService", services.ServiceRequest(service="llm"), services.Service, "Services")
    wait_until("its replicas are ended", lambda: world.api().call("GET", "/v1/services/llm")[0] == 404)
    client.channel.close()
