"""gpu-scheduler-webhook before a real API server, with the chart's own rights, Secret and configuration.

No pod runs here: the webhook's programs run on this machine as the chart's service account, and its Service is one that
names this machine.
"""

import base64
import contextlib
import http.client
import json
import ssl
import threading
import time

import chart
import pytest
from control_plane import free_port, harness

CLAIM = {"gpu.scheduling/claim": "claim"}
REFERENCE = {"name": "CUDA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {
    "apiVersion": "v1", "fieldPath": "metadata.annotations['gpu.scheduling/allocated']"}}}
CONFIGURATION = "gpu-scheduler-webhook"
SECRET = "gpu-scheduler-webhook-cert"


def pod(name="pod", annotations=None, containers=None, **spec):
    containers = containers or [{"name": "main", "image": "image"}]
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": containers, **spec}}


def variables(found, kind="containers"):
    """{container: its variables} of a pod."""
    return {one["name"]: one.get("env") for one in found["spec"].get(kind, [])}


class Webhook:
    """The chart's webhook in a control plane: its objects, and replicas as processes."""

    def __init__(self, plane, program):
        self.plane, self.program, self.port = plane, program, free_port()
        self.namespace = plane.namespace()
        self.replicas = []

    def install(self, **values):
        found = chart.objects(namespace=self.namespace, engine__enabled=False, scheduler__enabled=False, **values)
        wanted = ("ServiceAccount", "Secret", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
                  "MutatingWebhookConfiguration")
        chosen = [one for one in found if one["kind"] in wanted]
        service = chart.of_kind(found, "Service")
        # Without nodes no cluster address leads anywhere. The name in the certificate is still the Service's.
        service["spec"] = {"type": "ExternalName", "externalName": "localhost",
                           "ports": [{"name": "https", "port": 443, "targetPort": self.port}]}
        configuration = chart.of_kind(found, "MutatingWebhookConfiguration")
        configuration["webhooks"][0]["clientConfig"]["service"]["port"] = self.port
        self.plane.apply(*chosen, service)
        container = chart.of_kind(found, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.arguments = [word for word in container["args"] if not word.startswith("--listen")]
        self.account = self.plane.service_account(self.namespace, "gpu-scheduler-webhook")

    def start(self, *options, port=None):
        """One more replica."""
        process = self.plane.run(self.program, *self.arguments, f"--kubeconfig={self.account}", "--drain=0s",
                                 f"--namespace={self.namespace}", f"--listen=127.0.0.1:{port or self.port}", *options)
        process.port = port or self.port
        self.replicas.append(process)
        return process

    def stop(self):
        for replica in self.replicas:
            replica.kill()
            replica.wait()
        self.replicas.clear()

    def remove(self):
        self.stop()
        self.plane.api("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{CONFIGURATION}")

    def secret(self):
        found = self.plane.get(f"/api/v1/namespaces/{self.namespace}/secrets/{SECRET}")
        return {name: base64.b64decode(text).decode() for name, text in found.get("data", {}).items()}

    def configuration(self):
        return self.plane.get(f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{CONFIGURATION}")

    def authorities(self):
        text = self.configuration()["webhooks"][0]["clientConfig"].get("caBundle", "")
        return base64.b64decode(text).decode()

    def served(self, replica):
        """The certificate that a replica serves, as it would show it to an API server; None while it serves none."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with contextlib.suppress(OSError):
            return ssl.get_server_certificate(("127.0.0.1", replica.port), timeout=5)
        return None

    def wait_ready(self, replica):
        def look():
            assert replica.poll() is None, replica.log.read_text()
            return self.served(replica)

        return harness.wait_until("the webhook serves", look)

    def create(self, namespace, body):
        return self.plane.api("POST", f"/api/v1/namespaces/{namespace}/pods", body)


@pytest.fixture(name="empty_webhook")
def empty_webhook_fixture(control_plane, go_program):
    """The chart's objects, and no replica."""
    webhook = Webhook(control_plane, go_program("gpu-scheduler-webhook"))
    yield webhook
    webhook.remove()


@pytest.fixture(name="webhook")
def webhook_fixture(empty_webhook):
    """One replica that is ready."""
    empty_webhook.install()
    empty_webhook.wait_ready(empty_webhook.start())
    return empty_webhook


# --- What pods get ---

def test_every_container_of_a_pod_with_a_claim_gets_the_variable(webhook, control_plane):
    namespace = control_plane.namespace()
    body = pod(annotations=CLAIM, containers=[
        {"name": "adds", "image": "image"},
        {"name": "appends", "image": "image", "env": [{"name": "A", "value": "1"}]},
        {"name": "replaces", "image": "image", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2"},
                                                       {"name": "A", "value": "$(CUDA_VISIBLE_DEVICES)"}]},
        {"name": "repeats", "image": "image", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}, {"name": "A", "value": "1"},
                                                      {"name": "CUDA_VISIBLE_DEVICES", "value": "1"}]},
    ], initContainers=[{"name": "first", "image": "image", "env": []}])
    status, created = webhook.create(namespace, body)
    assert status == 201, created
    assert variables(created) == {
        "adds": [REFERENCE], "appends": [{"name": "A", "value": "1"}, REFERENCE],
        "replaces": [REFERENCE, {"name": "A", "value": "$(CUDA_VISIBLE_DEVICES)"}],
        "repeats": [REFERENCE, {"name": "A", "value": "1"}]}
    assert variables(created, "initContainers") == {"first": [REFERENCE]}


