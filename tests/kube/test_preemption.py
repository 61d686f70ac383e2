"""A pod of higher priority takes the devices of others: they are evicted as their budgets and grace periods say."""

import pytest
from control_plane import harness
from gpu_world import GpuWorld, job_of, record_of

SETTINGS = {"SCHEDULER_PREEMPTION_PROTECTION_SECONDS": 0, "SCHEDULER_PREEMPTION_WAIT_SECONDS": 0}


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(control_plane, go_program, session_folder):
    world = GpuWorld(control_plane, go_program("gpu-scheduler-kube"), session_folder, settings=SETTINGS)
    world.engine.api().post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    world.engine.api().post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    yield world
    world.end()


@pytest.fixture(name="spaces")
def spaces_fixture(cluster):
    """The namespaces of a tenant whose pods may be preempted, and of one whose pods may preempt."""
    yield [cluster.plane.namespace(labels={"gpu.scheduling/tenant": tenant}) for tenant in ("batch", "urgent")]
    cluster.clear()


def place(cluster, namespace, name="pod", **spec):
    cluster.claim(namespace, name)
    cluster.pod(namespace, name, name, **spec)


def run(cluster, namespace, name="pod", **spec):
    place(cluster, namespace, name, **spec)
    pod = cluster.wait_bound(namespace, name)
    cluster.run_pod(namespace, name)
    return pod


def leaves(cluster, namespace, name="pod"):
    """The pod, once it is about to end."""
    def look():
        pod = cluster.get_pod(namespace, name)
        return pod if pod["metadata"].get("deletionTimestamp") else None

    return harness.wait_until(f"pod {namespace}/{name} is evicted", look)


def test_a_victim_has_its_grace_and_is_told_why(cluster, spaces):
    batch, urgent = spaces
    node = cluster.add_node(gpus=1)
    job = job_of(run(cluster, batch, terminationGracePeriodSeconds=40))
    place(cluster, urgent)
    victim = leaves(cluster, batch)
    assert victim["metadata"]["deletionGracePeriodSeconds"] == 40
    assert [c["status"] for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget"] == ["True"]
    told = harness.wait_until("an event says so", lambda: cluster.events(batch, "Preempted").get("pod"))
    assert told.startswith(job) and "for a job of higher priority" in told
    # Until it has ended the devices are its own.
    cluster.wait_message(urgent, "pod", "job-")
    assert "nodeName" not in cluster.get_pod(urgent)["spec"]
    assert set(cluster.leases(batch)) == {f"gpu-{node}-0"}
    assert not cluster.leases(urgent)

    cluster.delete_pod(batch)
    assert cluster.wait_bound(urgent)["spec"]["nodeName"] == node
    cluster.wait_leases(urgent, {f"gpu-{node}-0"})
    cluster.wait_leases(batch, ())
    ended = cluster.engine.api().wait_for(job)
    assert ended["state"] == "cancelled"
    assert "preempted" in cluster.engine.api().explain(job)["message"]


def test_the_next_pod_of_its_controller_waits_until_there_is_room(cluster, spaces):
    batch, urgent = spaces
    node = cluster.add_node(gpus=1)
    first = job_of(run(cluster, batch))
    place(cluster, urgent)
    cluster.wait_bound(urgent)
    harness.wait_until("the victim is gone", lambda: cluster.get_pod(batch) is None)
    cluster.pod(batch, "again", "pod")
    told = cluster.wait_message(batch, "again", "place in line")
    assert told["reason"] == "Unschedulable" and first not in told["message"]
    cluster.finish(urgent)
    again = cluster.wait_bound(batch, "again")
    assert again["spec"]["nodeName"] == node and job_of(again) != first


def budget(cluster, namespace, allowed):
    """A PodDisruptionBudget of all pods, as the controller of Kubernetes keeps it."""
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    if cluster.plane.api("GET", f"{path}/all")[0] == 404:
        cluster.plane.create(path, {"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {}}})
    cluster.patch(f"{path}/all/status", {"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1,
                                                    "desiredHealthy": 1, "expectedPods": 1}})


def test_a_disruption_budget_is_honoured_for_as_long_as_it_forbids_the_eviction(cluster, spaces):
    batch, urgent = spaces
    node = cluster.add_node(gpus=1)
    run(cluster, batch)
    budget(cluster, batch, allowed=0)
    place(cluster, urgent)
    harness.wait_until("the pod's event says it", lambda: "disruption budget" in cluster.events(batch, "EvictionRefused").get("pod", ""))
    assert "deletionTimestamp" not in cluster.get_pod(batch)["metadata"]
    assert "nodeName" not in cluster.get_pod(urgent)["spec"]
    assert set(cluster.leases(batch)) == {f"gpu-{node}-0"}
    budget(cluster, batch, allowed=1)
    assert cluster.wait_bound(urgent)["spec"]["nodeName"] == node
    assert cluster.get_pod(batch) is None


def test_nobody_is_ended_without_the_right_to_it(cluster, spaces):
    batch, urgent = spaces
    cluster.add_node(gpus=1)
    run(cluster, urgent)
    place(cluster, batch)
    cluster.plane.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "highest"},
                         "value": 1_000_000})
    place(cluster, batch, "above", priorityClassName="highest")
    for name in ("pod", "above"):
        cluster.wait_message(batch, name, "place in line")
    assert "deletionTimestamp" not in cluster.get_pod(urgent)["metadata"]
    assert not cluster.events(urgent, "Preempted")


def test_a_gang_that_is_preempted_leaves_whole(cluster, spaces):
    batch, urgent = spaces
    node = cluster.add_node(gpus=2)
    cluster.gang(batch, minimum=2)
    cluster.claim(batch, gangRef="gang")
    for name in ("a", "b"):
        cluster.pod(batch, name)
    for name in ("a", "b"):
        cluster.wait_bound(batch, name)
        cluster.run_pod(batch, name)
    place(cluster, urgent)
    pod = cluster.wait_bound(urgent)
    for name in ("a", "b"):
        harness.wait_until(f"{name} is gone", lambda name=name: cluster.get_pod(batch, name) is None)
    held = [one["id"] for one in record_of(pod)["devices"]]
    cluster.wait_leases(urgent, {f"gpu-{node}-{one}" for one in held})
    cluster.wait_leases(batch, ())
    harness.wait_until("one GPU is free", lambda: cluster.free(node) == 1)


def test_a_preemption_goes_on_when_the_program_is_started_again(cluster, spaces):
    batch, urgent = spaces
    cluster.add_node(gpus=1)
    run(cluster, batch, terminationGracePeriodSeconds=40)
    budget(cluster, batch, allowed=0)
    place(cluster, urgent)
    harness.wait_until("the eviction is refused", lambda: cluster.events(batch, "EvictionRefused"))
    cluster.bridge.kill()
    budget(cluster, batch, allowed=1)
    cluster.bridge.start()
    leaves(cluster, batch)
    cluster.delete_pod(batch)
    cluster.wait_bound(urgent)
