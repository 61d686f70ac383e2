"""The control plane that the other Kubernetes tests use: it is real, it asks RBAC, and it keeps what it was told."""

import time


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}}


def test_it_is_the_version_that_the_modules_name(control_plane):
    version = control_plane.get("/version")
    assert version["gitVersion"] == "v1.36.3"
    assert "Server Version: v1.36.3" in control_plane.kubectl("version").stdout


def test_a_user_may_do_what_rbac_says_and_no_more(control_plane):
    namespace = control_plane.namespace()
    user = control_plane.user("ada", groups=["team-a"])
    refused = control_plane.kubectl("get", "configmaps", "-n", namespace, user=user, expected=1)
    assert 'User "ada" cannot list resource "configmaps"' in refused.stderr
    control_plane.apply(
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader", "namespace": namespace},
         "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
         "metadata": {"name": "reader", "namespace": namespace},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
         "subjects": [{"kind": "Group", "name": "team-a"}]})
    control_plane.kubectl("get", "configmaps", "-n", namespace, user=user)
    refused = control_plane.kubectl("get", "secrets", "-n", namespace, user=user, expected=1)
    assert 'cannot list resource "secrets"' in refused.stderr


def test_a_service_account_calls_by_its_token(control_plane):
    namespace = control_plane.namespace()
    account = control_plane.service_account(namespace, "default")
    shown = control_plane.kubectl("auth", "whoami", user=account).stdout
    assert f"system:serviceaccount:{namespace}:default" in shown


def test_a_pod_is_bound_once(control_plane):
    namespace = control_plane.namespace()
    pod = {"metadata": {"name": "pod"}, "spec": {"containers": [{"name": "main", "image": "image"}]}}
    control_plane.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    binding = {"metadata": {"name": "pod"}, "target": {"kind": "Node", "name": "node-a"}}
    path = f"/api/v1/namespaces/{namespace}/pods/pod/binding"
    assert control_plane.api("POST", path, binding)[0] == 201
    assert control_plane.api("POST", path, binding)[0] == 409


def test_what_was_stored_outlives_kills_of_both_programs(own_control_plane):
    plane = own_control_plane
    namespace = plane.namespace()
    plane.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map("kept"))
    plane.kill("etcd")
    plane.kill("kube-apiserver")
    started = time.monotonic()
    plane.start()
    print(f"ready again after {time.monotonic() - started:.1f} s")
    assert plane.get(f"/api/v1/namespaces/{namespace}/configmaps/kept")["data"] == {"key": "value"}