def test_a_user_does_not_choose_the_devices(webhook, control_plane):
    namespace = control_plane.namespace()
    chosen = {"gpu.scheduling/allocated": "0,1", "gpu.scheduling/allocated-node": "n1", "gpu.scheduling/attempt": "1"}
    body = pod(annotations={**CLAIM, **chosen, "mine": "yes"})
    status, created = webhook.create(namespace, body)
    assert status == 201, created
    assert created["metadata"]["annotations"] == {**CLAIM, "mine": "yes"}


def test_a_pod_without_a_claim_stays_as_it_is(webhook, control_plane):
    namespace = control_plane.namespace()
    status, created = webhook.create(namespace, pod(annotations={"gpu.scheduling/allocated": "0", "other": "yes"}))
    assert status == 201, created
    assert variables(created) == {"main": None}
    assert created["metadata"]["annotations"] == {"gpu.scheduling/allocated": "0", "other": "yes"}


ASKS = [{"name": "asks", "image": "image", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        {"name": "beside", "image": "image"}]


def test_a_pod_of_the_scheduler_that_asks_for_gpus_without_a_claim_gets_the_variable(webhook, control_plane):
    namespace = control_plane.namespace()
    status, created = webhook.create(namespace, pod("main", containers=ASKS, schedulerName="gpu-scheduler"))
    assert (status, variables(created)) == (201, {"asks": [REFERENCE], "beside": [REFERENCE]})
    status, created = webhook.create(namespace, pod("init", initContainers=ASKS[:1], schedulerName="gpu-scheduler"))
    assert (status, variables(created)) == (201, {"main": [REFERENCE]})
    for name, body in {"others": pod("others", containers=ASKS), "no-gpu": pod("no-gpu", schedulerName="gpu-scheduler")}.items():
        status, created = webhook.create(namespace, body)
        assert status == 201 and all(one is None for one in variables(created).values()), (name, created)


def test_excluded_namespaces_are_never_looked_at(empty_webhook, control_plane):
    control_plane.namespace("kube-excluded")
    empty_webhook.install(webhook__excludeNamespaces=["kube-excluded"], webhook__excludeOwnNamespace=True)
    empty_webhook.wait_ready(empty_webhook.start())
    for namespace in ("kube-excluded", empty_webhook.namespace):
        status, created = empty_webhook.create(namespace, pod(annotations=CLAIM))
        assert (status, variables(created)) == (201, {"main": None})
    status, created = empty_webhook.create(control_plane.namespace(), pod(annotations=CLAIM))
    assert (status, variables(created)) == (201, {"main": [REFERENCE]})


def test_a_webhook_that_fails_stops_pods_with_a_claim_and_no_others(webhook, control_plane):
    namespace = control_plane.namespace()
    webhook.stop()
    status, refused = webhook.create(namespace, pod("with", annotations=CLAIM))
    assert status == 500 and "devices.gpu.scheduling" in refused["message"], refused
    assert webhook.create(namespace, pod("without"))[0] == 201
    assert webhook.create(namespace, pod("other", annotations={"other": "yes"}))[0] == 201
    assert webhook.create(namespace, pod("gpus", containers=ASKS))[0] == 201
    assert webhook.create(namespace, pod("asks", containers=ASKS, schedulerName="gpu-scheduler"))[0] == 500
    webhook.wait_ready(webhook.start())
    harness.wait_until("a pod with a claim is made again",
                       lambda: webhook.create(namespace, pod("with", annotations=CLAIM))[0] == 201)


def test_what_is_no_admission_review_is_refused(webhook):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def call(method, body):
        connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=context, timeout=harness.PATIENCE_S)
        with contextlib.closing(connection):
            connection.request(method, "/mutate", body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    assert call("GET", None)[0] == 405
    assert call("POST", "nonsense") == (400, "the body is no admission review: invalid character 'o' in literal null "
                                             "(expecting 'u')\n")
    assert call("POST", json.dumps(review)) == (400, "the admission review has no request\n")
    assert call("POST", " " * (9 << 20))[0] == 413
    status, text = call("POST", json.dumps({**review, "request": {"uid": "u", "object": ["no pod"]}}))
    answer = json.loads(text)["response"]
    assert (status, answer["uid"], answer["allowed"]) == (200, "u", False)
    assert "the object is no pod" in answer["status"]["message"]


# --- Its certificate ---

def test_two_replicas_that_start_at_once_agree_on_one_certificate(empty_webhook):
    empty_webhook.install()
    # They all wait for their first answer, and get it at the same moment.
    with empty_webhook.plane.paused("etcd"):
        replicas = [empty_webhook.start(port=free_port()) for _ in range(4)]
        for replica in replicas:
            harness.wait_until("a replica has begun", lambda log=replica.log: '"Serving"' in log.read_text())
    served = {empty_webhook.wait_ready(replica) for replica in replicas}
    secret = empty_webhook.secret()
    assert served == {secret["tls.crt"]}
    assert empty_webhook.authorities() == secret["ca.crt"]
    made = sum("Made a new certificate" in replica.log.read_text() for replica in replicas)
    assert made == 1


def test_no_pod_is_refused_while_certificates_change(empty_webhook, control_plane):
    namespace = control_plane.namespace()
    empty_webhook.install()
    replica = empty_webhook.start("--certificate-lifetime=10s")
    other = empty_webhook.start("--certificate-lifetime=10s", port=free_port())
    first = empty_webhook.wait_ready(replica)
    seen, refused, stop = {first}, [], threading.Event()

    def create_pods():
        number = 0
        while not stop.is_set():
            number += 1
            status, answer = empty_webhook.create(namespace, pod(f"pod-{number}", annotations=CLAIM))
            if status != 201 or variables(answer) != {"main": [REFERENCE]}:
                refused.append((status, answer))
            time.sleep(0.1)

    creator = threading.Thread(target=create_pods)
    creator.start()
    try:
        def changed_twice():
            seen.add(empty_webhook.served(replica))
            return len(seen) >= 3

        harness.wait_until("the certificate changed twice", changed_twice)
    finally:
        stop.set()
        creator.join()
    assert not refused
    # The others follow, and nobody is told of more than what is served now and was before.
    assert empty_webhook.authorities().count("BEGIN CERTIFICATE") <= 2
    assert other.poll() is None


def test_what_somebody_removed_is_made_again(empty_webhook, control_plane):
    webhook = empty_webhook
    webhook.install()
    webhook.wait_ready(webhook.start("--certificate-lifetime=40s"))
    before = webhook.secret()
    control_plane.kubectl("patch", "mutatingwebhookconfiguration", CONFIGURATION, "--type=json", "-p",
                          '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]')
    harness.wait_until("the configuration has the authority again", lambda: webhook.authorities() == before["ca.crt"])
    control_plane.kubectl("patch", "secret", SECRET, "-n", webhook.namespace, "--type=merge", "-p",
                          '{"data": {"tls.key": null}}')
    harness.wait_until("there is another key", lambda: "tls.key" in webhook.secret())
    after = webhook.secret()
    assert after["tls.crt"] != before["tls.crt"]
    harness.wait_until("it is served", lambda: webhook.served(webhook.replicas[0]) == after["tls.crt"])
    # Whoever still serves with the one before is believed, too.
    assert after["ca.crt"].endswith(before["ca.crt"])


def test_a_certificate_of_somebody_else_is_only_served(empty_webhook, control_plane):
    service = f"gpu-scheduler-webhook.{empty_webhook.namespace}.svc"
    names = f"DNS:{service},DNS:{service}.cluster.local"
    control_plane.authority.certificate("elsewhere", "webhook", names=names)
    data = {"ca.crt": control_plane.authority.data("ca.crt"), "tls.crt": control_plane.authority.data("elsewhere.crt"),
            "tls.key": control_plane.authority.data("elsewhere.key")}
    control_plane.create(f"/api/v1/namespaces/{empty_webhook.namespace}/secrets", {"metadata": {"name": SECRET}, "data": data})
    empty_webhook.install(webhook__caBundle=data["ca.crt"])
    empty_webhook.wait_ready(empty_webhook.start("--certificate-lifetime=20s"))  # Only how often it looks.
    status, created = empty_webhook.create(control_plane.namespace(), pod(annotations=CLAIM))
    assert (status, variables(created)) == (201, {"main": [REFERENCE]})
    control_plane.authority.certificate("elsewhere", "webhook", names=names)
    data = {"tls.crt": control_plane.authority.data("elsewhere.crt"), "tls.key": control_plane.authority.data("elsewhere.key")}
    control_plane.kubectl("patch", "secret", SECRET, "-n", empty_webhook.namespace, "--type=merge", "-p",
                          json.dumps({"data": data}))
    renewed = (control_plane.authority.folder / "elsewhere.crt").read_text()
    harness.wait_until("the renewed one is served", lambda: empty_webhook.served(empty_webhook.replicas[0]) == renewed)


def test_the_chart_gives_it_no_more_rights_than_it_uses(webhook, control_plane):
    def may(verb, what, *more):
        done = control_plane.kubectl("auth", "can-i", verb, what, *more, user=webhook.account, expected=None)
        return done.stdout.strip() == "yes"

    own = ("-n", webhook.namespace)
    assert may("update", f"secrets/{SECRET}", *own) and may("patch", f"mutatingwebhookconfigurations/{CONFIGURATION}")
    for verb, what in (("get", "secrets/other"), ("create", "secrets"), ("list", "secrets"), ("delete", f"secrets/{SECRET}"),
                       ("get", "pods"), ("patch", "mutatingwebhookconfigurations/other"),
                       ("create", "mutatingwebhookconfigurations")):
        assert not may(verb, what, *own), (verb, what)
