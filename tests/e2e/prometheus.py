"""Debian's Prometheus and its promtool for the end-to-end tests."""

import os
import shutil
import subprocess

import harness
import pytest


def tool(name):
    """The path of `prometheus` or `promtool`. Where it is missing the test is skipped by name; in CI it fails."""
    unpacked = harness.ROOT / "build" / "prometheus" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if not found and os.environ.get("CI"):
        pytest.fail(f"{name} is not here: tools/install-prometheus")
    return found or pytest.skip(f"{name} is not here: tools/install-prometheus")


def promtool(*words, text_in=None, expected=0):
    """What promtool says; `words` begin with a command such as `check`."""
    done = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, input=text_in, check=False,
                          timeout=harness.PATIENCE_S)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr
