"""The Helm chart: a real API server takes each of its objects, and its programs run as it says."""

import base64
import json
import os
import re
import subprocess

import chart
import pytest
import yaml
from control_plane import ROOT, free_port, harness

ALL = {"agent__enabled": True, "serviceMonitor__enabled": True,
       "networkPolicy__clients": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
       "networkPolicy__monitoring": [{"namespaceSelector": {}}], "imagePullSecrets": [{"name": "registry"}],
       "engine__storage__className": "fast", "agent__runtimeClassName": "nvidia", "agent__simGpus": "4xA100-SXM4-80GB"}
RECORD = os.environ.get("GPUSCHED_RECORD_GOLDEN")


def containers(template):
    return [*template.get("initContainers", []), *template["containers"]]


def templates(found):
    """{name: the pods' specification} of what starts pods."""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})}


# --- Its values ---

def test_lint_finds_nothing():
    for values in ({}, ALL):
        words = chart.flags({name.replace("__", "."): value for name, value in values.items()})
        assert "0 chart(s) failed" in chart.helm("lint", "--strict", chart.FOLDER, *words).stdout


@pytest.mark.parametrize("name, value, message", [
    ("webhook.imgae.tag", "1", "imgae"), ("webhook.replicas", 0, "minimum"), ("agent.enabled", "yes", "boolean"),
    ("image.pullPolicy", "Sometimes", "pullPolicy")])
def test_a_wrong_value_is_refused_with_its_name(name, value, message):
    refused = chart.helm("template", "gpu-scheduler", chart.FOLDER, "--kube-version", chart.KUBE_VERSION,
                         *chart.flags({name: value}), expected=1)
    assert message in refused.stderr


def test_published_names_hold():
    found = chart.objects(serviceAccountName="own", webhook__image__repository="registry.example/webhook",
                          webhook__image__tag="7", image__repository="registry.example/engine", agent__enabled=True)
    for kind in ("ClusterRole", "ClusterRoleBinding", "ServiceAccount"):
        chart.of_kind(found, kind, "own-webhook")
    chart.of_kind(found, "Secret", "gpu-scheduler-webhook-cert")
    images = {name: {one["image"] for one in containers(spec)} for name, spec in templates(found).items()}
    assert images == {"gpu-scheduler-engine": {"registry.example/engine:0.1.0"},
                      "gpu-scheduler-agent": {"registry.example/engine:0.1.0"},
                      "gpu-scheduler-webhook": {"registry.example/webhook:7"}}
    webhook = chart.of_kind(found, "MutatingWebhookConfiguration")["webhooks"][0]
    excluded = webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    assert excluded == ["kube-system", "kube-public", "kube-node-lease"]


# --- Its objects ---

@pytest.mark.parametrize("values", [{}, ALL, {"networkPolicy__enabled": False, "webhook__excludeNamespaces": []}],
                         ids=["default", "all", "least"])
def test_the_api_server_takes_every_object(module_plane, values):
    namespace = module_plane.namespace()
    found = chart.objects(namespace=namespace, **values)
    # The Prometheus operator's definitions are not here.
    taken = [one for one in found if one["kind"] != "ServiceMonitor"]
    assert len(found) - len(taken) == (1 if values is ALL else 0)
    done = module_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-",
                                 text_in=yaml.safe_dump_all(taken))
    assert done.stdout.count("created (server dry run)") == len(taken)
    assert "Warning" not in done.stderr, done.stderr


def test_pods_need_no_privilege_but_those_of_agents(module_plane):
    """By the API server's own judgement: the level `restricted` of its pod security."""
    namespace = module_plane.namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    answers = {}
    for name, spec in templates(chart.objects(agent__enabled=True)).items():
        if "serviceAccountName" in spec:
            account = {"metadata": {"name": spec["serviceAccountName"]}}
            module_plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        if name == "gpu-scheduler-engine":  # As its volume claim template.
            spec["volumes"].append({"name": "data", "emptyDir": {}})
        body = {"metadata": {"name": name}, "spec": spec}
        answers[name] = module_plane.api("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    assert answers["gpu-scheduler-engine"][0] == answers["gpu-scheduler-webhook"][0] == 201, answers
    status, refused = answers["gpu-scheduler-agent"]
    assert status == 403
    # What an agent needs, and nothing more.
    for word in ("allowPrivilegeEscalation", "seccompProfile", "host namespaces", "privileged ("):
        assert word not in refused["message"], refused["message"]


def test_jobs_and_the_scheduler_get_no_credential_of_the_cluster():
    specs = templates(chart.objects(agent__enabled=True))
    for name in ("gpu-scheduler-engine", "gpu-scheduler-agent"):
        assert specs[name]["automountServiceAccountToken"] is False and "serviceAccountName" not in specs[name]
    tls = {volume["name"]: volume for volume in specs["gpu-scheduler-agent"]["volumes"]}["tls"]
    assert tls["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def test_the_definitions_are_those_of_the_programs():
    kinds = {one["spec"]["names"]["kind"] for one in chart.objects() if one["kind"] == "CustomResourceDefinition"}
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "kube" / "crds").glob("*.yaml")]
    assert kinds == {one["spec"]["names"]["kind"] for one in files}
    assert not [one for one in chart.objects(crds__install=False) if one["kind"] == "CustomResourceDefinition"]


