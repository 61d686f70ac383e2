"""tools/package: the same bytes each time, a wheel that installs without a network and demonstrates itself, Debian packages
that are whole. What they do to a machine is tests/e2e/test_debian_packages.py's."""

import json
import os
import re
import shutil
import subprocess
import time

import pytest
from harness import PATIENCE_S, ROOT, bin_dir

PYTHON = ROOT / "build" / "python"
WHEELS = PYTHON / "wheels"  # Needed by the Python client; tools/install-python puts them there.
PROGRAMS = ("gpu-agent", "gpu-cli", "gpu-pilot", "gpu-scheduler", "gpu-shim")
DEBS = ("gpu-agent", "gpu-cli", "gpu-pilot", "gpu-scheduler")

pytestmark = pytest.mark.skipif(not WHEELS.is_dir() and not os.environ.get("CI"), reason="run tools/install-python first")


def run(*words, timeout_s=PATIENCE_S * 3, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=timeout_s, check=False,
                          stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pack(folder, **environment):
    run(ROOT / "tools" / "package", folder, env={**os.environ, "BIN_DIR": str(bin_dir()), **environment})
    return folder


@pytest.fixture(scope="module", name="packages")
def fixture_packages(tmp_path_factory):
    return pack(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module", name="installed")
def fixture_installed(packages, tmp_path_factory):
    """A fresh virtual environment with the wheel, from a folder and nothing else."""
    folder = tmp_path_factory.mktemp("wheels")
    for wheel in [*WHEELS.glob("*.whl"), *packages.glob("gpu_scheduler_suite-*.whl")]:
        shutil.copy(wheel, folder)
    place = tmp_path_factory.mktemp("venv") / "gpu"
    run(PYTHON / "bin" / "python", "-m", "venv", place)
    run(place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--find-links", folder,
        "gpu-scheduler-suite", cwd=folder)
    return place


def unpacked(packages, name, folder):
    (deb,) = packages.glob(f"{name}_*.deb")
    run("dpkg-deb", "--raw-extract", deb, folder)
    return folder


def test_two_packagings_of_the_same_programs_are_the_same_bytes(packages, tmp_path):
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=packages)
    listed = {line.split()[1] for line in (packages / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in packages.iterdir()} - {"SHA256SUMS"}
    time.sleep(1.1)  # A time that slips in would be another one.
    again = pack(tmp_path / "again", TMPDIR=str(tmp_path))
    assert (again / "SHA256SUMS").read_text() == (packages / "SHA256SUMS").read_text()


def test_the_wheel_installs_without_a_network_and_demonstrates_itself(installed, tmp_path):
    began = time.monotonic()
    shown = run(installed / "bin" / "gpu-scheduler", "demo", env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)})
    assert "Every job ended as it should" in shown and "gpu-scheduler dev" in shown, shown
    assert list(tmp_path.iterdir()) == []
    assert "exit code 3" in shown and "it was worth the wait" in shown
    assert time.monotonic() - began < PATIENCE_S


def test_the_wheel_has_the_client_the_pages_and_the_completion(installed):
    run(installed / "bin" / "python", "-c", "from gpu_scheduler import Client, GPUClient; Client", cwd="/")
    for name in PROGRAMS:
        assert os.access(installed / "bin" / name, os.X_OK)
    for path in ("share/man/man1/gpu-cli.1", "share/man/man8/gpu-scheduler.8", "share/bash-completion/completions/gpu-cli"):
        assert (installed / path).is_file()
    assert "commit" in run(installed / "bin" / "gpu-cli", "--version") or not (ROOT / ".git").exists()


@pytest.mark.parametrize("platform, taken", [("manylinux_2_36_x86_64", True), ("manylinux_2_35_x86_64", False),
                                             ("musllinux_1_2_x86_64", False)])
def test_pip_refuses_the_wheel_where_its_programs_do_not_run(packages, tmp_path, platform, taken):
    done = subprocess.run([PYTHON / "bin" / "pip", "download", "--quiet", "--no-index", "--find-links", packages, "--no-deps",
                           "--only-binary=:all:", "--platform", platform, "--dest", tmp_path, "gpu-scheduler-suite"],
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode == 0) == taken, done.stderr
    assert taken or "No matching distribution" in done.stderr


def test_no_program_wants_a_newer_c_library_than_the_wheel_says():
    for name in PROGRAMS:
        listed = run("readelf", "--version-info", "--wide", bin_dir() / name)
        wanted = {tuple(int(part) for part in version.split(".")) for version in re.findall(r"GLIBC_([\d.]+)", listed)}
        assert all(version <= (2, 36) for version in wanted), f"{name}: {max(wanted)}"


