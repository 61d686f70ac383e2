"""What the chart starts works together: its command lines, rights and Secrets, as processes of this machine."""

import contextlib
import http.client
import re
import ssl

import pytest
from chart_pods import Release
from control_plane import ADMIN_TOKEN, ROOT, harness

PAGE = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(name="release")
def release_fixture(module_plane, session_folder, request, go_program):
    if not harness.IS_ROOT:
        pytest.skip("what runs as other users is tested as root")
    programs = {f"/usr/local/bin/{name}": go_program(name) for name in ("gpu-scheduler-kube", "gpu-scheduler-webhook")}
    release = Release(module_plane, session_folder / request.node.name, programs=programs)
    yield release
    release.end()


def test_a_job_runs_on_what_the_chart_starts(release):
    release.start_engine()
    agent = release.start("gpu-scheduler-agent")

    def ready():
        assert agent.process.poll() is None, agent.log()
        return "n1    ready" in release.cli("nodes").stdout

    harness.wait_until("the node is ready", ready)
    done = release.cli("submit", "--gpus", "1", "--wait", "--logs", "--", "sh", "-c", "id -un; echo got $CUDA_VISIBLE_DEVICES; "
                       f"cat {agent.place('/etc/gpu-scheduler/token')}/token 2>&1")
    assert "nobody\ngot GPU-sim-n1-" in done.stdout, (done.stdout, done.stderr)
    # The token that gives every right is not the jobs'.
    assert "Permission denied" in done.stdout


def add_node(release, name):
    """A node that is ready, as its kubelet would write it, with the agent that says which GPUs it has."""
    plane = release.plane
    path = f"/api/v1/nodes/{name}"
    plane.create("/api/v1/nodes", {"metadata": {"name": name}})
    room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    plane.patch(f"{path}/status", {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})
    plane.patch(path, {"spec": {"taints": []}})  # Without a controller manager nobody takes away what each new node gets.
    agent = release.add("gpu-scheduler-node-agent", node=name)
    agent.start(f"--kubernetes-api={plane.url}", f"--kubernetes-account={agent.account_folder()}")
    harness.wait_until("its GPUs are told", lambda: plane.kubectl("get", "gns", name, expected=None).returncode == 0)
    return agent


def start_webhook(release):
    plane, pod = release.plane, release.add("gpu-scheduler-webhook")
    port = {"name": "https", "port": 443, "targetPort": pod.port}
    plane.apply({"apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [port]},
                 "metadata": {"name": "gpu-scheduler-webhook", "namespace": release.namespace}})
    plane.kubectl("patch", "mutatingwebhookconfiguration", "gpu-scheduler-webhook", "--type=json", "-p",
                  '[{"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": %d}]' % pod.port)
    return pod.start(f"--kubeconfig={pod.account()}", f"--namespace={release.namespace}", "--drain=0s")


def start_scheduler(release, replica):
    pod = release.add("gpu-scheduler", replica)
    # In a pod these are what it finds there by itself.
    account = pod.account()
    return pod.start(f"--authentication-kubeconfig={account}", f"--authorization-kubeconfig={account}")


def metrics(pod, token):
    """The status with which a program answers a caller with this token."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", pod.port, context=tls, timeout=harness.PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status


def claim_and_pod(release, name):
    """The page's first example under another name, once the webhook serves."""
    text = EXAMPLES[0].replace("single-gpu", name)
    harness.wait_until("the claim and its pod are taken", lambda: release.plane.kubectl(
        "apply", "-n", "research", "-f", "-", text_in=text, expected=None).returncode == 0)


def bound(release, name):
    found = release.plane.get(f"/api/v1/namespaces/research/pods/{name}")
    return found if found["spec"].get("nodeName") else None


def test_a_pod_gets_its_devices_from_what_the_chart_starts(release):
    release.install()
    plane = release.plane
    plane.namespace("research")
    release.start_engine()
    webhook = start_webhook(release)
    schedulers = [start_scheduler(release, replica) for replica in (0, 1)]
    node_agent = add_node(release, "k1")

    claim_and_pod(release, "first")
    pod = harness.wait_until("the first pod is bound", lambda: bound(release, "first"))
    source = pod["spec"]["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.annotations['gpu.scheduling/allocated']"
    assert pod["metadata"]["annotations"]["gpu.scheduling/allocated"] == "0"
    shown = plane.kubectl("get", "gclaim", "first", "-n", "research").stdout.splitlines()
    assert "k1:0" in shown[1] and "Bound" in shown[1], shown

    # One replica works, the other takes over.
    lease = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler/leases/gpu-scheduler"
    holder = plane.get(lease)["spec"]["holderIdentity"]
    leader = next(pod for pod in schedulers if "successfully acquired lease" in pod.log().lower())
    leader.kill()
    claim_and_pod(release, "second")
    harness.wait_until("the second pod is bound", lambda: bound(release, "second"))
    assert plane.get(lease)["spec"]["holderIdentity"] != holder
    for one in (webhook, node_agent, *schedulers):
        assert "forbidden" not in one.log().lower()

    # It reads its metrics to whom the API server lets read them.
    other = next(pod for pod in schedulers if pod is not leader)
    assert [metrics(other, token) for token in (ADMIN_TOKEN, "wrong")] == [200, 401]

    # Its account removes the Leases of devices, and nobody else's.
    account = plane.service_account("gpu-scheduler", "gpu-scheduler")
    path = "/apis/coordination.k8s.io/v1/namespaces/research/leases"
    plane.create(path, {"metadata": {"name": "somebody"}})
    refused = plane.kubectl("delete", "lease", "somebody", "-n", "research", user=account, expected=1)
    assert "the Lease somebody is of no device" in refused.stderr
    held = plane.get(path)["items"]
    names = {one["metadata"]["name"] for one in held}
    assert names == {"somebody", "gpu-k1-0", "gpu-k1-1"}
    plane.kubectl("delete", "lease", "gpu-k1-1", "-n", "research", user=account)
