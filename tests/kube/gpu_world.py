"""A cluster with GPUs: the engine, gpu-scheduler-kube as a user of its own with RBAC, nodes, claims and pods.

There is no kubelet: a test says itself when a pod has ended (finish), and removes pods with a grace period of 0.
"""

import contextlib
import itertools
import json
import subprocess

import control_plane as kubernetes
from control_plane import harness
from ports import free_port

CRDS = kubernetes.ROOT / "kube" / "crds"
GROUP = "/apis/gpu.scheduling/v1"
GPU = "NVIDIA A100-SXM4-80GB"
SERIAL = itertools.count(1)

# Rights that the program needs beyond upstream's roles for a scheduler.
RULES = [
    {"apiGroups": ["gpu.scheduling"], "resources": ["gpuclaims", "gpugangs", "gpunodestatuses"],
     "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["gpu.scheduling"], "resources": ["gpuclaims/status", "gpugangs/status"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
     "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["gpu-scheduler"],
     "verbs": ["update"]},  # That of the election.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/binding", "pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["namespaces", "nodes"], "verbs": ["get", "list", "watch"]},
]
ROLES = ("gpu-scheduler-test", "system:kube-scheduler", "system:volume-scheduler")


def grant(plane, user, roles=ROLES):
    """Binds the cluster roles to the user, the scheduler's own one made first."""
    plane.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                 "metadata": {"name": "gpu-scheduler-test"}, "rules": RULES})
    for role in roles:
        plane.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                     "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                     "subjects": [{"kind": "User", "name": user}]})


def install_crds(plane):
    names = ("gpuclaims", "gpugangs", "gpunodestatuses")
    plane.apply("".join((CRDS / f"{name}.yaml").read_text() for name in names))
    for crd in names:
        plane.kubectl("wait", "--for=condition=Established", f"crd/{crd}.gpu.scheduling")


