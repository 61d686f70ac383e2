"""Fixtures of the Kubernetes tests: one control plane for the session, ended with it."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import control_plane as kubernetes
import pytest

LOG_LINES_MAX = 60


@pytest.fixture(scope="session", name="session_folder")
def session_folder_fixture():
    """Where all is. A helper ends what is left of it even when this process is killed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpusched-kube-"))
    folder.chmod(0o755)
    reaper = subprocess.Popen([sys.executable, "-B", kubernetes.harness.__file__, str(folder)], stdin=subprocess.PIPE,
                              start_new_session=True)
    yield folder
    reaper.stdin.close()
    reaper.wait()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", name="go_program")
def go_program_fixture():
    """Builds the program of kube/cmd/NAME, once; its path."""
    built = {}

    def build(name):
        if name not in built:
            # A scheduler without a version calls itself v0.0.0.
            version = f"-X k8s.io/component-base/version.gitVersion=v{kubernetes.VERSION}"
            kubernetes.run_go("build", f"-ldflags=-s -w {version}", "-o", "../build/kube/", f"./cmd/{name}")
            built[name] = kubernetes.ROOT / "build" / "kube" / name
        return built[name]

    return build


def _started(folder, mark):
    reason = kubernetes.why_not()
    if reason:
        pytest.skip(reason)
    plane = kubernetes.ControlPlane(folder, mark)
    plane.start()
    return plane


@pytest.fixture(scope="session", name="control_plane")
def control_plane_fixture(session_folder):
    """The session's control plane, for tests that keep to namespaces of their own."""
    plane = _started(session_folder / "control-plane", session_folder)
    yield plane
    plane.stop()


@pytest.fixture(scope="module", name="module_plane")
def module_plane_fixture(session_folder, request):
    """A control plane for the tests of one file, which change what no namespace has."""
    plane = _started(session_folder / request.module.__name__, session_folder)
    yield plane
    plane.stop()


@pytest.fixture(name="own_control_plane")
def own_control_plane_fixture(session_folder, request):
    """A control plane for a test that kills it."""
    plane = _started(session_folder / request.node.name, session_folder)
    yield plane
    plane.stop()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """The ends of the session's logs beside a failure."""
    outcome = yield
    report = outcome.get_result()
    folder = getattr(item, "funcargs", {}).get("session_folder")
    if report.failed and folder:
        for log in sorted(folder.rglob("*.log")):
            lines = log.read_text(errors="replace").splitlines()[-LOG_LINES_MAX:]
            report.sections.append((f"{log.relative_to(folder)}, last {len(lines)} lines", "\n".join(lines)))
