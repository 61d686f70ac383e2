"""tools/demo-machines and tools/demo-pilot: they show what they say, in less than a minute, and leave nothing."""

import os
import pathlib
import signal
import subprocess
import tempfile

import pytest
from harness import PATIENCE_S, ROOT, processes, program, read_bytes


@pytest.fixture(name="folder")
def folder_fixture(session_folder):
    """A folder that jobs of another user can pass."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="demo-", dir=session_folder))
    folder.chmod(0o755)
    return folder


def started(name, folder):
    return subprocess.Popen([str(ROOT / "tools" / name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), "HOME": str(folder),
                                 "GPUSCHED_BIN": str(pathlib.Path(program("gpu-scheduler")).parent)})


def left_of(folder):
    return [pid for pid in processes() for file in ("cmdline", "environ")
            if os.fsencode(str(folder)) in read_bytes(f"/proc/{pid}/{file}")]


def shows(folder, name, words, last):
    demo = started(name, folder)
    shown, complaint = demo.communicate(timeout=2 * PATIENCE_S)
    assert demo.returncode == 0, shown + complaint
    assert [one for one in words if one not in shown] == [] and shown.endswith(last), shown
    assert list(folder.iterdir()) == [] and left_of(folder) == []


def test_machines_come_for_waiting_jobs_and_go_back(folder):
    shows(folder, "demo-machines",
          ["being started", "it knows of burst-1 and burst-2", "2 machines were asked for, 2 are gone"],
          "Machines came when jobs waited and went when they were idle.\n")


def test_a_gpu_is_there_before_it_is_asked_for(folder):
    shows(folder, "demo-pilot",
          ["gpu-pilot: allocate", "burst-1 boots for it", "it runs on GPU-sim-burst-1-", "gpu-pilot: release",
           "1 lease was asked for, and 1 machine"], "The GPU was there before it was asked for.\n")


def test_a_demonstration_that_is_interrupted_leaves_no_machine(folder):
    demo = started("demo-machines", folder)
    for line in demo.stdout:
        if "kill -9 of the scheduler" in line:
            break
    assert left_of(folder)
    demo.send_signal(signal.SIGTERM)
    _, complaint = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 143, complaint
    assert list(folder.iterdir()) == [] and left_of(folder) == []
