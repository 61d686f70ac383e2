"""What is not bound, and what is said about it: refusals by Kubernetes' own filters, wrong claims, devices of others."""

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


def nothing_is_held(cluster, namespace, node, gpus):
    assert not cluster.leases(namespace)
    assert cluster.free(node) == gpus
    assert "nodeName" not in cluster.get_pod(namespace)["spec"]


def test_a_refusal_by_a_taint_goes_back_to_the_engine_in_upstreams_words(cluster, namespace):
    node = cluster.add_node(gpus=2, taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}])
    cluster.claim(namespace)
    cluster.pod(namespace)
    told = cluster.wait_message(namespace, "pod", "untolerated taint")
    assert told["reason"] == "Unschedulable"
    job = cluster.wait_job(namespace)

    def history():
        return str(cluster.engine.api().call("GET", f"/v1/jobs/{job}/history")[1])

    harness.wait_until("the job's history has it",
                       lambda: "not_started" in history() and "untolerated taint" in history())
    harness.wait_until("the GPUs are free", lambda: cluster.free(node) == 2)
    nothing_is_held(cluster, namespace, node, 2)
    other = cluster.add_node(gpus=1)
    pod = cluster.wait_bound(namespace)
    assert pod["spec"]["nodeName"] == other
    assert job_of(pod) == job  # The same job: a refusal costs no retry and no place in line.


def test_a_node_that_was_nominated_before_is_not_tried_again(cluster, namespace):
    nodes = {zone: cluster.add_node(gpus=1, labels={"zone": zone}) for zone in "ab"}
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "does not exist")
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/pod/status", {"status": {"nominatedNodeName": nodes["a"]}})
    cluster.claim(namespace, selector={"matchLabels": {"zone": "b"}})
    pod = cluster.wait_bound(namespace)
    assert pod["spec"]["nodeName"] == nodes["b"]
    assert cluster.engine.api().job(job_of(pod))["attempts"] == 1


def test_a_refusal_for_want_of_processors_says_so(cluster, namespace):
    node = cluster.add_node(gpus=1, cpu="1")
    cluster.claim(namespace)
    cluster.pod(namespace, cpu="4")
    cluster.wait_message(namespace, "pod", "Insufficient cpu")
    harness.wait_until("the GPU is free", lambda: cluster.free(node) == 1)
    nothing_is_held(cluster, namespace, node, 1)


def test_a_device_that_somebody_else_leases_is_not_given(cluster, namespace):
    node = cluster.add_node(gpus=2)
    other = cluster.plane.namespace()
    lease = {"metadata": {"name": f"gpu-{node}-0", "labels": {"gpu.scheduling/managed": "true"}},
             "spec": {"holderIdentity": "somebody"}}
    cluster.plane.create(f"/api/v1/namespaces/{other}/pods", {  # Whose lease it is, so that it is not collected.
        "metadata": {"name": "theirs"}, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "image"}]}})
    theirs = cluster.get_pod(other, "theirs")
    lease["spec"]["holderIdentity"] = theirs["metadata"]["uid"]
    lease["metadata"]["labels"]["gpu.scheduling/pod"] = "theirs"
    cluster.plane.create(f"/apis/coordination.k8s.io/v1/namespaces/{other}/leases", lease)
    harness.wait_until("one GPU can be given", lambda: cluster.free(node) == 1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    assert record_of(cluster.wait_bound(namespace))["devices"][0]["id"] == 1
    assert f"gpu-{node}-0" in cluster.leases(other)


def test_a_lease_without_our_label_in_another_namespace_keeps_the_pod_from_the_device(cluster, namespace):
    node = cluster.add_node(gpus=1)
    other = cluster.plane.namespace()
    cluster.plane.create(f"/apis/coordination.k8s.io/v1/namespaces/{other}/leases", {
        "metadata": {"name": f"gpu-{node}-0"}, "spec": {"holderIdentity": "somebody"}})
    cluster.claim(namespace)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", f'lease {other}/gpu-{node}-0 is held by "somebody"')
    harness.wait_until("the GPU is free", lambda: cluster.free(node) == 1)
    nothing_is_held(cluster, namespace, node, 1)
    assert "gpu.scheduling/allocated" not in cluster.get_pod(namespace)["metadata"]["annotations"]


def test_a_pod_without_a_claim_is_told(cluster, namespace):
    cluster.add_node(gpus=1)
    cluster.pod(namespace, claim=None)
    told = cluster.wait_message(namespace, "pod", "gpu claim annotation missing")
    assert told["reason"] == "Unschedulable"


def test_an_unknown_claim_waits_until_it_is_there(cluster, namespace):
    node = cluster.add_node(gpus=1)
    cluster.pod(namespace, claim="later")
    told = cluster.wait_message(namespace, "pod", 'gpu claim "later" does not exist')
    assert told["reason"] == "Unschedulable"
    nothing_is_held(cluster, namespace, node, 1)
    cluster.claim(namespace, "later")
    cluster.wait_bound(namespace)


@pytest.mark.parametrize("count", [0, -1, 65])
def test_the_api_server_refuses_such_a_count(cluster, namespace, count):
    status, answer = cluster.plane.api("POST", f"{GROUP}/namespaces/{namespace}/gpuclaims", {
        "apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": "claim"},
        "spec": {"devices": {"count": count}}})
    assert status == 422 and "spec.devices.count" in answer["message"]


