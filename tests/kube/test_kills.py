"""Programs are killed at random while pods and gangs are bound: no device twice, no gang in part, nothing left over."""

import contextlib
import http.client
import os
import random
import time

import pytest
from control_plane import harness
from gpu_world import GpuWorld, record_of

KILLS = int(os.environ.get("GPUSCHED_KILLS") or 200)
KILLS_A_ROUND = 5
SINGLE = [f"p{i}" for i in range(5)]
GANG = ["m0", "m1", "m2"]


class Chaos:
    """A cluster whose programs die: the scheduler of pods, the engine, the API server, etcd."""

    def __init__(self, plane, program, folder):
        self.plane = plane
        self.cluster = GpuWorld(plane, program, folder)
        self.namespace = plane.namespace()
        self.nodes = [self.cluster.add_node(gpus=4) for _ in range(2)]
        self.kills = {"bridge": 0, "engine": 0, "kube-apiserver": 0, "etcd": 0}

    def surely(self, call, *words, **spec):
        """Calls until the API server has answered; what was there already is no error."""
        def once():
            with contextlib.suppress(OSError, http.client.HTTPException):
                try:
                    call(*words, **spec)
                    return True
                except AssertionError as error:
                    return "AlreadyExists" in str(error)
            return False

        harness.wait_until(f"{call.__name__} {words} is done", once)

    def kill(self, victim):
        self.kills[victim] += 1
        if victim in ("bridge", "engine"):
            program = getattr(self.cluster, victim)
            program.kill()
            program.start()
            return
        self.plane.kill(victim)
        if victim == "etcd":
            self.plane.start_etcd()
        else:
            self.plane.start_apiserver()
        harness.wait_until("the API server answers", self.is_ready)

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.plane.api("GET", "/readyz")[0] == 200
        return False

    def submit(self):
        """One pod, or the pods of the gang, a step."""
        cluster, namespace = self.cluster, self.namespace
        for name in SINGLE:
            self.surely(cluster.claim, namespace, name)
            self.surely(cluster.pod, namespace, name, name)
            yield
        self.surely(cluster.gang, namespace, minimum=len(GANG))
        self.surely(cluster.claim, namespace, "member", gangRef="gang")
        for name in GANG:
            self.surely(cluster.pod, namespace, name, "member")
        yield

    def look(self):
        """All pods are bound, each device has one pod, and there is a lease for each and no other."""
        pods = [self.cluster.wait_bound(self.namespace, name) for name in SINGLE + GANG]
        held = [(record_of(pod)["node"], one["id"]) for pod in pods for one in record_of(pod)["devices"]]
        assert sorted(held) == sorted((node, gpu) for node in self.nodes for gpu in range(4)), held
        assert len({record_of(pod)["job"] for pod in pods[len(SINGLE):]}) == 1
        self.cluster.wait_leases(self.namespace, {f"gpu-{node}-{gpu}" for node, gpu in held})

    def clear(self):
        """The pods end: within 30 s nothing is held any more."""
        for name in SINGLE + GANG:
            self.cluster.finish(self.namespace, name)
        began = time.monotonic()
        self.cluster.wait_leases(self.namespace, ())
        assert time.monotonic() - began < 30 * max(harness.FACTOR, 1)
        for node in self.nodes:
            harness.wait_until(f"all GPUs of {node} are free", lambda node=node: self.cluster.free(node) == 4)
        for name in SINGLE + GANG:
            self.cluster.delete_pod(self.namespace, name)
        path = f"/apis/gpu.scheduling/v1/namespaces/{self.namespace}"
        for claim in (*SINGLE, "member"):
            self.plane.api("DELETE", f"{path}/gpuclaims/{claim}")
        self.plane.api("DELETE", f"{path}/gpugangs/gang")
        jobs = self.cluster.engine.api().jobs()
        assert not [job for job in jobs if job["state"] not in harness.FINAL]


@pytest.fixture(name="chaos")
def chaos_fixture(own_control_plane, go_program, session_folder):
    chaos = Chaos(own_control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield chaos
    chaos.cluster.end()


def test_kills_at_any_time_bind_nothing_twice_and_leave_nothing(chaos):
    draw = random.Random(harness.SEED)
    while sum(chaos.kills.values()) < KILLS:
        steps = chaos.submit()
        for _ in range(KILLS_A_ROUND):
            next(steps, None)
            time.sleep(draw.uniform(0, 1))
            chaos.kill(draw.choice(list(chaos.kills)))
        for _ in steps:
            pass
        chaos.look()
        chaos.clear()
        print(chaos.kills, flush=True)
