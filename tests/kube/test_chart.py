"""The Helm chart: a real API server takes each of its objects, and its programs run as it says."""

import base64
import json
import os
import re

import chart
import pytest
import yaml
from control_plane import ROOT, harness

ALL = {"agent__enabled": True, "serviceMonitor__enabled": True,
       "networkPolicy__clients": [{"namespaceSelector": {"matchLabels": {"team": "research"}}}],
       "networkPolicy__monitoring": [{"namespaceSelector": {}}], "imagePullSecrets": [{"name": "registry"}],
       "engine__storage__className": "fast", "agent__runtimeClassName": "nvidia", "agent__simGpus": "4xA100-SXM4-80GB",
       "nodeAgent__runtimeClassName": "nvidia", "nodeAgent__simGpus": "4xA100-SXM4-80GB", "nodeAgent__tolerations": [
           {"operator": "Exists"}], "nodeAgent__nodeSelector": {"nvidia.com/gpu.present": "true"}}
RECORD = os.environ.get("GPUSCHED_RECORD_GOLDEN")


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
    for part in ("scheduler", "agent", "webhook"):
        chart.of_kind(found, "ClusterRole", f"own-{part}")
        chart.of_kind(found, "ClusterRoleBinding", f"own-{part}")
    chart.of_kind(found, "ServiceAccount", "own")
    chart.of_kind(found, "Secret", "gpu-scheduler-webhook-cert")
    images = {name: {one["image"] for one in chart.containers(spec)} for name, spec in chart.templates(found).items()}
    assert images == {"gpu-scheduler": {"gpu-scheduler-kube:0.1.0"}, "gpu-scheduler-engine": {"registry.example/engine:0.1.0"},
                      "gpu-scheduler-agent": {"registry.example/engine:0.1.0"},
                      "gpu-scheduler-node-agent": {"registry.example/engine:0.1.0"},
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
    for name, spec in chart.templates(chart.objects(agent__enabled=True)).items():
        if "serviceAccountName" in spec:
            account = {"metadata": {"name": spec["serviceAccountName"]}}
            module_plane.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        if name == "gpu-scheduler-engine":  # As its volume claim template.
            spec["volumes"].append({"name": "data", "emptyDir": {}})
        body = {"metadata": {"name": name}, "spec": spec}
        answers[name] = module_plane.api("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)
    status, refused = answers.pop("gpu-scheduler-agent")
    assert {answer[0] for answer in answers.values()} == {201} and len(answers) == 4, answers
    assert status == 403
    # An agent needs these rights, and nothing more.
    for word in ("allowPrivilegeEscalation", "seccompProfile", "host namespaces", "privileged ("):
        assert word not in refused["message"], refused["message"]


def test_jobs_and_the_scheduler_get_no_credential_of_the_cluster():
    specs = chart.templates(chart.objects(agent__enabled=True))
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
                                   nodeAgent__enabled=False, scheduler__enabled=False, agent__enabled=True, engine__tokenSecret="gpu-scheduler-token",
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
