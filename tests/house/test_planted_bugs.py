"""Each planted bug (tools/planted) still applies to the code it breaks."""

import subprocess

from conftest import ROOT


def test_every_planted_bug_applies():
    if not list((ROOT / "tests" / "planted").glob("*.patch")):
        return
    done = subprocess.run([str(ROOT / "tools" / "planted"), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"refresh these patches, or delete those whose code is gone:\n{done.stdout}{done.stderr}"
