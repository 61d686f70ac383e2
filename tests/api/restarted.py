"""A scheduler that is ended and started again on its folder, and what must be the same after that."""

import os
import signal
import subprocess

import pytest
from conftest import Scheduler

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")

TIMEOUT_S = 60 * max(float(os.environ.get("GPUSCHED_TEST_TIMEOUT_FACTOR", "1")), 1)
FINAL = ("completed", "failed", "cancelled")
ENVIRONMENT = {"GPU_SCHEDULER_SCHEDULER_NODE_LEASE_MS": "600000"}
OF_A_JOB = ("tenant_id", "submitted_at", "name", "priority", "user")
OF_AN_END = ("state", "exit_code", "reason", "attempts")
# Fields of a tenant that change when a window of GPU hours ends, a waiting job's deadline passes, or a job is placed.
BY_TIME = ("gpu_hours_window_ends", "current_jobs", "waiting_jobs", "successful_jobs", "failed_jobs", "current_gpus",
           "current_gpu_memory", "current_cpu_cores", "current_memory")


def of_a_job(job):
    return {name: job.get(name) for name in (*OF_A_JOB, *(OF_AN_END if job["state"] in FINAL else ()))}


def of_a_tenant(tenant):
    return {name: value for name, value in tenant.items()
            if "used" not in name and name not in BY_TIME and not isinstance(value, (dict, float))}


class Server(Scheduler):
    """A scheduler that is killed and started again on its folder."""

    def __init__(self):
        super().__init__(environment=ENVIRONMENT)
        self.acknowledged = []

    def channel(self):
        any_size = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        return grpc.insecure_channel(f"127.0.0.1:{self.ports['grpc']}", options=any_size)

    def lives(self):
        return self.process.poll() is None and self.call("GET", "/health").status == 200

    def restart(self, how):
        self.process.send_signal(how)
        self.process.wait(TIMEOUT_S)
        if how == signal.SIGKILL:
            os.unlink(os.path.join(self.folder, "data", "ports.json"))
        any_port = {f"GPU_SCHEDULER_{name}_PORT": "0" for name in ("API_HTTP", "API_GRPC", "METRICS")}
        self.process = subprocess.Popen(self.process.args, env={**os.environ, **ENVIRONMENT, **any_port},
                                        stdout=self.log, stderr=self.log)
        self.ports = self._wait_for_ports()

    def get(self, path):
        """With the credential: a tenant that is closed to anonymous callers shows them nothing."""
        return self.call("GET", path, headers=self.credential())

    def jobs(self):
        token = ""
        while True:
            page = self.get("/v1/jobs?page_size=1000" + (f"&page_token={token}" if token else "")).json
            yield from page["jobs"]
            token = page.get("next_page_token")
            if not token:
                return

    def present(self):
        """What must be the same after a restart, by kind and id."""
        jobs = {("job", job["job_id"]): of_a_job(job) for job in self.jobs()}
        tenants = {("tenant", tenant["id"]): of_a_tenant(tenant)
                   for tenant in self.get("/api/v1/tenants").json["tenants"]}
        nodes = {("node", node["name"]): node.get("labels") for node in self.get("/v1/nodes").json["nodes"]}
        return {**jobs, **tenants, **nodes}

    def missing(self):
        """Acknowledged jobs that are not there."""
        return [job for job in self.acknowledged if self.get(f"/v1/jobs/{job}").status != 200]


def is_kept(before, after):
    """A job may have ended meanwhile: its deadline passed, or its cancellation was carried out."""
    if isinstance(before, dict) and isinstance(after, dict) and "state" not in before:
        after = {name: after.get(name) for name in before}
    return after == before


def check_and_restart(server):
    """It lives, and both ways of ending it lose nothing."""
    assert server.lives(), "it does not serve any more"
    for how in (signal.SIGKILL, signal.SIGTERM):
        before = server.present()
        server.restart(how)
        assert server.lives()
        after = server.present()
        assert after.keys() == before.keys(), f"after {how.name}"
        differ = {key: (was, after[key]) for key, was in before.items() if not is_kept(was, after[key])}
        assert not differ, f"after {how.name}: {differ}, now {[after[key] for key in differ]}"
        assert server.missing() == []
