"""gpu-agent --kubernetes writes the GpuNodeStatus of its node, by the chart's rights and no others."""

import contextlib
import http.client
import json
import os
import time

import chart
import pytest
from control_plane import harness

STATUS = "/apis/gpu.scheduling/v1/gpunodestatuses"
GPUS = ("--sim-gpus=4xA100-SXM4-80GB", "--sim-links=2,2")


class NodeAgents:
    """The chart's account, role and policy on a control plane, and agents as processes of this machine."""

    def __init__(self, plane):
        self.plane, self.namespace = plane, plane.namespace()
        found = chart.objects(namespace=self.namespace, engine__enabled=False, scheduler__enabled=False, webhook__enabled=False)
        plane.apply(*[one for one in found if one["kind"] == "CustomResourceDefinition"])
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        self.spec = chart.templates(found)["gpu-scheduler-node-agent"]
        plane.apply(*[one for one in found if one["kind"] not in ("CustomResourceDefinition", "DaemonSet")])
        self.processes = []

    def account_of(self, node):
        """What the kubelet mounts into the agent's pod on this node: a folder with a token that names both."""
        name = f"node-agent-{node}"
        self.plane.create("/api/v1/nodes", {"metadata": {"name": node}})
        self.plane.create(f"/api/v1/namespaces/{self.namespace}/pods", {"metadata": {"name": name}, "spec": {
            "nodeName": node, "serviceAccountName": self.spec["serviceAccountName"],
            "containers": [{"name": "node-agent", "image": "image"}]}})
        kubeconfig = self.plane.service_account(self.namespace, self.spec["serviceAccountName"], pod=name)
        folder = self.plane.folder / name
        folder.mkdir()
        (folder / "token").write_text(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"] + "\n")
        (folder / "ca.crt").write_bytes((self.plane.folder / "pki" / "ca.crt").read_bytes())
        return folder

    def start(self, node, account, *more):
        container = self.spec["containers"][0]
        words = [word.replace("$(NODE_NAME)", node) for word in container["args"]]
        process = self.plane.run(harness.program(container["command"][0]), *words, f"--kubernetes-api={self.plane.url}",
                                 f"--kubernetes-account={account}", *(more or GPUS))
        self.processes.append(process)
        return process

    def status(self, node, test=lambda status: True):
        """The status of the node's object, once it is there and as expected."""
        def look():
            code, found = self.plane.api("GET", f"{STATUS}/{node}")
            return found["status"] if code == 200 and "status" in found and test(found["status"]) else None

        return harness.wait_until(f"the GpuNodeStatus of {node} is there", look)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module", name="agents")
def agents_fixture(module_plane):
    agents = NodeAgents(module_plane)
    yield agents
    agents.end()


def test_it_writes_what_the_node_has(agents):
    agents.start("n1", agents.account_of("n1"))
    status = agents.status("n1")
    assert status["total"] == 4 and "message" not in status
    assert [one["id"] for one in status["devices"]] == [0, 1, 2, 3]
    assert {(one["model"], one["memoryMB"], one["health"]) for one in status["devices"]} == {("NVIDIA A100-SXM4-80GB", 81920, "Healthy")}
    # Both directions of an A100's NVLinks.
    assert [(one["island"], one["bandwidthGBps"]) for one in status["devices"]] == [("island-0", 600)] * 2 + [("island-1", 600)] * 2
    found = agents.plane.get(f"{STATUS}/n1")
    assert found["spec"] == {"nodeName": "n1"}
    managers = {(one["manager"], one["operation"], one.get("subresource")) for one in found["metadata"]["managedFields"]}
    assert managers == {("gpu-agent", "Apply", None), ("gpu-agent-status", "Apply", "status")}


def test_a_change_is_written_at_once_and_nothing_while_nothing_changes(agents, tmp_path):
    process = agents.start("n2", agents.account_of("n2"), *GPUS, f"--data-dir={tmp_path}")
    agents.status("n2")
    version = agents.plane.get(f"{STATUS}/n2")["metadata"]["resourceVersion"]
    time.sleep(6)  # It has looked again.
    assert agents.plane.get(f"{STATUS}/n2")["metadata"]["resourceVersion"] == version
    assert process.log.read_text().count("node_status_written") == 1
    (tmp_path / "new").write_text('{"devices": {"2": {"condition": "unhealthy", "detail": "xid 79"}}}')
    os.rename(tmp_path / "new", tmp_path / "sim-gpus.json")
    status = agents.status("n2", lambda status: status["devices"][2]["health"] == "Unhealthy")
    assert "xid 79" in status["devices"][2]["message"]
    assert [one["health"] for one in status["devices"]] == ["Healthy", "Healthy", "Unhealthy", "Healthy"]
    changed = agents.plane.get(f"{STATUS}/n2")["metadata"]["resourceVersion"]
    assert changed != version
    (tmp_path / "sim-gpus.json").unlink()
    agents.status("n2", lambda status: all(one["health"] == "Healthy" and "message" not in one for one in status["devices"]))


def test_devices_name_the_pods_that_were_bound_with_them(agents):
    account = agents.account_of("n3")
    pods = f"/api/v1/namespaces/{agents.namespace}/pods"
    uids = {}
    for name, node, ids in (("first", "n3", "0,1"), ("ended", "n3", "2"), ("elsewhere", "n4", "3")):
        notes = {"gpu.scheduling/allocated": ids, "gpu.scheduling/allocated-node": node}
        pod = agents.plane.create(pods, {"metadata": {"name": name, "annotations": notes}, "spec": {
            "nodeName": node, "containers": [{"name": "main", "image": "image"}]}})
        uids[name] = pod["metadata"]["uid"]
    agents.plane.patch(f"{pods}/ended/status", {"status": {"phase": "Succeeded"}})
    agents.start("n3", account)
    status = agents.status("n3")
    assert [one.get("inUseBy", []) for one in status["devices"]] == [[uids["first"]], [uids["first"]], [], []]


def test_it_writes_of_no_other_node(agents):
    account = agents.account_of("n5")
    process = agents.start("n6", account)
    harness.wait_until("it says why", lambda: "this token belongs to the node n5 and may not write the GpuNodeStatus of n6"
                       in process.log.read_text())
    assert agents.plane.api("GET", f"{STATUS}/n6")[0] == 404
    assert process.poll() is None


def answers(plane):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return plane.api("GET", "/readyz")[0] == 200
    return False


def test_a_removed_object_comes_back_and_a_server_that_was_away_is_found_again(own_control_plane):
    agents = NodeAgents(own_control_plane)
    try:
        process = agents.start("n1", agents.account_of("n1"))
        agents.status("n1")
        own_control_plane.kubectl("delete", "gns", "n1")
        own_control_plane.kill("kube-apiserver")
        harness.wait_until("it says that the server is away", lambda: "node_status_not_written" in process.log.read_text())
        own_control_plane.start_apiserver()
        harness.wait_until("the server answers", lambda: answers(own_control_plane))
        assert agents.status("n1")["total"] == 4
        process.terminate()
        assert process.wait(harness.PATIENCE_S) == 0
    finally:
        agents.end()


@pytest.mark.parametrize("words, says", [
    ((), "this is no pod of a Kubernetes cluster"),
    (("--kubernetes-api=https://127.0.0.1:1", "--sim-gpus=x"), "--sim-gpus")])
def test_what_it_cannot_work_with_ends_it(control_plane, words, says):
    process = control_plane.run(harness.program("gpu-agent"), "--kubernetes", "--node=n1", *words)
    try:
        assert process.wait(harness.PATIENCE_S) == 1
        assert says in process.log.read_text()
    finally:
        process.kill()
        process.wait()
