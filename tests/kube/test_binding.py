"""A claim and a pod: bound to the node and with the devices that the engine chose, and free again when the pod ends."""

import concurrent.futures

import pytest
from control_plane import harness
from gpu_world import GpuWorld, job_of, record_of


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder)
    yield world
    world.end()


@pytest.fixture(name="namespace")
def namespace_fixture(cluster):
    yield cluster.plane.namespace()
    cluster.clear()


def test_a_pod_is_bound_with_exactly_the_devices_that_the_engine_chose(cluster, namespace):
    node = cluster.add_node(gpus=4)
    cluster.claim(namespace, count=2)
    cluster.pod(namespace)
    pod = cluster.wait_bound(namespace)
    assert pod["spec"]["nodeName"] == node
    job = cluster.engine.api().job(job_of(pod))
    chosen = [gpu.rpartition("-")[2] for gpu in job["allocated_gpus"]]
    assert len(chosen) == 2 and job["node_name"] == node
    annotations = pod["metadata"]["annotations"]
    assert annotations["gpu.scheduling/allocated"] == ",".join(chosen)
    assert annotations["gpu.scheduling/allocated-node"] == node
    leases = cluster.leases(namespace)
    assert set(leases) == {f"gpu-{node}-{gpu}" for gpu in chosen}
    for lease in leases.values():
        assert lease["spec"]["holderIdentity"] == pod["metadata"]["uid"]
        assert lease["metadata"]["labels"] == {"gpu.scheduling/managed": "true", "gpu.scheduling/pod": "pod"}


def test_kubectl_shows_the_claim_in_the_columns_of_the_contract(cluster, namespace):
    node = cluster.add_node(gpus=2)
    cluster.claim(namespace, count=2, topology={"mode": "Preferred", "minBandwidthGBps": 600})
    waiting = cluster.wait_claim(namespace, "Pending", words="no pod uses the claim")
    assert [c["status"] for c in waiting["status"]["conditions"]] == ["False"]
    cluster.pod(namespace)
    cluster.wait_bound(namespace)
    claim = cluster.wait_claim(namespace, "Bound")
    header, row = cluster.plane.kubectl("get", "gclaim", "-n", namespace).stdout.splitlines()
    assert header.split() == ["NAME", "REQ", "POLICY", "TOPOLOGY", "ALLOCATED", "PHASE", "NODE", "AGE"]
    assert row.split()[:7] == ["claim", "2", "contiguous", "Preferred", f"{node}:0,1", "Bound", node]
    assert claim["status"]["gpuIds"] == [0, 1]
    assert claim["status"]["job"] == job_of(cluster.get_pod(namespace))
    assert [(c["type"], c["status"], c["reason"]) for c in claim["status"]["conditions"]] == [("Bound", "True", "Bound")]


def test_devices_leases_and_claim_are_free_when_the_pod_ends(cluster, namespace):
    node = cluster.add_node(gpus=2)
    cluster.claim(namespace, count=2)
    cluster.pod(namespace)
    pod = cluster.wait_bound(namespace)
    assert cluster.free(node) == 0
    cluster.finish(namespace, exit_code=3)
    job = cluster.engine.api().wait_for(job_of(pod))
    assert (job["state"], job["exit_code"]) == ("failed", 3)
    assert not cluster.leases(namespace)  # Before the engine could give a device to the next pod.
    harness.wait_until("both GPUs are free", lambda: cluster.free(node) == 2)
    cluster.wait_claim(namespace, "Pending", words="no pod uses the claim")
    cluster.pod(namespace, "next")
    assert cluster.wait_bound(namespace, "next")["spec"]["nodeName"] == node


