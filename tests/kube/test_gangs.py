"""Gangs of pods: all members are bound, or none is, whatever refuses, ends or dies."""

import random
import time

import pytest
from control_plane import harness
from gpu_world import GROUP, GpuWorld, job_of, record_of

TAINT = {"key": "team", "value": "x", "effect": "NoSchedule"}
KILLS = 6


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield world
    world.end()


@pytest.fixture(name="namespace")
def namespace_fixture(cluster):
    yield cluster.plane.namespace()
    cluster.clear()


def add_gang(cluster, namespace, pods, minimum=None, count=1, **spec):
    """A gang, its claim and so many pods; their names."""
    cluster.gang(namespace, minimum=minimum or pods, **spec)
    cluster.claim(namespace, count=count, gangRef="gang")
    names = [f"p{i}" for i in range(pods)]
    for name in names:
        cluster.pod(namespace, name)
    return names


def wait_all_bound(cluster, namespace, names):
    return [cluster.wait_bound(namespace, name) for name in names]


def bound(cluster, namespace):
    items = cluster.plane.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod["metadata"]["name"] for pod in items if pod["spec"].get("nodeName")]


def devices_of(pods):
    return sorted((pod["spec"]["nodeName"], one["id"]) for pod in pods for one in record_of(pod)["devices"])


def all_free(cluster, nodes, gpus):
    for node in nodes:
        harness.wait_until(f"all GPUs of {node} are free", lambda node=node: cluster.free(node) == gpus)


def test_the_members_are_one_job_and_begin_when_the_last_is_there(cluster, namespace):
    nodes = [cluster.add_node(gpus=2) for _ in range(2)]
    cluster.gang(namespace, minimum=2)
    cluster.claim(namespace, count=2, gangRef="gang")
    cluster.pod(namespace, "p0")
    cluster.wait_message(namespace, "p0", 'gang "gang" waits for its pods: 1 of 2 are there')
    assert cluster.wait_gang(namespace, "Pending", words="1 of 2")["members"] == 1
    cluster.pod(namespace, "p1")
    pods = wait_all_bound(cluster, namespace, ["p0", "p1"])
    assert devices_of(pods) == sorted((node, gpu) for node in nodes for gpu in range(2))
    assert job_of(pods[0]) == job_of(pods[1])
    job = cluster.engine.api().call("GET", f"/v1/jobs/{job_of(pods[0])}")[1]
    assert job["spec"]["name"] == f"{namespace}/gang"
    members = {one["node_name"]: one["state"] for one in job["members"]}
    assert members == {node: "running" for node in nodes}
    for pod in pods:
        ids = [one["id"] for one in record_of(pod)["devices"]]
        assert pod["metadata"]["annotations"]["gpu.scheduling/allocated"] == ",".join(map(str, ids))
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for node, gpu in devices_of(pods)})
    assert cluster.wait_gang(namespace, "Bound") == {
        "phase": "Bound", "members": 2, "bound": 2, "job": job_of(pods[0]), "message": "the members are bound"}
    claim = cluster.wait_claim(namespace, "Bound")["status"]
    assert sorted(claim["allocated"].split()) == sorted(f"{node}:0,1" for node in nodes)
    shown = cluster.plane.kubectl("get", "ggang", "-n", namespace).stdout.splitlines()
    assert shown[0].split() == ["NAME", "MINIMUM", "MEMBERS", "BOUND", "PHASE", "JOB", "AGE"]
    assert shown[1].split()[:6] == ["gang", "2", "2", "2", "Bound", job_of(pods[0])]


def test_a_gang_for_which_only_a_part_has_room_holds_nothing(cluster, namespace):
    nodes = [cluster.add_node(gpus=1) for _ in range(2)]
    names = add_gang(cluster, namespace, 3)
    cluster.wait_message(namespace, "p0", "job-")
    cluster.claim(namespace, "other")
    cluster.pod(namespace, "other", "other")
    time.sleep(2)
    assert not set(bound(cluster, namespace)) & set(names)
    assert {name.rpartition("-")[0] for name in cluster.leases(namespace)} <= {f"gpu-{node}" for node in nodes}
    cluster.delete_pod(namespace, "other")
    cluster.wait_leases(namespace, ())
    nodes.append(cluster.add_node(gpus=1))
    assert devices_of(wait_all_bound(cluster, namespace, names)) == sorted((node, 0) for node in nodes)


def test_one_member_that_is_refused_gives_all_back_and_the_engine_chooses_again(cluster, namespace):
    good = cluster.add_node(gpus=1)
    tainted = cluster.add_node(gpus=1, taints=[TAINT])
    names = add_gang(cluster, namespace, 2)
    for name in names:
        cluster.wait_message(namespace, name, "untolerated taint")
    all_free(cluster, (good, tainted), 1)
    assert not bound(cluster, namespace)
    cluster.wait_leases(namespace, ())
    for name in names:
        assert "gpu.scheduling/attempt" not in cluster.get_pod(namespace, name)["metadata"]["annotations"]
    job = cluster.wait_job(namespace)
    other = cluster.add_node(gpus=1)
    pods = wait_all_bound(cluster, namespace, names)
    assert {pod["spec"]["nodeName"] for pod in pods} == {good, other}
    assert job_of(pods[0]) == job  # A refusal costs no retry and no place in line.


