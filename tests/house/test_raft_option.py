"""GPUSCHED_RAFT=AUTO has the consensus of replicas where cargo can build it, and says why where not."""

import subprocess

import pytest
from conftest import ROOT


def configure(folder, **settings):
    """What cmake prints about a project of nothing but the option's rules."""
    lines = ["cmake_minimum_required(VERSION 3.25)", "project(tiny NONE)", f"set(PROJECT_SOURCE_DIR {ROOT})",
             "set(GPUSCHED_RAFT AUTO CACHE STRING wanted)", f"include({ROOT / 'cmake' / 'Raft.cmake'})",
             'message(STATUS "it is ${GPUSCHED_RAFT}")']
    (folder / "CMakeLists.txt").write_text("\n".join(lines) + "\n")
    command = ["cmake", "-S", str(folder), "-B", str(folder / "build"), *(f"-D{name}={value}" for name, value in settings.items())]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return [line for line in done.stdout.splitlines() if "it is" in line or "left out" in line]


@pytest.mark.parametrize("settings, printed", [
    ({"CARGO": "/bin/true"}, ["-- it is ON"]),
    ({"CARGO": ""}, ["-- Several schedulers that are one: left out, there is no cargo (GPUSCHED_RAFT=ON demands it)",
                     "-- it is OFF"]),
    ({"CARGO": "/bin/false"}, ["-- Several schedulers that are one: left out, cargo has no access to the crates of "
                               "src/consensus/raft/Cargo.lock (GPUSCHED_RAFT=ON demands it)", "-- it is OFF"]),
    ({"CARGO": "/bin/true", "GPUSCHED_SANITIZE": "thread"}, ["-- it is OFF"]),
    ({"CARGO": "", "GPUSCHED_RAFT": "ON"}, ["-- it is ON"]),
    ({"CARGO": "/bin/true", "GPUSCHED_RAFT": "OFF"}, ["-- it is OFF"]),
], ids=["cargo", "no-cargo", "no-registry", "sanitizer", "demanded", "refused"])
def test_automatic_is(settings, printed, tmp_path):
    assert configure(tmp_path, **settings) == printed
