"""tools/demo-ha: it shows that nothing is lost with a leader, and leaves nothing."""

import os
import pathlib
import subprocess

import pytest
from harness import PATIENCE_S, processes, program, read_bytes

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_a_killed_leader_of_three_takes_nothing_with_it(tmp_path):
    done = subprocess.run([str(ROOT / "tools" / "demo-ha")], capture_output=True, text=True, timeout=2 * PATIENCE_S,
                          check=False, env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path),
                                            "GPUSCHED_BIN": str(pathlib.Path(program("gpu-scheduler")).parent)})
    if "was built without the consensus" in done.stderr:
        pytest.skip("gpu-scheduler was built without the consensus of several schedulers")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost, 0 made twice" in done.stdout and "attempt 1" in done.stdout, done.stdout
    assert done.stdout.endswith("Nothing was lost.\n")
    assert list(tmp_path.iterdir()) == []
    left = [pid for pid in processes() if os.fsencode(str(tmp_path)) in read_bytes(f"/proc/{pid}/cmdline")]
    assert left == []
