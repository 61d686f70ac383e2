"""The Debian packages in a clean root: installed, upgraded while a job runs, removed only when none runs, purged without the
journal unless that is asked for. Needs root, mmdebstrap and Debian's mirror."""

import os
import re
import shutil
import subprocess

import pytest
from harness import IS_ROOT, PATIENCE_S, ROOT
from test_packages import WHEELS, pack

pytestmark = pytest.mark.skipif(not WHEELS.is_dir(), reason="run tools/install-python first")

# Runs below the clean root, in a process tree of its own. Prints what it sees; the first surprise ends it.
LIFE = r"""
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive HOME=/root
fail() { echo "FAILED: $*"; exit 1; }
until_true() { for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.1; done; fail "in vain: $*"; }

dpkg -i /debs/old/*.deb >/dev/null
getent passwd gpu-jobs gpu-scheduler | cut -d: -f1,6
getent group gpu-admin >/dev/null
stat -c '%n %a %U' /var/lib/gpu-agent /var/lib/gpu-jobs /etc/gpu-scheduler/scheduler.yaml
echo "# ours" >>/etc/gpu-scheduler/scheduler.yaml

mkdir -p /var/lib/gpu-scheduler /run/gpu-scheduler
serve() { gpu-scheduler --config /etc/gpu-scheduler/scheduler.yaml --data-dir /var/lib/gpu-scheduler 2>>/var/log/s.log & scheduler=$!; }
agent() { gpu-agent --node n1 --data-dir /var/lib/gpu-agent --sim-gpus 2xA100-SXM4-80GB --allow-root-jobs 2>>/var/log/a.log & agent=$!; }
serve
until_true gpu-cli cluster
agent
until_true sh -c 'gpu-cli nodes | grep -q ready'
job="$(gpu-cli submit --gpus 1 -- sh -c 'echo before; sleep 600' | grep -o 'job-[0-9]*' | head -n 1)"
until_true sh -c 'gpu-cli list | grep -q running'

dpkg -i /debs/new/*.deb >/dev/null
kill "$scheduler" "$agent"
wait "$scheduler" "$agent" || true
serve
until_true gpu-cli cluster
agent
until_true sh -c 'gpu-cli nodes | grep -q ready'
gpu-cli list | grep -q running || fail "the upgrade ended a job"
grep -q '^# ours' /etc/gpu-scheduler/scheduler.yaml || fail "the upgrade changed a configuration"
dpkg-query -W -f '${Package} ${Version}\n' gpu-agent gpu-cli gpu-scheduler

for package in gpu-agent gpu-scheduler; do
  if dpkg -r "$package" >/tmp/out 2>&1; then fail "$package was removed from under a job"; fi
  grep "is not removed" /tmp/out
done
gpu-cli cancel "$job"
until_true sh -c '! gpu-cli list | grep -q running'
kill "$agent"; wait "$agent" || true
dpkg -P gpu-agent
kill "$scheduler"; wait "$scheduler" || true
dpkg -P gpu-scheduler gpu-cli
test -d /var/lib/gpu-scheduler/journal || fail "the journal is gone"
test -d /var/lib/gpu-agent || fail "the agent's folder is gone"
test ! -e /etc/gpu-scheduler/scheduler.yaml || fail "a purge left a configuration"
test ! -e /usr/bin/gpu-scheduler || fail "a program was left"

dpkg -i /debs/new/*.deb >/dev/null
GPU_SCHEDULER_PURGE=data dpkg -P gpu-scheduler gpu-agent gpu-cli >/dev/null
test ! -e /var/lib/gpu-scheduler || fail "data was asked to be removed"
test ! -e /var/lib/gpu-agent || fail "data was asked to be removed"
echo "ALL OF IT"
"""


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_nothing_wrong(tmp_path):
    packed = pack(tmp_path / "packed")
    done = subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", *sorted(packed.glob("*.deb"))],
                          capture_output=True, text=True, timeout=PATIENCE_S * 10, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not IS_ROOT or shutil.which("mmdebstrap") is None, reason="needs root and mmdebstrap")
def test_the_first_job_of_each_package_is_measured(tmp_path):
    packed = pack(tmp_path / "packed")
    done = subprocess.run([ROOT / "tools" / "first-job", "--packages", packed, "--offline", "wheel", "deb"],
                          capture_output=True, text=True, timeout=PATIENCE_S * 20, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\| wheel \| 4 \| [\d.]+ \|$", done.stdout, re.MULTILINE)
    assert re.search(r"^\| deb \| 4 \| [\d.]+ \|$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(not IS_ROOT or shutil.which("mmdebstrap") is None, reason="needs root and mmdebstrap")
def test_the_packages_live_and_leave_in_a_clean_root(tmp_path):
    root = tmp_path / "root"
    made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase",
                           "--include=systemd-standalone-sysusers,systemd-standalone-tmpfiles", "bookworm", root],
                          capture_output=True, text=True, timeout=PATIENCE_S * 20, check=False)
    assert made.returncode == 0, made.stderr
    for age, version in (("old", "0.1.0~1"), ("new", "0.1.0~2")):
        packed = pack(tmp_path / age, DEB_VERSION=version)
        (root / "debs" / age).mkdir(parents=True)
        for deb in packed.glob("*.deb"):
            shutil.copy(deb, root / "debs" / age)
    (root / "life.sh").write_text(LIFE)
    done = subprocess.run(["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child", "sh", "-c",
                           f"ip link set lo up; mount -t proc proc {root}/proc; mount -t tmpfs tmpfs {root}/dev/shm; "
                           f"exec chroot {root} bash /life.sh"],
                          capture_output=True, text=True, timeout=PATIENCE_S * 10, check=False,
                          env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
    logs = "".join(path.read_text()[-3000:] for path in sorted((root / "var/log").glob("?.log")))
    assert done.returncode == 0 and "ALL OF IT" in done.stdout, done.stdout + done.stderr + logs
    assert "gpu-jobs:/var/lib/gpu-jobs" in done.stdout
    assert "gpu-scheduler 0.1.0~2" in done.stdout
    assert done.stdout.count("is not removed") == 2
