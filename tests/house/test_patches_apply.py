"""Each planted bug (tools/planted) and each mutant (tools/mutants) still applies to the code it breaks."""

import subprocess

import pytest
from conftest import ROOT


@pytest.mark.parametrize("tool", ["planted", "mutants"])
def test_every_patch_applies(tool):
    if not list((ROOT / "tests" / tool).glob("*.patch")):
        return
    done = subprocess.run([str(ROOT / "tools" / tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"refresh these patches, or delete those whose code is gone:\n{done.stdout}{done.stderr}"
