"""`make demo` runs an installed package if it was built from this version and commit, and builds otherwise."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "0.1.0"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def git(folder, *words):
    done = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=folder, check=True,
                          capture_output=True, text=True)
    return done.stdout.strip()


class Checkout:
    """A committed tree with the project's Makefile and demo.sh; installing, building and the programs say what they are."""

    def __init__(self, folder):
        self.folder = folder / "checkout"
        self.installed = folder / "usr-bin"
        self.installed.mkdir()
        for name in ("Makefile", "tools/demo.sh"):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        (self.folder / "CMakeLists.txt").write_text(f"project(gpu-scheduler VERSION {VERSION} LANGUAGES CXX)\n")
        script(self.folder / "tools/install-deps", "exit 0")
        script(self.folder / "tools/build", "echo built")
        script(self.folder / "build/bin/gpu-scheduler", 'echo "built program: $*"')
        (self.folder / ".gitignore").write_text("build/\n")
        git(self.folder, "init", "--quiet")
        git(self.folder, "add", ".")
        git(self.folder, "commit", "--quiet", "-m", "one")
        self.commit = git(self.folder, "rev-parse", "--short=12", "HEAD")

    def install(self, version=VERSION, commit=None, status=0):
        told = f"gpu-scheduler {version} (commit {commit or self.commit} of 2026-01-02)"
        script(self.installed / "gpu-scheduler",
               f'[ "$1" = --version ] && echo "{told}" && exit 0\necho "installed program: $*"\nexit {status}')

    def demo(self, *words, **environment):
        kept = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD", "GPUSCHED_BIN")}
        kept = {name: value for name, value in kept.items() if not name.startswith("MAKE") and name != "MFLAGS"}
        done = subprocess.run(["make", "demo", *words], cwd=self.folder, capture_output=True, text=True, check=False,
                              env={**kept, "PATH": f"{self.installed}:/usr/bin:/bin", **environment})
        return done.returncode, done.stdout


@pytest.fixture(name="checkout")
def checkout_fixture(tmp_path):
    return Checkout(tmp_path)


def test_a_package_of_this_commit_is_used(checkout):
    checkout.install()
    status, shown = checkout.demo()
    assert status == 0 and "installed program: demo" in shown and "built" not in shown.replace("is built", ""), shown


def test_a_demonstration_that_fails_is_not_run_again_by_another_program(checkout):
    checkout.install(status=1)
    status, shown = checkout.demo()
    assert status != 0 and "installed program: demo" in shown and "built program" not in shown


def test_without_a_package_it_builds(checkout):
    status, shown = checkout.demo()
    assert status == 0 and shown == "built\nbuilt program: demo\n"


@pytest.mark.parametrize("other", [{"version": "0.1.1"}, {"commit": "0123456789ab"}])
def test_a_package_of_another_version_or_commit_is_left_alone(checkout, other):
    checkout.install(**other)
    assert checkout.demo() == (0, "built\nbuilt program: demo\n")


def test_a_package_does_not_have_what_was_changed_here(checkout):
    checkout.install()
    (checkout.folder / "CMakeLists.txt").write_text(f"project(gpu-scheduler VERSION {VERSION} LANGUAGES C CXX)\n")
    assert checkout.demo() == (0, "built\nbuilt program: demo\n")


@pytest.mark.parametrize("words, environment", [(["BUILD=1"], {}), ([], {"BUILD": "1"}), ([], {"CI": "true"})])
def test_build_and_ci_always_build(checkout, words, environment):
    checkout.install()
    assert checkout.demo(*words, **environment) == (0, "built\nbuilt program: demo\n")