# --- Plain manifests ---

PLAIN = ROOT / "deploy" / "k8s" / "gpu-scheduler.yaml"
HEADER = """# The scheduler and its agents, as docs/operate/kubernetes.md ("Without Helm") installs them. Made from the chart:
# GPUSCHED_RECORD_GOLDEN=1 pytest tests/kube/test_chart.py -k plain
"""


def test_the_plain_manifest_is_what_the_chart_makes():
    made = HEADER + chart.template(crds__install=False, nodeStatusPolicy__enabled=False, webhook__enabled=False,
                                   agent__enabled=True, engine__tokenSecret="gpu-scheduler-token",
                                   engine__tlsSecret="gpu-scheduler-engine-tls")
    if RECORD:
        PLAIN.write_text(made)
    assert PLAIN.read_text() == made


# --- Its life ---

class Release:
    def __init__(self, plane, namespace):
        self.plane, self.namespace = plane, namespace

    def call(self, command, *words, **values):
        where = ["-n", self.namespace, "--kubeconfig", self.plane.admin]
        values = chart.flags({name.replace("__", "."): value for name, value in values.items()})
        folder = [] if command == "uninstall" else [ROOT / "charts" / "gpu-scheduler"]
        return chart.helm(command, "gpu-scheduler", *folder, *where, *words, *values).stdout

    def secret(self, name):
        found = self.plane.get(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
        return {key: base64.b64decode(text) for key, text in found.get("data", {}).items()}


@pytest.fixture(name="release")
def release_fixture(module_plane):
    release = Release(module_plane, module_plane.namespace())
    yield release
    # Definitions outlive their release, and belong to it.
    module_plane.kubectl("delete", "crds", "--all")
    release.call("uninstall", "--ignore-not-found")


def test_an_upgrade_keeps_every_secret(release, module_plane):
    printed = release.call("install")
    assert f"https://gpu-scheduler-engine.{release.namespace}.svc:8080" in printed
    names = ("gpu-scheduler-token", "gpu-scheduler-engine-tls", "gpu-scheduler-webhook-cert")
    module_plane.kubectl("patch", "secret", names[2], "-n", release.namespace, "--type=merge", "-p",
                          json.dumps({"data": {"tls.crt": "Y2VydGlmaWNhdGU="}}))
    module_plane.kubectl("patch", "mutatingwebhookconfiguration", "gpu-scheduler-webhook", "--type=json", "-p",
                          '[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "%s"}]'
                          % module_plane.authority.data("ca.crt"))
    before = [release.secret(name) for name in names]
    assert re.fullmatch(rb"[0-9a-f]{64}", before[0]["token"])
    release.call("upgrade", webhook__replicas=3, engine__config={"scheduler": {"queue_order": "fair_share"}})
    assert [release.secret(name) for name in names] == before
    configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    configuration = module_plane.get(f"{configurations}/gpu-scheduler-webhook")
    assert configuration["webhooks"][0]["clientConfig"]["caBundle"] == module_plane.authority.data("ca.crt")
    deployment = module_plane.get(f"/apis/apps/v1/namespaces/{release.namespace}/deployments/gpu-scheduler-webhook")
    assert deployment["spec"]["replicas"] == 3


def test_what_is_uninstalled_is_gone(release, module_plane):
    release.call("install", agent__enabled=True)
    claim = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": "kept", "namespace": release.namespace},
             "spec": {"devices": {"count": 1}}}
    harness.wait_until("claims are known", lambda: module_plane.kubectl(
        "apply", "-f", "-", text_in=json.dumps(claim), expected=None).returncode == 0)
    release.call("uninstall")
    kinds = "secrets,configmaps,services,statefulsets,deployments,daemonsets,roles,rolebindings,networkpolicies,pdb"
    left = module_plane.kubectl("get", kinds, "-n", release.namespace, "-o", "name").stdout.split()
    assert left == []
    cluster = module_plane.kubectl("get", "clusterroles,clusterrolebindings,mutatingwebhookconfigurations,"
                                    "validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name").stdout
    assert "gpu-scheduler" not in cluster
    # Nobody's claims go away with the programs.
    module_plane.kubectl("get", "gclaim", "kept", "-n", release.namespace)


# --- Its programs ---