def test_what_a_claim_leaves_out_has_the_defaults_of_the_contract(cluster, namespace):
    cluster.plane.create(f"{GROUP}/namespaces/{namespace}/gpuclaims", {
        "apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": "claim"}})
    assert cluster.get_claim(namespace)["spec"] == {
        "devices": {"count": 1, "policy": "contiguous", "exclusivity": "Exclusive"}}


def test_two_pods_of_one_claim_are_bound_one_after_the_other(cluster, namespace):
    cluster.add_node(gpus=2)
    cluster.claim(namespace)
    cluster.pod(namespace, "first")
    cluster.wait_bound(namespace, "first")
    cluster.pod(namespace, "second")
    cluster.wait_message(namespace, "second", 'gpu claim "claim" is used by pod "first"')
    assert cluster.wait_claim(namespace, "Bound")["status"]["podName"] == "first"
    cluster.finish(namespace, "first")
    cluster.wait_bound(namespace, "second")
    assert cluster.wait_claim(namespace, "Bound")["status"]["podName"] == "second"


def test_a_bound_claim_cannot_be_edited_and_a_waiting_one_can(cluster, namespace):
    cluster.add_node(gpus=2)
    cluster.claim(namespace, count=8)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    path = f"{GROUP}/namespaces/{namespace}/gpuclaims/claim"
    cluster.patch(path, {"spec": {"devices": {"count": 2}}})
    pod = cluster.wait_bound(namespace)
    assert len(record_of(pod)["devices"]) == 2
    cluster.wait_claim(namespace, "Bound")
    answer = cluster.patch(path, {"spec": {"devices": {"count": 1}}}, expected=422)
    assert "the claim is bound to a pod" in answer["message"]
    cluster.patch(path, {"metadata": {"labels": {"a": "b"}}})


def test_a_pod_that_somebody_else_binds_has_no_devices_and_no_job(cluster, namespace):
    node = cluster.add_node(gpus=1)
    cluster.claim(namespace, count=2)
    cluster.pod(namespace)
    job = cluster.wait_job(namespace)
    cluster.plane.create(f"/api/v1/namespaces/{namespace}/pods/pod/binding", {
        "metadata": {"name": "pod"}, "target": {"kind": "Node", "name": node}})
    assert cluster.engine.api().wait_for(job)["state"] == "cancelled"
    claim = cluster.wait_claim(namespace, "Pending", words="bound by somebody else")
    assert claim["status"]["conditions"][0]["reason"] == "BoundElsewhere"
    assert not cluster.leases(namespace)
    assert cluster.free(node) == 1


def test_a_claim_that_no_node_can_meet_says_so(cluster, namespace):
    node = cluster.add_node(gpus=2)
    cluster.claim(namespace, count=3)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "job-")
    claim = cluster.wait_claim(namespace, "Pending", words="GPU")
    assert [(c["type"], c["status"]) for c in claim["status"]["conditions"]] == [("Bound", "False")]
    nothing_is_held(cluster, namespace, node, 2)


@pytest.mark.parametrize(("spec", "words"), [
    ({"devices": {"exclusivity": "Shared"}}, "exclusivity Shared is not supported yet"),
    ({"devices": {"exclusivity": "MIG"}}, "exclusivity MIG is not supported yet"),
    ({"count": 2, "devices": {"policy": "preferIds", "preferIds": [0]}}, "preferIds names 1 devices, and count is 2"),
    ({"topology": {"mode": "Required"}}, "topology.mode Required needs minBandwidthGBps"),
])
def test_a_claim_that_cannot_be_met_as_it_is_written_waits_and_says_so(cluster, namespace, spec, words):
    node = cluster.add_node(gpus=2)
    cluster.claim(namespace, **spec)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", words)
    claim = cluster.wait_claim(namespace, "Pending", words=words)
    assert claim["status"]["conditions"][0]["reason"] == "NotSupported"
    nothing_is_held(cluster, namespace, node, 2)


def test_an_unknown_tenant_is_a_refusal_of_the_engine(cluster):
    namespace = cluster.plane.namespace(labels={"gpu.scheduling/tenant": "nobody"})
    cluster.add_node(gpus=1)
    cluster.claim(namespace)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "the engine refuses the claim")
    cluster.wait_claim(namespace, "Failed", words="nobody")
    cluster.clear()


def test_nothing_is_bound_while_the_engine_is_away(cluster, namespace):
    cluster.add_node(gpus=2)
    cluster.claim(namespace, "running")
    cluster.pod(namespace, "running", "running")
    job = job_of(cluster.wait_bound(namespace, "running"))
    cluster.engine.kill()
    cluster.claim(namespace)
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", "the GPU engine does not answer, nothing is bound until it does")
    assert cluster.wait_claim(namespace, "Pending", words="does not answer")["status"]["conditions"][0]["reason"] == \
        "EngineAway"
    cluster.engine.start()
    cluster.wait_bound(namespace)
    assert cluster.engine.api().job(job)["state"] == "running"  # It was not ended, nor begun again.
    assert cluster.engine.api().job(job)["attempts"] == 1
