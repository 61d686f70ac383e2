"""What a pod that waits is told: the engine's reason, its place in line, the time, in its condition and in events."""

import re
import time

import pytest
from control_plane import harness
from gpu_world import GpuWorld, job_of


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield world
    world.end()


@pytest.fixture(name="namespace")
def namespace_fixture(cluster):
    yield cluster.plane.namespace()
    cluster.clear()


def add_pods(cluster, namespace, names):
    for name in names:
        cluster.claim(namespace, name)
        cluster.pod(namespace, name, name)


def places(cluster, namespace, names):
    found = {}
    for name in names:
        for condition in cluster.get_pod(namespace, name).get("status", {}).get("conditions", ()):
            place = re.search(r"; place in line: (\d+)", condition.get("message", ""))
            if condition["type"] == "PodScheduled" and condition["status"] == "False" and place:
                found[name] = int(place[1])
    return found


def events_of(cluster, namespace, name):
    items = cluster.plane.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [one for one in items if one["regarding"].get("name") == name and one["reason"] == "WaitsForGPUs"]


def test_pods_are_told_their_place_in_line_and_when_they_are_expected_to_start(cluster, namespace):
    cluster.add_node(gpus=1)
    add_pods(cluster, namespace, ["running"])
    running = job_of(cluster.wait_bound(namespace, "running"))
    status, answer, _ = cluster.engine.api().call("PATCH", f"/v1/jobs/{running}", {"max_runtime_ms": 900_000})
    assert status == 200, answer
    names = ["w0", "w1", "w2"]
    for name in names:  # One after the other: their order in the line.
        add_pods(cluster, namespace, [name])
        cluster.wait_message(namespace, name, "job-")
    harness.wait_until("all know their places", lambda: places(cluster, namespace, names) == {"w0": 1, "w1": 2, "w2": 3})
    cluster.wait_message(namespace, "w0", "; expected to start about 20")
    cluster.wait_claim(namespace, "Pending", "w0", words="; place in line: 1")
    before = {name: len(events_of(cluster, namespace, name)) for name in names}
    assert min(before.values()) >= 1
    assert "job-" in events_of(cluster, namespace, "w1")[0]["note"]
    cluster.delete_pod(namespace, "w0")
    harness.wait_until("the others move up", lambda: places(cluster, namespace, names[1:]) == {"w1": 1, "w2": 2})
    time.sleep(1)
    assert len(events_of(cluster, namespace, "w2")) == before["w2"]  # Another place is no event.


def test_nothing_is_placed_for_a_pod_with_scheduling_gates(cluster, namespace):
    node = cluster.add_node(gpus=1)
    for name in ("gated", "other"):
        cluster.claim(namespace, name)
    cluster.pod(namespace, "gated", "gated", schedulingGates=[{"name": "example.com/wait"}])
    cluster.wait_claim(namespace, "Pending", "gated", words="scheduling gates")
    cluster.pod(namespace, "other", "other")
    cluster.wait_bound(namespace, "other")
    assert "job" not in cluster.get_claim(namespace, "gated")["status"]
    cluster.finish(namespace, "other")
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/gated", {"spec": {"schedulingGates": None}})
    assert cluster.wait_bound(namespace, "gated")["spec"]["nodeName"] == node


def test_a_refused_pod_has_the_refusal_in_condition_and_event(cluster, namespace):
    cluster.add_node(gpus=1, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    add_pods(cluster, namespace, ["pod"])
    cluster.wait_message(namespace, "pod", "not started before: node ")
    harness.wait_until("an event says so", lambda: [one for one in events_of(cluster, namespace, "pod")
                                                    if "untolerated taint" in one["note"]])
    time.sleep(3)  # The engine's own reason comes beside it, not in its place.
    cluster.wait_message(namespace, "pod", "untolerated taint")


def test_a_change_of_a_job_is_told_by_the_watch_at_once(cluster, namespace):
    names = [f"p{i}" for i in range(4)]
    add_pods(cluster, namespace, names)
    jobs = [cluster.wait_job(namespace, name) for name in names]
    for name in names:
        cluster.wait_message(namespace, name, "place in line")
    began = time.monotonic()
    for name, job in zip(names, jobs):
        cluster.engine.api().cancel(job)
        harness.wait_until("the pod is evicted", lambda name=name: cluster.get_pod(namespace, name) is None)
    assert time.monotonic() - began < 5  # Asking every 2 s would take 6.
