"""The chart's admission policy: a program writes the GpuNodeStatus of the node that its token belongs to, and no other."""

import json

import chart
import pytest
from control_plane import harness

GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"


def status_of(node):
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": node},
            "spec": {"nodeName": node}, "status": {"total": 8}}


class Agents:
    """An account that may write every GpuNodeStatus, as far as RBAC knows, with tokens of several places."""

    def __init__(self, plane):
        self.plane, self.namespace = plane, plane.namespace()
        found = chart.objects(namespace=self.namespace, engine__enabled=False, scheduler__enabled=False, webhook__enabled=False)
        plane.apply(*[one for one in found if one["kind"] == "CustomResourceDefinition"])
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        plane.apply(*[one for one in found if one["kind"].startswith("ValidatingAdmission")])
        account = {"kind": "ServiceAccount", "name": "agent", "namespace": self.namespace}
        everything = {"apiGroups": ["gpu.scheduling"], "resources": ["gpunodestatuses", "gpunodestatuses/status"], "verbs": ["*"]}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "writes-node-status"}}
        plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": self.namespace}},
                    {**role, "kind": "ClusterRole", "rules": [everything]},
                    {**role, "kind": "ClusterRoleBinding", "subjects": [account, {"kind": "User", "name": GARBAGE_COLLECTOR}],
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writes-node-status"}})
        self.accounts = {}
        for node in ("n1", "n2"):
            plane.create("/api/v1/nodes", {"metadata": {"name": node}})
            spec = {"nodeName": node, "serviceAccountName": "agent", "containers": [{"name": "agent", "image": "image"}]}
            plane.create(f"/api/v1/namespaces/{self.namespace}/pods", {"metadata": {"name": f"agent-{node}"}, "spec": spec})
            self.accounts[node] = plane.service_account(self.namespace, "agent", pod=f"agent-{node}")
        self.accounts["nowhere"] = plane.service_account(self.namespace, "agent")
        # The API server learns of a policy a moment later.
        harness.wait_until("the policy holds", lambda: self.write("nowhere", "probe").returncode != 0)

    def write(self, place, node, *more):
        return self.plane.kubectl("apply", "--server-side", "--field-manager=gpu-agent", "-f", "-", *more, expected=None,
                                  text_in=json.dumps(status_of(node)), user=self.accounts[place])

    def delete(self, place, node):
        return self.plane.kubectl("delete", "gns", node, user=self.accounts[place], expected=None)


@pytest.fixture(scope="module", name="agents")
def agents_fixture(module_plane):
    return Agents(module_plane)


def test_a_node_writes_its_own_status(agents):
    assert "serverside-applied" in agents.write("n1", "n1").stdout
    done = agents.write("n1", "n1", "--subresource=status")
    assert done.returncode == 0, done.stderr
    assert agents.plane.get("/apis/gpu.scheduling/v1/gpunodestatuses/n1")["status"]["total"] == 8


def test_a_node_writes_no_other_nodes_status(agents):
    assert agents.write("n2", "n2").returncode == 0
    expected = "this token belongs to the node n1 and may not write the GpuNodeStatus of n2"
    for more in ((), ("--subresource=status",)):
        refused = agents.write("n1", "n2", "--force-conflicts", *more)
        assert refused.returncode == 1 and expected in refused.stderr, refused
    refused = agents.delete("n1", "n2")
    assert refused.returncode == 1 and expected in refused.stderr, refused


def test_a_token_of_no_node_writes_nothing(agents):
    refused = agents.write("nowhere", "n1", "--force-conflicts")
    assert refused.returncode == 1
    assert "this token belongs to no node and may not write the GpuNodeStatus of n1" in refused.stderr


def test_administrators_and_the_garbage_collector_remove_what_is_left(agents):
    for node, caller in (("n1", []), ("n2", [f"--as={GARBAGE_COLLECTOR}"])):
        assert agents.write(node, node).returncode == 0
        agents.plane.kubectl("delete", "gns", node, *caller)
    refused = agents.plane.kubectl("apply", "-f", "-", f"--as={GARBAGE_COLLECTOR}", text_in=json.dumps(status_of("n1")), expected=1)
    assert "belongs to no node" in refused.stderr