class Bridge:
    """gpu-scheduler-kube, started, killed, started again."""

    def __init__(self, plane, program, configuration):
        self.plane, self.program, self.configuration = plane, program, configuration
        self.file = plane.folder / f"scheduler-{next(SERIAL)}.json"
        self.file.write_text(json.dumps(configuration))
        self.process = None

    def start(self):
        self.process = self.plane.run(
            self.program, f"--config={self.file}", "--bind-address=127.0.0.1", f"--secure-port={free_port()}",
            f"--cert-dir={self.plane.folder}/scheduler-certificates", "--v=2")
        return self

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self):
        """SIGTERM; its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(harness.PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError("gpu-scheduler-kube does not end") from None

    def log(self):
        return self.process.log.read_text(errors="replace")


def configuration_of(kubeconfig, address, token_file, **arguments):
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 500},
        "leaderElection": {"leaderElect": False}, "delayCacheUntilActive": True,
        "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 2,
        "profiles": [{
            "schedulerName": "gpu-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "GpuScheduler"}]},
                        "bind": {"disabled": [{"name": "DefaultBinder"}]},
                        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            "pluginConfig": [{"name": "GpuScheduler", "args": {
                "engine": {"address": address, "keyFile": str(token_file)}, **arguments}},
                             {"name": "NodeResourcesFit", "args": {"ignoredResources": ["nvidia.com/gpu"]}}]}]}


class GpuWorld:
    """One engine and one bridge on a control plane. Only one of them works on a control plane at a time."""

    def __init__(self, plane, program, folder, user="gpu-scheduler", roles=ROLES, crds=True, changes=(),
                 settings=()):
        """`changes` are of the program's configuration, `settings` of the engine's."""
        self.plane = plane
        self.world = harness.World(dict(settings), folder)
        self.engine = self.world.scheduler.start()
        if crds:
            install_crds(plane)
        grant(plane, user, roles)
        kubeconfig = plane.user(user)
        configuration = configuration_of(kubeconfig, f"127.0.0.1:{self.engine.ports['grpc']}",
                                         self.engine.data_dir / "token") | dict(changes)
        self.bridge = Bridge(plane, program, configuration).start()

    def end(self):
        self.bridge.kill()
        self.world.end()
        self.world.remove()

    # --- Nodes ---

    def add_node(self, gpus=4, labels=None, taints=(), cpu="8", name=None):
        """A node that is ready, and what its agent says of it; its name."""
        name = name or f"node-{next(SERIAL)}"
        self.plane.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}},
                                            "spec": {"taints": list(taints)}})
        status = {"capacity": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
                  "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}
        status["allocatable"] = status["capacity"]
        self.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        # Without a controller manager nobody takes the taint away that each new node gets.
        self.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": list(taints)}})
        self.set_gpus(name, gpus)
        self.wait_engine_node(name)
        return name

    def set_gpus(self, node, gpus, unhealthy=(), islands=""):
        """`islands` has a letter for each GPU: those with the same one are linked by NVLink of an A100."""
        devices = [{"id": i, "uuid": f"GPU-{node}-{i}", "model": GPU, "memoryMB": 81920,
                    "health": "Unhealthy" if i in unhealthy else "Healthy",
                    **({"island": islands[i], "bandwidthGBps": 600} if islands else {})} for i in range(gpus)]
        body = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": node},
                "spec": {"nodeName": node}}
        for part, more in (("", {}), ("/status", {"status": {"total": gpus, "devices": devices}})):
            path = f"{GROUP}/gpunodestatuses/{node}{part}?fieldManager=gpu-agent{'-status' if part else ''}&force=true"
            status, answer = self.plane.api("PATCH", path, {**body, **more}, "application/apply-patch+yaml")
            assert status in (200, 201), answer

    def remove_node(self, name):
        self.plane.api("DELETE", f"{GROUP}/gpunodestatuses/{name}")
        self.plane.api("DELETE", f"/api/v1/nodes/{name}")

    def wait_engine_node(self, name, state="ready"):
        return self.engine.api().wait_node(name, state)

    # --- Claims and pods ---

    def claim(self, namespace, name="claim", **spec):
        count = spec.pop("count", 1)
        devices = {"count": count, **spec.pop("devices", {})}
        return self.plane.create(f"{GROUP}/namespaces/{namespace}/gpuclaims", {
            "apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": name},
            "spec": {"devices": devices, **spec}})

    def gang(self, namespace, name="gang", **spec):
        return self.plane.create(f"{GROUP}/namespaces/{namespace}/gpugangs", {
            "apiVersion": "gpu.scheduling/v1", "kind": "GpuGang", "metadata": {"name": name}, "spec": spec})

    def wait_gang(self, namespace, phase, name="gang", words=""):
        def look():
            status = self.plane.get(f"{GROUP}/namespaces/{namespace}/gpugangs/{name}").get("status", {})
            return status if status.get("phase") == phase and words in status.get("message", "") else None

        return harness.wait_until(f"gang {namespace}/{name} is {phase} {words}", look)

    def pod(self, namespace, name="pod", claim="claim", cpu="100m", gpus=0, **spec):
        """`gpus` are nvidia.com/gpu in its container's limits."""
        annotations = {"gpu.scheduling/claim": claim} if claim else {}
        return self.plane.create(f"/api/v1/namespaces/{namespace}/pods", {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"schedulerName": "gpu-scheduler", "terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "main", "image": "image", "resources": {
                         "requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}], **spec}})

    def get_pod(self, namespace, name="pod"):
        """None: there is none."""
        status, pod = self.plane.api("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
        assert status in (200, 404), pod
        return pod if status == 200 else None

    def get_claim(self, namespace, name="claim"):
        return self.plane.get(f"{GROUP}/namespaces/{namespace}/gpuclaims/{name}")

    def leases(self, namespace):
        items = self.plane.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")["items"]
        return {item["metadata"]["name"]: item for item in items}

    def wait_bound(self, namespace, name="pod"):
        """The pod, once it is bound and the engine knows that it runs."""
        pod = harness.wait_until(f"pod {namespace}/{name} is bound",
                                 lambda: self._if(self.get_pod(namespace, name), lambda p: p["spec"].get("nodeName")))
        self.engine.api().wait_for(job_of(pod), ("running",))
        return pod

    def wait_message(self, namespace, name, words):
        """The pod's condition PodScheduled, once its message has the words."""
        def look():
            found = [c for c in self.get_pod(namespace, name).get("status", {}).get("conditions", ())
                     if c["type"] == "PodScheduled" and c["status"] == "False" and words in c.get("message", "")]
            return found[0] if found else None

        return harness.wait_until(f"pod {namespace}/{name} says {words!r}", look)

    def wait_claim(self, namespace, phase, name="claim", words=""):
        def look():
            claim = self.get_claim(namespace, name)
            status = claim.get("status", {})
            return claim if status.get("phase") == phase and words in status.get("message", "") else None

        return harness.wait_until(f"claim {namespace}/{name} is {phase} {words}", look)

    def wait_job(self, namespace, name="claim"):
        """The id of the job that waits for the claim."""
        return harness.wait_until(f"claim {namespace}/{name} names its job",
                                  lambda: self.get_claim(namespace, name).get("status", {}).get("job"))

    def wait_leases(self, namespace, names):
        harness.wait_until(f"the leases of {namespace} are {sorted(names)}",
                           lambda: set(self.leases(namespace)) == set(names))

    def finish(self, namespace, name="pod", exit_code=0):
        """What a kubelet says of a pod whose container has ended."""
        state = {"terminated": {"exitCode": exit_code, "reason": "Completed" if exit_code == 0 else "Error"}}
        self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": {
            "phase": "Succeeded" if exit_code == 0 else "Failed",
            "containerStatuses": [{"name": "main", "image": "image", "imageID": "", "ready": False, "restartCount": 0,
                                   "state": state}]}})

    def run_pod(self, namespace, name="pod"):
        """What a kubelet says of a pod whose container runs."""
        ready = {"type": "Ready", "status": "True"}
        self.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status",
                   {"status": {"phase": "Running", "conditions": [ready]}})

    def events(self, namespace, reason):
        """What the events of this reason say, by the names of their pods."""
        items = self.plane.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        return {item["regarding"]["name"]: item["note"] for item in items if item["reason"] == reason}

    def delete_pod(self, namespace, name="pod"):
        status, answer = self.plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}",
                                        {"gracePeriodSeconds": 0})
        assert status in (200, 404), answer

    def patch(self, path, body, expected=200):
        status, answer = self.plane.api("PATCH", path, body, "application/merge-patch+json")
        assert status == expected, (path, status, answer)
        return answer

    def free(self, node):
        """How many of the node's GPUs the engine can give."""
        return sum(gpu["state"] == "free" and gpu["condition"] == "ok" for gpu in self.engine.api().node(node)["gpus"])

    @staticmethod
    def _if(value, test):
        return value if value is not None and test(value) else None

    def clear(self):
        """Between tests: no pods of ours, no nodes, nothing held."""
        for pod in self.plane.get("/api/v1/pods")["items"]:
            with contextlib.suppress(AssertionError):
                self.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        for node in self.plane.get("/api/v1/nodes")["items"]:
            self.remove_node(node["metadata"]["name"])


def job_of(pod):
    return f"job-{record_of(pod)['job']}"


def record_of(pod):
    return json.loads(pod["metadata"]["annotations"]["gpu.scheduling/attempt"])