def test_a_device_that_somebody_else_leases_keeps_all_members_from_being_bound(cluster, namespace):
    nodes = [cluster.add_node(gpus=1) for _ in range(2)]
    other = cluster.plane.namespace()
    cluster.plane.create(f"/apis/coordination.k8s.io/v1/namespaces/{other}/leases", {
        "metadata": {"name": f"gpu-{nodes[1]}-0"}, "spec": {"holderIdentity": "somebody"}})
    names = add_gang(cluster, namespace, 2)
    cluster.wait_message(namespace, "p0", f'lease {other}/gpu-{nodes[1]}-0 is held by "somebody"')
    all_free(cluster, nodes, 1)
    assert not bound(cluster, namespace) and not cluster.leases(namespace)
    cluster.plane.api("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{other}/leases/gpu-{nodes[1]}-0")
    nodes.append(cluster.add_node(gpus=1))
    wait_all_bound(cluster, namespace, names)


def test_members_of_different_sizes_are_parts_of_one_job(cluster, namespace):
    node = cluster.add_node(gpus=4)
    cluster.gang(namespace, minimum=3, domain="node")
    cluster.claim(namespace, "leader", count=2, gangRef="gang")
    cluster.claim(namespace, "worker", count=1, gangRef="gang")
    cluster.pod(namespace, "w0", "worker")
    cluster.pod(namespace, "l", "leader")
    cluster.pod(namespace, "w1", "worker")
    pods = wait_all_bound(cluster, namespace, ("l", "w0", "w1"))
    assert [len(record_of(pod)["devices"]) for pod in pods] == [2, 1, 1]
    assert devices_of(pods) == [(node, gpu) for gpu in range(4)]


def test_all_members_are_in_the_domain_of_the_gang(cluster, namespace):
    for rack in "ab":
        cluster.add_node(gpus=1, labels={"topology.rack": rack})
    names = add_gang(cluster, namespace, 2, domain="rack")
    cluster.wait_message(namespace, "p0", "job-")
    time.sleep(1)
    assert not bound(cluster, namespace)
    cluster.add_node(gpus=1, labels={"topology.rack": "b"})
    pods = wait_all_bound(cluster, namespace, names)
    racks = {cluster.plane.get(f"/api/v1/nodes/{pod['spec']['nodeName']}")["metadata"]["labels"]["topology.rack"]
             for pod in pods}
    assert racks == {"b"}


def test_a_member_that_ends_well_leaves_the_others_and_one_that_fails_ends_them(cluster, namespace):
    node = cluster.add_node(gpus=3)
    names = add_gang(cluster, namespace, 3)
    pods = wait_all_bound(cluster, namespace, names)
    cluster.finish(namespace, "p0")
    harness.wait_until("its GPU is free", lambda: cluster.free(node) == 1)
    cluster.delete_pod(namespace, "p0")  # As a controller does with pods that are done.
    time.sleep(1)
    assert cluster.engine.api().job(job_of(pods[0]))["state"] == "running"
    assert sorted(bound(cluster, namespace)) == ["p1", "p2"]
    cluster.finish(namespace, "p1", exit_code=3)
    harness.wait_until("the last is evicted", lambda: cluster.get_pod(namespace, "p2") is None)
    job = cluster.engine.api().wait_for(job_of(pods[0]))
    assert (job["state"], job["exit_code"]) == ("failed", 3)
    cluster.wait_leases(namespace, ())
    all_free(cluster, [node], 3)


def test_a_pod_that_comes_later_begins_with_the_gangs_next_start(cluster, namespace):
    cluster.add_node(gpus=4)
    names = add_gang(cluster, namespace, 2)
    pods = wait_all_bound(cluster, namespace, names)
    cluster.pod(namespace, "late")
    cluster.wait_message(namespace, "late", 'gang "gang" has begun without this pod')
    cluster.delete_pod(namespace, "p0")
    harness.wait_until("the other is evicted", lambda: cluster.get_pod(namespace, "p1") is None)
    assert cluster.engine.api().wait_for(job_of(pods[0]))["state"] == "cancelled"
    cluster.wait_message(namespace, "late", "waits for its pods: 1 of 2 are there")
    cluster.pod(namespace, "p0")
    again = wait_all_bound(cluster, namespace, ("late", "p0"))
    assert job_of(again[0]) == job_of(again[1]) != job_of(pods[0])


def test_a_gang_that_waits_takes_pods_in_and_lets_them_go(cluster, namespace):
    add_gang(cluster, namespace, 3, minimum=2)
    cluster.wait_message(namespace, "p2", "job-")
    harness.wait_until("three members wait", lambda: cluster.wait_gang(namespace, "Pending")["members"] == 3)
    cluster.delete_pod(namespace, "p1")
    harness.wait_until("two members wait", lambda: cluster.wait_gang(namespace, "Pending")["members"] == 2)
    cluster.add_node(gpus=2)
    wait_all_bound(cluster, namespace, ("p0", "p2"))
    assert cluster.wait_gang(namespace, "Bound")["members"] == 2


