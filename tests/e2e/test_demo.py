"""gpu-scheduler demo: whichever way it ends, nothing of it is left. That it runs as it should is tests/e2e/test_packages.py's
and tools/demo.sh's."""

import os
import shutil
import signal
import subprocess

import pytest
from harness import PATIENCE_S, processes, program, read_bytes


def left_of(folder):
    """Ids of processes that have the folder on their command line or in their environment."""
    return [pid for pid in processes() for file in ("cmdline", "environ")
            if os.fsencode(str(folder)) in read_bytes(f"/proc/{pid}/{file}")]


def started(folder, path=None):
    return subprocess.Popen([path or program("gpu-scheduler"), "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder)})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demonstration_that_is_interrupted_leaves_nothing(tmp_path, number):
    demo = started(tmp_path)
    for line in demo.stdout:
        if "step 1 of 5" in line:
            break
    assert left_of(tmp_path)
    demo.send_signal(number)
    _, complaint = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 130, complaint
    assert "interrupted" in complaint
    assert list(tmp_path.iterdir()) == [] and left_of(tmp_path) == []


def test_without_an_agent_it_says_what_is_missing(tmp_path):
    alone = tmp_path / "bin" / "gpu-scheduler"
    alone.parent.mkdir()
    shutil.copy(program("gpu-scheduler"), alone)
    folder = tmp_path / "tmp"
    folder.mkdir()
    demo = started(folder, alone)
    _, complaint = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 1
    assert f"cannot start {alone.parent}/gpu-agent: No such file or directory" in complaint
    assert list(folder.iterdir()) == [] and left_of(folder) == []
