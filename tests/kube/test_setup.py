"""A cluster that is not set up as it must be: pods are told why nothing is bound, and go on when it is mended."""

import json
import subprocess

import pytest
from gpu_world import CRDS, GpuWorld, configuration_of, grant, install_crds


@pytest.fixture(name="cluster")
def cluster_fixture(own_control_plane, go_program, session_folder):
    own_control_plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}})
    world = GpuWorld(own_control_plane, go_program("gpu-scheduler-kube"), session_folder, crds=False,
                     roles=("system:kube-scheduler", "system:volume-scheduler"))
    yield world
    world.end()


def test_missing_definitions_and_missing_rights_are_told_and_can_be_mended_without_a_restart(cluster):
    plane = cluster.plane
    namespace = plane.namespace()
    cluster.pod(namespace)
    cluster.wait_message(namespace, "pod", 'cannot list resource "gpuclaims"')
    grant(plane, "gpu-scheduler")
    cluster.wait_message(namespace, "pod", "the custom resource definition gpuclaims.gpu.scheduling is not installed")
    install_crds(plane)
    cluster.wait_message(namespace, "pod", 'gpu claim "claim" does not exist')
    cluster.add_node(gpus=1)
    cluster.claim(namespace)
    cluster.wait_bound(namespace)


def test_the_definitions_pass_the_strict_check_of_the_api_server(control_plane):
    shown = control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", CRDS).stdout
    assert "gpuclaims.gpu.scheduling" in shown and "gpunodestatuses.gpu.scheduling" in shown


@pytest.mark.parametrize(("change", "words"), [
    ({"delayCacheUntilActive": False, "leaderElection": {"leaderElect": True}}, "delayCacheUntilActive must be true"),
    ({"profiles": [{"schedulerName": "gpu-scheduler"}]}, "plug-in GpuScheduler must be enabled"),
])
def test_a_configuration_that_would_break_a_promise_ends_the_program(go_program, tmp_path, change, words):
    file = tmp_path / "configuration.json"
    file.write_text(json.dumps(configuration_of("absent", "127.0.0.1:1", "absent") | change))
    done = subprocess.run([go_program("gpu-scheduler-kube"), f"--config={file}"], capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 1
    assert words in done.stderr