def test_a_pure_wheel_of_the_client_is_there_too(packages):
    names = {path.name.split("-")[0] + path.name[path.name.index("-py3"):] for path in packages.glob("*client*.whl")}
    assert names == {"gpu_scheduler_client-py3-none-any.whl"}
    assert len(list(packages.glob("gpu_scheduler_client-*.tar.gz"))) == 1


def test_every_file_is_in_one_debian_package_and_stripped(packages, tmp_path):
    seen = {}
    for name in DEBS:
        root = unpacked(packages, name, tmp_path / name)
        for path in root.rglob("*"):
            if path.is_file() and "DEBIAN" not in path.parts:
                relative = str(path.relative_to(root))
                assert seen.setdefault(relative, name) == name
                assert path.stat().st_mode & 0o7777 == (0o755 if relative.startswith("usr/bin/") else 0o644), relative
    assert {seen[f"usr/bin/{name}"] for name in PROGRAMS} == set(DEBS) and seen["usr/bin/gpu-shim"] == "gpu-agent"
    for name in PROGRAMS:
        path = tmp_path / seen[f"usr/bin/{name}"] / "usr/bin" / name
        assert ".debug_line" not in run("readelf", "--sections", "--wide", path)
        assert path.stat().st_size < 40e6
        told = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert name in told.stdout + told.stderr  # It starts.


def test_units_and_scripts_of_the_debian_packages_fit(packages, tmp_path):
    for name in DEBS:
        root = unpacked(packages, name, tmp_path / name)
        for script in (root / "DEBIAN").glob("p*"):
            run("sh", "-n", script)
            assert "@" not in script.read_text().replace("$@", "")
        for unit in root.rglob("*.service"):
            (command,) = re.findall(r"^ExecStart=(\S+)", unit.read_text(), re.MULTILINE)
            assert (root / command[1:]).is_file()
            assert f"{unit.stem}.service" in (root / "DEBIAN/postinst").read_text()
    assert (tmp_path / "gpu-scheduler/DEBIAN/conffiles").read_text() == "/etc/gpu-scheduler/scheduler.yaml\n"
    assert not (tmp_path / "gpu-cli/DEBIAN/postinst").exists()  # A command for users starts nothing.


def test_the_agent_is_not_removed_from_under_a_job(packages, tmp_path):
    script = unpacked(packages, "gpu-agent", tmp_path / "deb") / "DEBIAN/prerm"
    job = subprocess.Popen(["sleep", "300"], env={"GPU_SCHEDULER_ATTEMPT": "1@x", "PATH": os.environ["PATH"]})
    try:
        refused = subprocess.run(["sh", script, "remove"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        upgraded = subprocess.run(["sh", script, "upgrade", "0.2.0"], capture_output=True, timeout=PATIENCE_S, check=False)
    finally:
        job.kill()
        job.wait()
    assert refused.returncode == 1 and "gpu-cli list" in refused.stderr
    assert upgraded.returncode == 0


def test_the_symbols_belong_to_the_programs(packages, tmp_path):
    (symbols,) = packages.glob("gpu-scheduler-*-symbols.tar.zst")
    run("tar", "-C", tmp_path, "-xf", symbols)
    for name in PROGRAMS:
        told = run("readelf", "--notes", bin_dir() / name)
        (build,) = re.findall(r"Build ID: (\w+)", told)
        file = tmp_path / "usr/lib/debug/.build-id" / build[:2] / f"{build[2:]}.debug"
        assert ".debug_line" in run("readelf", "--sections", "--wide", file)


def test_the_contents_name_the_libraries_with_their_licences(packages):
    (path,) = packages.glob("*.spdx.json")
    document = json.loads(path.read_text())
    assert document["spdxVersion"] == "SPDX-2.3"
    versions = {package["name"]: (package["versionInfo"], package["licenseDeclared"]) for package in document["packages"]}
    assert versions["OpenSSL"][1] == "Apache-2.0" and re.match(r"\d", versions["OpenSSL"][0])
    has_crates = b"/raft-" in (bin_dir() / "gpu-scheduler").read_bytes()
    assert versions.get("crate raft") == (("0.7.0", "Apache-2.0") if has_crates else None)
    ids = {package["SPDXID"] for package in document["packages"]} | {"SPDXRef-DOCUMENT"}
    assert all({link["spdxElementId"], link["relatedSpdxElement"]} <= ids for link in document["relationships"])
