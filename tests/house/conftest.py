"""Shared by the house rules: where the project and its build are, and which rooms CMake built."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def project_files():
    """Tracked files that exist, as paths relative to the project; without git, every file outside build/."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
        return sorted(name for name in names if (ROOT / name).is_file())
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__", "node_modules")]
        found += [str((pathlib.Path(folder) / name).relative_to(ROOT)) for name in names]
    return sorted(found)


@pytest.fixture(scope="session", name="rooms")
def rooms_fixture():
    """Room name -> {floor, pure, deps, library}, as CMake wrote it down."""
    build = pathlib.Path(os.environ.get("GPUSCHED_BUILD", ROOT / "build"))
    manifest = build / "tests" / "rooms.json"
    assert manifest.is_file(), f"{manifest} is missing: build first (make build)"
    rooms = {room["name"]: room for room in json.loads(manifest.read_text())}
    assert rooms
    return rooms
