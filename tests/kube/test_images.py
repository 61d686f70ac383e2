"""The image of the programs that call the Kubernetes API, built with podman from programs that are built here."""

import json
import pathlib
import shutil
import subprocess

import pytest
from control_plane import ROOT

import containers


@pytest.fixture(name="podman")
def podman_fixture(session_folder):
    reason = containers.why_not()
    if reason:
        pytest.skip(reason)
    podman = containers.Podman(session_folder / "podman")
    try:
        yield podman
    finally:
        podman.end()


def test_the_image_has_the_programs_and_no_user_who_is_root(podman, go_program, tmp_path):
    (tmp_path / "build" / "kube").mkdir(parents=True)
    names = sorted(path.name for path in (ROOT / "kube" / "cmd").iterdir())
    for name in names:
        shutil.copy(go_program(name), tmp_path / "build" / "kube" / name)
    podman.call("build", "-f", ROOT / "kube" / "Dockerfile", "--build-arg", "PROGRAMS=ready", "-t", "localhost/kube:1", tmp_path)
    image = json.loads(podman.call("inspect", "localhost/kube:1"))[0]
    assert image["Config"]["User"] == "10001:10001"
    assert len(image["RootFS"]["Layers"]) == 1
    archive = tmp_path / "image"
    podman.call("save", "--format=oci-dir", "-o", archive, "localhost/kube:1")
    layers = [path for path in pathlib.Path(archive).rglob("*") if path.is_file() and path.stat().st_size > 1_000_000]
    listed = subprocess.run(["tar", "-tf", layers[0]], capture_output=True, text=True, check=True).stdout.split()
    assert sorted(name.rpartition("/")[2] for name in listed if not name.endswith("/")) == names