def test_a_deleted_pod_ends_its_job_and_frees_its_devices(cluster, namespace):
    node = cluster.add_node(gpus=1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    pod = cluster.wait_bound(namespace)
    cluster.delete_pod(namespace)
    assert cluster.engine.api().wait_for(job_of(pod))["state"] == "cancelled"
    cluster.wait_leases(namespace, ())
    harness.wait_until("the GPU is free", lambda: cluster.free(node) == 1)


def test_a_pod_that_is_deleted_while_it_waits_leaves_no_job(cluster, namespace):
    cluster.add_node(gpus=1)
    cluster.claim(namespace, count=2)
    cluster.pod(namespace)
    job = cluster.wait_job(namespace)
    cluster.delete_pod(namespace)
    assert cluster.engine.api().wait_for(job)["state"] == "cancelled"


def test_a_job_that_is_cancelled_in_the_engine_evicts_its_pod(cluster, namespace):
    cluster.add_node(gpus=1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    pod = cluster.wait_bound(namespace)
    cluster.engine.api().cancel(job_of(pod))
    harness.wait_until("the pod is evicted", lambda: cluster.get_pod(namespace) is None)
    assert cluster.engine.api().wait_for(job_of(pod))["state"] == "cancelled"
    cluster.wait_leases(namespace, ())


def test_no_device_is_ever_in_two_pods(cluster, namespace):
    nodes = [cluster.add_node(gpus=4) for _ in range(2)]
    count = 12  # Eight devices: four pods wait.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: (cluster.claim(namespace, f"c{i}"), cluster.pod(namespace, f"p{i}", f"c{i}")),
                      range(count)))

    def bound():
        items = cluster.plane.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [pod for pod in items if pod["spec"].get("nodeName")]

    harness.wait_until("eight pods are bound", lambda: len(bound()) == 8)
    held = [(pod["spec"]["nodeName"], one["id"]) for pod in bound() for one in record_of(pod)["devices"]]
    assert sorted(held) == sorted((node, gpu) for node in nodes for gpu in range(4))
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for node, gpu in held})
    first = {pod["metadata"]["name"] for pod in bound()}
    for name in first:
        cluster.finish(namespace, name)
    for i in range(count):
        if f"p{i}" not in first:
            cluster.wait_bound(namespace, f"p{i}")


def test_priority_class_and_selector_reach_the_engine(cluster, namespace):
    cluster.add_node(gpus=1, labels={"zone": "a"})
    far = cluster.add_node(gpus=1, labels={"zone": "b"})
    cluster.plane.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
                         "value": 700})
    cluster.claim(namespace, selector={"matchLabels": {"zone": "b"}})
    cluster.pod(namespace, priorityClassName="high")
    pod = cluster.wait_bound(namespace)
    assert pod["spec"]["nodeName"] == far
    job = cluster.engine.api().call("GET", f"/v1/jobs/{job_of(pod)}")[1]
    assert job["priority"] == 700
    assert job["spec"]["executor"] == "external"
    assert job["spec"]["name"] == f"{namespace}/pod"


def test_a_node_with_very_many_labels_is_found_by_each(cluster, namespace):
    labels = {f"feature.node.kubernetes.io/cpu-{i:03}": "true" for i in range(100)}
    cluster.add_node(gpus=1)
    node = cluster.add_node(gpus=1, labels={**labels, "zone": "far"})
    for name, selected in (("feature", "feature.node.kubernetes.io/cpu-099"), ("zone", "zone")):
        cluster.claim(namespace, name, selector={"matchLabels": {selected: {**labels, "zone": "far"}[selected]}})
        cluster.pod(namespace, name, name)
        assert cluster.wait_bound(namespace, name)["spec"]["nodeName"] == node
        cluster.finish(namespace, name)


def test_a_namespace_names_its_tenant(cluster):
    status, answer, _ = cluster.engine.api().call("POST", "/v1/tenants", {"name": "lab"})
    assert status in (200, 201), answer
    tenant = answer["tenant_id"]
    namespace = cluster.plane.namespace(labels={"gpu.scheduling/tenant": "lab"})
    cluster.add_node(gpus=1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    pod = cluster.wait_bound(namespace)
    assert cluster.engine.api().call("GET", f"/v1/jobs/{job_of(pod)}")[1]["tenant_id"] == tenant
    cluster.clear()


def test_a_device_that_its_agent_calls_unhealthy_is_not_given(cluster, namespace):
    node = cluster.add_node(gpus=2)
    cluster.set_gpus(node, 2, unhealthy=[0])
    harness.wait_until("one GPU can be given", lambda: cluster.free(node) == 1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    assert record_of(cluster.wait_bound(namespace))["devices"][0]["id"] == 1
