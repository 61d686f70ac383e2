"""The programs run on every system whose C library is new enough: they need no other library, and tell their commit."""

import os
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT

PROGRAMS = ("gpu-agent", "gpu-cli", "gpu-pilot", "gpu-scheduler", "gpu-shim")
LIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
BUILD = pathlib.Path(os.environ.get("GPUSCHED_BUILD", ROOT / "build"))


def program(name):
    path = BUILD / "bin" / name
    assert path.is_file(), f"{path} is missing: build first (make build)"
    return path


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_needs_the_c_library_alone(name):
    if "GPUSCHED_SLIM:BOOL=OFF" in (BUILD / "CMakeCache.txt").read_text():
        pytest.skip("this build links shared libraries by its own choice")
    listed = subprocess.run(["readelf", "--dynamic", "--wide", program(name)], capture_output=True, text=True, check=True)
    assert not set(NEEDED.findall(listed.stdout)) - LIBC


@pytest.mark.parametrize("name", PROGRAMS[:4])
def test_a_program_tells_its_commit(name):
    told = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True).stdout
    wanted = r" \(commit [0-9a-f]{12} of \d{4}-\d\d-\d\d(, changed since)?\)" if (ROOT / ".git").exists() else ""
    assert re.fullmatch(name + r" \d+\.\d+\.\d+" + wanted + "\n", told)