class Pods:
    """The chart's own command lines as processes of this machine, with the users and capabilities that it gives."""

    def __init__(self, plane, folder):
        self.plane, self.folder = plane, folder
        folder.mkdir()
        folder.chmod(0o755)
        self.found = chart.objects(agent__enabled=True, agent__simGpus="2xA100-SXM4-80GB", agent__defaultUser="nobody",
                                   agent__options=["--user-min-uid=1"])
        self.specs = templates(self.found)
        self.ports = {port: free_port() for port in ("8080", "9090", "9091")}
        self.running = []

    def place(self, path):
        return self.folder / path.lstrip("/").replace("/", "-")

    def words(self, text):
        """A word of the chart as it holds here: folders below ours, ports that are free, this machine as the Service."""
        text = re.sub(r"/var/lib/gpu-(?:scheduler|agent)(?=/|$)|/etc/gpu-scheduler/(?:config|tls|token)(?=/|$)",
                      lambda match: str(self.place(match[0])), text)
        text = text.replace("gpu-scheduler-engine.gpu-scheduler.svc:9090", f"localhost:{self.ports['9090']}")
        return text.replace("$(NODE_NAME)", "n1").replace("$(POD_IP)", "127.0.0.1")

    def mount(self, spec, owner):
        """Secrets and configuration as the kubelet lays them out, for the pod's group."""
        group = spec["securityContext"].get("fsGroup", 0)
        mounts = {mount["name"]: mount["mountPath"] for one in containers(spec) for mount in one["volumeMounts"]}
        for volume in spec["volumes"]:
            if "secret" in volume:
                secret = chart.of_kind(self.found, "Secret", volume["secret"]["secretName"])["data"]
                keys = [item["key"] for item in volume["secret"].get("items", [])] or secret
                files = {key: base64.b64decode(secret[key]) for key in keys}
            elif "configMap" in volume:
                text = chart.of_kind(self.found, "ConfigMap", volume["configMap"]["name"])["data"]["scheduler.yaml"]
                config = yaml.safe_load(text)
                config["api"].update(http_port=self.ports["8080"], grpc_port=self.ports["9090"])
                config["metrics"]["port"] = self.ports["9091"]
                for key in ("tls_cert_path", "tls_key_path"):
                    config["api"][key] = self.words(config["api"][key])
                files = {"scheduler.yaml": yaml.safe_dump(config).encode()}
            else:
                continue
            place = self.place(mounts[volume["name"]])
            place.mkdir(exist_ok=True)
            for name, content in files.items():
                (place / name).write_bytes(content)
                (place / name).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
                os.chown(place / name, 0, group)
        data = self.place(mounts["data"])
        data.mkdir()
        os.chown(data, 0, group)
        data.chmod(0o2770 if owner else 0o755)

    def start(self, spec, container):
        context = {**spec["securityContext"], **container["securityContext"]}
        user, group = context["runAsUser"], context.get("runAsGroup", 0)
        kept = ",".join("+" + name.lower() for name in context["capabilities"].get("add", []))
        limits = ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={group}", "--no-new-privs",
                  f"--bounding-set=-all{',' + kept if kept else ''}", "--inh-caps=-all"]
        words = [self.words(word) for word in (*container["command"], *container.get("args", []))]
        if words[0].startswith("gpu-"):
            words[0] = harness.program(words[0])
        return self.plane.run(*limits, *words)

    def run(self, name):
        spec = self.specs[name]
        self.mount(spec, owner="fsGroup" in spec["securityContext"])
        for container in spec.get("initContainers", []):
            first = self.start(spec, container)
            assert first.wait(harness.PATIENCE_S) == 0, first.log.read_text()
        process = self.start(spec, spec["containers"][0])
        self.running.append(process)
        return process

    def cli(self, *words):
        """gpu-cli as the scheduler's own user, who may read its token."""
        data = self.place("/var/lib/gpu-scheduler")
        access = [f"--api-url=https://localhost:{self.ports['8080']}", f"--token-file={data}/token",
                  f"--ca-file={self.place('/etc/gpu-scheduler/tls')}/ca.crt"]
        return subprocess.run(["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", harness.program("gpu-cli"),
                               *access, *words], capture_output=True, text=True, check=False, timeout=harness.PATIENCE_S,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)})

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
            process.wait(harness.PATIENCE_S)


@pytest.fixture(name="pods")
def pods_fixture(module_plane, session_folder):
    if not harness.IS_ROOT:
        pytest.skip("what runs as other users is tested as root")
    pods = Pods(module_plane, session_folder / "pods")
    yield pods
    pods.stop()


def test_a_job_runs_on_what_the_chart_starts(pods):
    engine = pods.run("gpu-scheduler-engine")

    def serves():
        assert engine.poll() is None, engine.log.read_text()
        return pods.cli("cluster").returncode == 0

    harness.wait_until("the scheduler serves", serves)
    agent = pods.run("gpu-scheduler-agent")

    def ready():
        assert agent.poll() is None, agent.log.read_text()
        return "n1    ready" in pods.cli("nodes").stdout

    harness.wait_until("the node is ready", ready)
    done = pods.cli("submit", "--gpus", "1", "--wait", "--logs", "--", "sh", "-c", "id -un; echo got $CUDA_VISIBLE_DEVICES; "
                    f"cat {pods.place('/etc/gpu-scheduler/token')}/token 2>&1")
    assert "nobody\ngot GPU-sim-n1-" in done.stdout, (done.stdout, done.stderr)
    # The token that gives every right is not the jobs'.
    assert "Permission denied" in done.stdout
