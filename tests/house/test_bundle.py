"""The dashboard's bundle that is committed is the one of the committed sources, by hashes: no npm is needed to see it."""

import json
import shutil
import subprocess

from conftest import ROOT


def test_the_bundle_belongs_to_its_sources():
    done = subprocess.run([ROOT / "tools" / "web", "sum"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_bundle_of_other_sources_is_found(tmp_path):
    for name in ("tools/web", "web/package.json", "web/package-lock.json", "web/svelte.config.js", "web/tsconfig.json", "web/vite.config.ts"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("web/src", "web/public", "web/dist"):
        shutil.copytree(ROOT / folder, tmp_path / folder)

    def status():
        return subprocess.run([tmp_path / "tools" / "web", "sum"], capture_output=True, check=False).returncode

    assert status() == 0
    for name in ("web/src/main.ts", "web/dist/app.js"):
        before = (tmp_path / name).read_text()
        (tmp_path / name).write_text(before + "// more\n")
        assert status() == 1, name
        (tmp_path / name).write_text(before)
    assert status() == 0


def test_the_lock_file_names_no_registry():
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all("integrity" in package for name, package in packages.items() if name)
