"""Which devices: those that a claim names, those with fast links, those of a pod that asks without a claim."""

import time

import pytest
from control_plane import harness
from gpu_world import GROUP, GpuWorld, job_of, record_of


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield world
    world.end()


@pytest.fixture(name="namespace")
def namespace_fixture(cluster):
    yield cluster.plane.namespace()
    cluster.clear()


def ids_of(pod):
    return [one["id"] for one in record_of(pod)["devices"]]


def take(cluster, namespace, gpu):
    """A pod on this GPU of the only node; its name."""
    name = f"on-{gpu}"
    cluster.claim(namespace, name, devices={"policy": "preferIds", "preferIds": [gpu]})
    cluster.pod(namespace, name, name)
    assert ids_of(cluster.wait_bound(namespace, name)) == [gpu]
    return name


def test_the_devices_that_a_claim_names_are_given_and_no_others(cluster, namespace):
    cluster.add_node(gpus=4)
    other = take(cluster, namespace, 3)
    cluster.claim(namespace, count=2, devices={"policy": "preferIds", "preferIds": [1, 3, 0]})
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    time.sleep(1)
    assert "nodeName" not in cluster.get_pod(namespace)["spec"]  # 0 and 1 are free, and not what it asks for.
    cluster.finish(namespace, other)
    assert ids_of(cluster.wait_bound(namespace)) == [1, 3]


def test_a_required_bandwidth_keeps_devices_of_two_islands_apart(cluster, namespace):
    node = cluster.add_node(gpus=4)
    cluster.set_gpus(node, 4, islands="aabb")
    ends = [take(cluster, namespace, gpu) for gpu in (0, 3)]
    cluster.claim(namespace, count=2, topology={"mode": "Required", "minBandwidthGBps": 600})
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    time.sleep(1)
    assert "nodeName" not in cluster.get_pod(namespace)["spec"]
    assert cluster.free(node) == 2  # 1 and 2: neighbours of two islands.
    for name in ends:
        cluster.finish(namespace, name)
    assert ids_of(cluster.wait_bound(namespace)) in ([0, 1], [2, 3])


def test_a_bandwidth_that_no_link_has_is_never_met(cluster, namespace):
    node = cluster.add_node(gpus=2)
    cluster.set_gpus(node, 2, islands="aa")
    cluster.claim(namespace, count=2, topology={"mode": "Required", "minBandwidthGBps": 602})
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    time.sleep(1)
    assert cluster.free(node) == 2
    cluster.patch(f"{GROUP}/namespaces/{namespace}/gpuclaims/claim", {"spec": {"topology": {"minBandwidthGBps": 600}}})
    assert ids_of(cluster.wait_bound(namespace)) == [0, 1]


def test_a_pod_without_a_claim_gets_what_it_asks_for_in_nvidia_com_gpu(cluster, namespace):
    node = cluster.add_node(gpus=4)
    cluster.pod(namespace, claim=None, gpus=2)
    pod = cluster.wait_bound(namespace)
    assert len(ids_of(pod)) == 2 and pod["spec"]["nodeName"] == node
    assert pod["metadata"]["annotations"]["gpu.scheduling/allocated"] == ",".join(map(str, ids_of(pod)))
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for gpu in ids_of(pod)})
    assert not cluster.plane.get(f"{GROUP}/namespaces/{namespace}/gpuclaims")["items"]
    cluster.bridge.kill()
    cluster.bridge.start()
    time.sleep(3)
    assert cluster.engine.api().job(job_of(pod))["state"] == "running"
    cluster.finish(namespace)
    assert cluster.engine.api().wait_for(job_of(pod))["state"] == "completed"
    cluster.wait_leases(namespace, ())
    harness.wait_until("the GPUs are free", lambda: cluster.free(node) == 4)


def test_a_claim_counts_beside_nvidia_com_gpu(cluster, namespace):
    cluster.add_node(gpus=4)
    cluster.claim(namespace)
    cluster.pod(namespace, gpus=3)
    assert len(ids_of(cluster.wait_bound(namespace))) == 1


def test_more_than_a_node_can_have_is_told(cluster, namespace):
    cluster.add_node(gpus=1)
    cluster.pod(namespace, claim=None, gpus=65)
    cluster.wait_message(namespace, "pod", "65 devices are asked for: a node has at most 64")