def test_a_job_of_a_gang_that_is_cancelled_in_the_engine_evicts_its_pods(cluster, namespace):
    node = cluster.add_node(gpus=2)
    names = add_gang(cluster, namespace, 2)
    pods = wait_all_bound(cluster, namespace, names)
    cluster.engine.api().cancel(job_of(pods[0]))
    for name in names:
        harness.wait_until("the pod is evicted", lambda name=name: cluster.get_pod(namespace, name) is None)
    cluster.wait_leases(namespace, ())
    all_free(cluster, [node], 2)
    for name in names:
        cluster.pod(namespace, name)
    cluster.claim(namespace, "blocker", count=2)
    again = wait_all_bound(cluster, namespace, names)
    assert job_of(again[0]) != job_of(pods[0])


@pytest.mark.parametrize(("claims", "words"), [
    (({"devices": {"policy": "spread"}}, {}), "only the count may differ"),
    (({"selector": {"matchLabels": {"zone": "a"}}}, {}), "only the count may differ"),
    (({}, {"gangRef": "absent"}), 'gpu gang "absent" does not exist'),
])
def test_what_a_gang_cannot_be_is_told(cluster, namespace, claims, words):
    cluster.add_node(gpus=2)
    cluster.gang(namespace, minimum=2)
    for number, spec in enumerate(claims):
        cluster.claim(namespace, f"c{number}", **{"gangRef": "gang", **spec})
        cluster.pod(namespace, f"p{number}", f"c{number}")
    cluster.wait_message(namespace, "p1", words)
    cluster.wait_claim(namespace, "Pending", "c1", words=words)
    assert not bound(cluster, namespace)


@pytest.mark.parametrize("spec", [{}, {"minimum": 0}, {"minimum": 1, "timeoutSeconds": 901},
                                  {"minimum": 1, "domain": "room"}])
def test_the_api_server_refuses_such_a_gang(cluster, namespace, spec):
    status, answer = cluster.plane.api("POST", f"{GROUP}/namespaces/{namespace}/gpugangs", {
        "apiVersion": "gpu.scheduling/v1", "kind": "GpuGang", "metadata": {"name": "gang"}, "spec": spec})
    assert status == 422 and "spec." in answer["message"]


def test_a_gang_keeps_its_devices_when_both_programs_are_started_again(cluster, namespace):
    node = cluster.add_node(gpus=3)
    names = add_gang(cluster, namespace, 3)
    pods = wait_all_bound(cluster, namespace, names)
    cluster.bridge.kill()
    cluster.finish(namespace, "p0")
    cluster.engine.restart()
    cluster.bridge.start()
    harness.wait_until("the GPU of the one that ended is free", lambda: cluster.free(node) == 1)
    job = cluster.engine.api().job(job_of(pods[0]))
    assert (job["state"], job["attempts"]) == ("running", 1)
    assert len(bound(cluster, namespace)) == 3
    for name in names[1:]:
        cluster.finish(namespace, name)
    assert cluster.engine.api().wait_for(job_of(pods[0]))["state"] == "completed"
    cluster.wait_leases(namespace, ())


def test_a_gang_that_waits_keeps_its_job_over_restarts_of_both_programs(cluster, namespace):
    names = add_gang(cluster, namespace, 2)
    job = cluster.wait_job(namespace)
    cluster.bridge.kill()
    cluster.engine.restart()
    cluster.bridge.start()
    cluster.add_node(gpus=2)
    assert {job_of(pod) for pod in wait_all_bound(cluster, namespace, names)} == {job}


def test_kills_in_the_middle_of_binding_leave_no_gang_in_part(cluster, namespace):
    nodes = [cluster.add_node(gpus=4) for _ in range(2)]
    draw = random.Random(harness.SEED)
    cluster.gang(namespace, minimum=8)
    cluster.claim(namespace, gangRef="gang")
    names = [f"p{i}" for i in range(8)]
    for number in range(KILLS):
        for name in names:
            if cluster.get_pod(namespace, name) is None:
                cluster.pod(namespace, name)
        time.sleep(draw.uniform(0, 1.2))
        victim = cluster.engine if number % 3 == 2 else cluster.bridge
        victim.kill()
        victim.start()

    def whole():
        for name in names:  # As a controller does with pods that were evicted.
            if cluster.get_pod(namespace, name) is None:
                cluster.pod(namespace, name)
        return len(bound(cluster, namespace)) == 8

    harness.wait_until("all eight are bound", whole)
    pods = wait_all_bound(cluster, namespace, names)
    assert len({job_of(pod) for pod in pods}) == 1
    assert devices_of(pods) == sorted((node, gpu) for node in nodes for gpu in range(4))
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for node, gpu in devices_of(pods)})
    for name in names:
        cluster.finish(namespace, name)
    cluster.wait_leases(namespace, ())
    all_free(cluster, nodes, 4)
    harness.wait_until("no job is left", lambda: not [job for job in cluster.engine.api().jobs()
                                                      if job["state"] not in harness.FINAL])
