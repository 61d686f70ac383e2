"""tools/install-deps: each system's list of packages, and none forgotten."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
# Debian 12's name where Ubuntu 24.04 has another.
RENAMED = {"chromium": "chromium-browser", "libboost-json1.81-dev": "libboost-json1.83-dev", "libboost1.81-dev": "libboost1.83-dev",
           "postgresql-15": "postgresql-16"}


def names(path):
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def run(tmp_path, release, *arguments):
    path = tmp_path / "os-release"
    path.write_text(release)
    environment = {name: value for name, value in os.environ.items() if name != "GPUSCHED_DEPS"}
    return subprocess.run([TOOLS / "install-deps", *arguments], capture_output=True, text=True, check=False,
                          env={**environment, "GPUSCHED_OS_RELEASE": str(path)})


@pytest.mark.parametrize("suffix", ["", "-extra", "-nightly"])
def test_ubuntu_has_a_name_for_each_of_debians(suffix):
    debian = names(TOOLS / f"packages-debian12{suffix}.txt")
    assert sorted(RENAMED.get(name, name) for name in debian) == sorted(names(TOOLS / f"packages-ubuntu2404{suffix}.txt"))


@pytest.mark.parametrize("release, file", [("ID=debian\nVERSION_ID=12\n", "packages-debian12.txt"),
                                           ('ID=ubuntu\nVERSION_ID="24.04"\n', "packages-ubuntu2404.txt")])
def test_the_system_chooses_the_list(tmp_path, release, file):
    done = run(tmp_path, release, "--list")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(set(names(TOOLS / file)))


def test_another_system_is_told_what_to_do(tmp_path):
    done = run(tmp_path, 'ID=fedora\nVERSION_ID=40\nPRETTY_NAME="Fedora 40"\n')
    assert done.returncode == 1
    assert "Fedora 40" in done.stderr and "GPUSCHED_DEPS=skip" in done.stderr


def test_an_unknown_argument_is_refused(tmp_path):
    assert run(tmp_path, "ID=debian\nVERSION_ID=12\n", "--what").returncode == 2
