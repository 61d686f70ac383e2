"""tools/web: the committed bundle of the dashboard is exactly what the sources make."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_bundle_is_what_the_sources_make():
    if shutil.which("npm") is None or not (ROOT / "web" / "node_modules").is_dir():
        lacks = "npm and web/node_modules are not there (tools/web install)"
        if os.environ.get("CI"):
            pytest.fail(lacks)
        pytest.skip(lacks)
    done = subprocess.run([ROOT / "tools" / "web", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_says_what_it_does_not_know():
    done = subprocess.run([ROOT / "tools" / "web", "deploy"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "tools/web build" in done.stdout
