"""Either program dies at any time: pods keep their devices, no device has two pods, nothing is left over."""

import contextlib
import http.client
import random
import re
import time

import pytest
from control_plane import harness
from gpu_world import Bridge, GpuWorld, job_of, record_of

KILLS = 8
REQUESTS = (r'apiserver_request_total\{.*resource="(pods|gpuclaims|gpunodestatuses|leases)".*verb="(\w+)".*\} (\S+)$')


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield world
    world.end()


@pytest.fixture(name="namespace")
def namespace_fixture(cluster):
    yield cluster.plane.namespace()
    cluster.clear()


def test_a_pod_that_ended_while_the_program_was_away_is_accounted(cluster, namespace):
    node = cluster.add_node(gpus=3)
    for name in ("done", "deleted", "running"):
        cluster.claim(namespace, name)
        cluster.pod(namespace, name, name)
    jobs = {name: job_of(cluster.wait_bound(namespace, name)) for name in ("done", "deleted", "running")}
    kept = f"gpu-{node}-{record_of(cluster.get_pod(namespace, 'running'))['devices'][0]['id']}"
    cluster.bridge.kill()
    cluster.finish(namespace, "done", exit_code=5)
    cluster.delete_pod(namespace, "deleted")
    cluster.bridge.start()
    done = cluster.engine.api().wait_for(jobs["done"])
    assert (done["state"], done["exit_code"]) == ("failed", 5)
    cluster.engine.api().wait_for(jobs["deleted"])
    cluster.wait_leases(namespace, {kept})
    harness.wait_until("two GPUs are free", lambda: cluster.free(node) == 2)
    running = cluster.engine.api().job(jobs["running"])
    assert (running["state"], running["attempts"]) == ("running", 1)


def test_a_pod_that_waits_keeps_its_job_over_restarts_of_both_programs(cluster, namespace):
    cluster.claim(namespace)
    cluster.pod(namespace)
    job = cluster.wait_job(namespace)
    cluster.bridge.kill()
    cluster.engine.restart()
    cluster.bridge.start()
    cluster.add_node(gpus=1)
    assert job_of(cluster.wait_bound(namespace)) == job


def test_a_claim_that_was_edited_while_the_program_was_away_gets_what_it_says_now(cluster, namespace):
    cluster.claim(namespace, count=2)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    cluster.bridge.kill()
    cluster.patch(f"/apis/gpu.scheduling/v1/namespaces/{namespace}/gpuclaims/claim",
                  {"spec": {"devices": {"count": 1}}})
    cluster.bridge.start()
    cluster.add_node(gpus=4)
    assert len(record_of(cluster.wait_bound(namespace))["devices"]) == 1


def test_leases_of_pods_that_are_no_more_are_removed_and_others_stay(cluster, namespace):
    node = cluster.add_node(gpus=4)
    cluster.claim(namespace)
    cluster.pod(namespace)
    held = {f"gpu-{node}-{one['id']}" for one in record_of(cluster.wait_bound(namespace))["devices"]}
    for number, (pod, holder) in enumerate((("gone", "gone-uid"), ("pod", "an-earlier-pod-of-this-name")), start=2):
        cluster.plane.create(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", {
            "metadata": {"name": f"gpu-{node}-{number}", "labels": {"gpu.scheduling/managed": "true",
                                                                    "gpu.scheduling/pod": pod}},
            "spec": {"holderIdentity": holder}})
    cluster.wait_leases(namespace, held)
    harness.wait_until("three GPUs are free", lambda: cluster.free(node) == 3)


def test_kills_in_the_middle_of_binding_bind_no_device_twice_and_leave_nothing(cluster, namespace):
    nodes = [cluster.add_node(gpus=4) for _ in range(2)]
    draw = random.Random(harness.SEED)
    names = [f"p{i}" for i in range(8)]
    for number in range(KILLS):
        cluster.claim(namespace, names[number])
        cluster.pod(namespace, names[number], names[number])
        time.sleep(draw.uniform(0, 1.5))
        victim = cluster.engine if number % 3 == 2 else cluster.bridge
        victim.kill()
        victim.start()
    pods = [cluster.wait_bound(namespace, name) for name in names]
    held = [(record_of(pod)["node"], one["id"]) for pod in pods for one in record_of(pod)["devices"]]
    assert sorted(held) == sorted((node, gpu) for node in nodes for gpu in range(4))
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for node, gpu in held})
    for name in names:
        cluster.finish(namespace, name)
    cluster.wait_leases(namespace, ())
    for node in nodes:
        harness.wait_until(f"all GPUs of {node} are free", lambda node=node: cluster.free(node) == 4)
    assert not [job for job in cluster.engine.api().jobs() if job["state"] not in harness.FINAL]


def test_kills_of_the_api_server_and_of_etcd_bind_no_device_twice_and_leave_nothing(own_control_plane, go_program,
                                                                                    session_folder):
    plane = own_control_plane
    cluster = GpuWorld(plane, go_program("gpu-scheduler-kube"), session_folder)
    try:
        namespace = plane.namespace()
        node = cluster.add_node(gpus=8)
        names = [f"p{i}" for i in range(8)]
        draw = random.Random(harness.SEED)
        for number, victim in enumerate(("kube-apiserver", "etcd")):
            for name in names[4 * number:4 * number + 4]:
                cluster.claim(namespace, name)
                cluster.pod(namespace, name, name)
            time.sleep(draw.uniform(0, 0.2))
            plane.kill(victim)
            if victim == "etcd":
                plane.start_etcd()
            else:
                plane.start_apiserver()
            harness.wait_until("the API server answers", lambda: is_ready(plane))
        pods = [cluster.wait_bound(namespace, name) for name in names]
        held = [one["id"] for pod in pods for one in record_of(pod)["devices"]]
        assert sorted(held) == list(range(8))
        cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for gpu in held})
        for name in names:
            cluster.finish(namespace, name)
        cluster.wait_leases(namespace, ())
        harness.wait_until("all GPUs are free", lambda: cluster.free(node) == 8)
    finally:
        cluster.end()


def test_of_two_programs_one_works_and_the_other_takes_over(own_control_plane, go_program, session_folder):
    election = {"leaderElect": True, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "1s",
                "resourceName": "gpu-scheduler", "resourceNamespace": "kube-system"}
    cluster = GpuWorld(own_control_plane, go_program("gpu-scheduler-kube"), session_folder,
                       changes={"leaderElection": election})
    second = Bridge(own_control_plane, cluster.bridge.program, cluster.bridge.configuration)
    try:
        namespace = own_control_plane.namespace()
        node = cluster.add_node(gpus=2)
        second.start()
        for name in ("before", "after"):
            cluster.claim(namespace, name)
        cluster.pod(namespace, "before", "before")
        job = job_of(cluster.wait_bound(namespace, "before"))
        harness.wait_until("the second waits its turn",
                           lambda: "attempting to acquire leader lease" in second.log().lower())
        assert "Read what was there" not in second.log()
        cluster.bridge.kill()
        cluster.pod(namespace, "after", "after")
        assert cluster.wait_bound(namespace, "after")["spec"]["nodeName"] == node
        assert cluster.engine.api().job(job)["state"] == "running"
    finally:
        second.kill()
        cluster.end()


def is_ready(plane):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return plane.api("GET", "/readyz")[0] == 200
    return False


def test_nothing_is_written_while_nothing_changes(cluster, namespace):
    cluster.add_node(gpus=1)
    for name in ("bound", "waits"):
        cluster.claim(namespace, name)
        cluster.pod(namespace, name, name)
    cluster.wait_bound(namespace, "bound")
    cluster.wait_message(namespace, "waits", "place in line")
    cluster.wait_claim(namespace, "Bound", "bound")

    # An estimate may be told once more, when the job that runs has outlived all that ran before.
    harness.wait_until("nothing is written for six seconds", lambda: settled(cluster.plane))


def writes(plane):
    """How many requests to change something the API server has answered; but for renewals of its own lease."""
    status, text = plane.api("GET", "/metrics")
    assert status == 200
    total = 0
    for line in text.splitlines():
        match = re.match(REQUESTS, line)
        if match and match[2] in ("APPLY", "DELETE", "PATCH", "POST", "PUT") and (match[1], match[2]) != ("leases", "PUT"):
            total += int(float(match[3]))
    return total


def settled(plane):
    before = writes(plane)
    time.sleep(6)
    return writes(plane) == before
