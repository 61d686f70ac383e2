"""Every `sh` block of docs/operate runs as it stands there, but for folders and ports."""

import os
import re
import subprocess
import time

import harness
import pytest
from harness import PATIENCE_S, ROOT, bin_dir
from ports import free_port

GUIDE = ROOT / "docs" / "operate"
PAGES = ("install", "configure", "nodes", "autoscaling", "back-up", "recover", "troubleshoot", "when-hardware-fails",
         "alerts", "audit", "history", "keys", "jwt", "security", "tls", "three-machines")  # The last one by test_three_machines.py.
# Folders that a page names, as they are in a world.
PLACES = re.compile(r"/(?=(?:usr/local/bin|var/lib/gpu-|var/log/gpu-|var/backups/gpu-|etc/gpu-))")


class Site:
    """A machine as the guide has it: its folders below the world's, its ports free ones."""

    def __init__(self, world):
        self.world = world
        self.root = world.folder / "site"
        for folder in ("usr/local/bin", "var/lib", "var/log", "var/backups", "etc"):
            (self.root / folder).mkdir(parents=True)
        scheduler = world.scheduler
        scheduler.data_dir = self.root / "var/lib/gpu-scheduler"
        scheduler.log = self.root / "var/log/gpu-scheduler.log"
        self.ports = {"8080": free_port(), "9090": free_port(), "9091": free_port()}
        scheduler.ports = dict(zip(("http", "grpc", "metrics"), self.ports.values()))

    def start(self, *arguments, allow_root_jobs=harness.IS_ROOT):
        self.world.scheduler.start()
        agent = self.world.add_agent("n1", data_dir=self.root / "var/lib/gpu-agent", arguments=arguments,
                                     allow_root_jobs=allow_root_jobs)
        agent.log = self.root / "var/log/gpu-agent.log"
        agent.start()

    def translated(self, text):
        text = PLACES.sub(f"{self.root}/", text).replace("build/bin/", f"{bin_dir()}/")
        text = text.replace("gpu-jobs", "nobody")  # A user that every machine has.
        for port, ours in self.ports.items():
            text = text.replace(f":{port}", f":{ours}")
        return text

    def run(self, text, folder=ROOT):
        http, grpc, metrics = self.ports.values()
        environment = self.world.environment({
            "PATH": f"{self.root}/usr/local/bin:{bin_dir()}:{os.environ['PATH']}",
            "GPU_SCHEDULER_URL": f"http://127.0.0.1:{http}", "GPU_SCHEDULER_API_HTTP_PORT": str(http),
            "GPU_SCHEDULER_API_GRPC_PORT": str(grpc), "GPU_SCHEDULER_METRICS_PORT": str(metrics),
            "GPU_SCHEDULER_SCHEDULER_NODE_LEASE_MS": "1500"})
        with open(self.world.folder / "guide.out", "w+b") as sink:
            process = subprocess.Popen(["bash", "-eu", "-o", "pipefail", "-c", self.translated(text)], cwd=folder,
                                       stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment)
            deadline = time.monotonic() + 2 * PATIENCE_S
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                for daemon in self.world.daemons:
                    daemon.alive()  # What the page ended is our child: gone once it is waited for.
            status = process.poll()
            if status is None:
                process.kill()
                process.wait()
                status = "a hang"
            sink.seek(0)
            return status, sink.read().decode("utf-8", "replace")


def blocks_of(page):
    text = (GUIDE / f"{page}.md").read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_page(site, page):
    """Runs the page's blocks in order; all that they printed."""
    printed = []
    for number, block in enumerate(blocks_of(page), 1):
        status, out = site.run(block)
        assert status == 0, f"block {number} of {page}.md ended with {status}:\n{block}\n---\n{out}"
        printed.append(out)
    return printed


@pytest.fixture(name="site")
def site_fixture(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1500)
    world.strict = False  # The pages start programs of their own.
    site = Site(world)
    yield site
    harness.kill_processes_of(world.folder)


def test_every_page_is_run():
    # tests/kube/test_operator_page.py, test_high_availability.py
    elsewhere = ["kubernetes", "high-availability"]
    assert sorted(path.stem for path in GUIDE.glob("*.md") if "```sh\n" in path.read_text()) == sorted([*PAGES, *elsewhere])


def test_install(site):
    printed = run_page(site, "install")
    assert "gpu-scheduler 0" in printed[0] or "gpu-scheduler 1" in printed[0]
    assert "got GPU-sim-n1-" in "".join(printed)
    assert " 0 fail" in printed[2]
    # Both were started again by the page, and know the job.
    api = harness.Api(site.ports["8080"], token=site.world.scheduler.token())
    assert [job["state"] for job in api.jobs()] == ["completed"]


def test_configure(site):
    site.start()
    printed = run_page(site, "configure")
    assert "50000" in printed[0]
    assert "did you mean GPU_SCHEDULER_SCHEDULER_MAX_QUEUE_SIZE?" in printed[2]
    assert "config_reloaded" in printed[3]
    assert " 0 fail" in printed[4]
    assert "-rw-------" in printed[5]
    assert "quota_exceeded" in printed[6]
    assert "nothing was changed" in printed[7] and "no changes are needed" in printed[7]


def test_audit(site):
    site.start()
    printed = run_page(site, "audit")
    assert '"action":"submit_job","resource_kind":"job","resource":"job-' in printed[0]
    assert "submit_job applied" in printed[1]
    assert "submit_job job-" in printed[3] and ": applied" in printed[3]
    assert "does not know the address" in printed[3]


def test_history(site):
    site.start()
    api = site.world.api()
    assert api.wait_for(api.submit("exit 3", gpu_count=1))["exit_code"] == 3
    harness.wait_until("the history has it", lambda: api.call("GET", "/v1/history/jobs")[1].get("jobs"))
    printed = run_page(site, "history")
    assert "month,tenant," in printed[0].replace('"', "") and "MODEL" in printed[0], printed[0]
    assert "|failed|" in printed[1], printed[1]


def test_keys(site):
    # Jobs of a key are never root's.
    site.start(*(["--default-user", "nobody"] if harness.IS_ROOT else []), allow_root_jobs=False)
    printed = run_page(site, "keys")
    assert "600\n" in printed[0] and " ci " in printed[0] and "active" in printed[0]
    assert "job-" in printed[1] and "from-ci" in printed[1] and "drain with this key: 403" in printed[1]
    assert "has user,viewer" in printed[2] and "has user\n" in printed[2] and "was revoked" in printed[2]


def test_jwt(site):
    printed = run_page(site, "jwt")
    assert '"kid":"2026"' in printed[0]
    assert "tokens of https://login.example.com are taken: 1 keys, 3 rules" in printed[2]
    assert '"client_id":"gpu-cli","scopes":["openid","offline_access"],"token":"access"' in printed[3]
    assert "job-" in printed[4] and "from-ana" in printed[4] and "user in ml" in printed[4] and "may not" in printed[4]
    assert "config_reloaded" in printed[5] and "was revoked" in printed[5]


def test_nodes(site):
    site.start()
    printed = run_page(site, "nodes")
    assert "the scheduler has the same token" in printed[0]
    assert " 0 fail" in printed[1]
    assert "new power supply" in printed[2]
    assert "no registered node has 8 GPUs" in printed[4]
    assert "explain.json" in printed[6] and "stdout.tail" in printed[6]
    assert "Xid 79" in printed[7]
    assert "GiB" in printed[8] and "GiB" in printed[9]


def test_autoscaling(site):
    printed = run_page(site, "autoscaling")
    assert "burst" in printed[0] and "No machines." in printed[0]
    assert "a machine of pool burst is being started" in printed[1] and "pool=burst" in printed[1].replace(": ", "=")
    assert re.search(r"^burst +local +0 +0-2 +4\.50", printed[2], re.MULTILINE), printed[2]
    events = re.findall(r"machine_[a-z]+", printed[2].partition('"event"')[2])
    assert events == ["machine_requested", "machine_ready", "machine_draining", "machine_ending", "machine_gone"]


def test_tls(site):
    printed = run_page(site, "tls")
    assert "server.pem: OK" in printed[1] and '"scheduler_started"' in printed[2]
    assert '"status"' in printed[3] and "tenants" in printed[3]
    assert "the scheduler has the same token" in printed[4] and "over TLS" in printed[4] and "ready" in printed[4]
    assert "config_reloaded" in printed[5] and "https://" in printed[5]
    assert site.world.scheduler.log.read_text().count("certificate_loaded") == 2


def test_back_up_and_recover(site):
    site.start()
    api = site.world.api()
    kept = api.submit("exit 3")
    assert api.wait_for(kept)["exit_code"] == 3
    gate = site.world.folder / "gate"
    running = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 5", gpu_count=1)
    api.wait_for(running, "running")
    printed = run_page(site, "back-up")
    assert "whole" in printed[0] and "with the history" in printed[0]
    assert '"history":true' in printed[1]
    assert "whole" in printed[2]
    assert api.job(running)["state"] == "running"

    # What comes after the backup is lost with the disk.
    late = [api.submit(["sleep", "600"]) for _ in range(3)]
    api.wait_for(late[0], "running")
    for segment in sorted((site.world.scheduler.data_dir / "journal").glob("*.seg"))[:1]:
        with open(segment, "r+b") as file:
            file.seek(4096 + 200)
            file.write(b"rot")
    printed = run_page(site, "recover")
    assert "damaged" in printed[0]
    assert api.job(kept)["exit_code"] == 3
    known = {job["id"] for job in api.jobs()}
    assert {kept, running} <= known and not known & set(late)
    harness.wait_until("what the backup does not know has ended", lambda: not [
        pid for pid in harness.processes_of(site.world.folder)
        if harness.read_bytes(f"/proc/{pid}/cmdline").startswith(b"sleep\x00600")])
    # What ran at the time of the backup runs again, and new work takes numbers that agents have never heard of.
    gate.touch()
    job = api.wait_for(running)
    assert job["exit_code"] == 5
    again = api.submit("echo mine; exit 6")
    assert api.wait_for(again)["exit_code"] == 6
    assert api.output(again) == "mine\n"


def test_when_hardware_fails(site):
    site.start()
    printed = run_page(site, "when-hardware-fails")
    assert "GPU is lost" in printed[0]
    assert "gpu_missing" in printed[1]
    assert "77 GB" in printed[3]
    assert "start with --node n1;" in printed[5] and "node n1" in printed[5]


def test_troubleshoot(site):
    site.start()
    printed = run_page(site, "troubleshoot")
    assert "1 of 1 online" in printed[0] and "cancellation was requested by" in printed[0]
    assert "no job is started until" in printed[1] and "jobs start again" in printed[1]
    assert "no registered node has 8 GPUs" in printed[2]
    assert "the disk is on fire" in printed[3]
    assert "ready" in printed[4] and "registered" in printed[4]


def test_alerts(site):
    site.start()
    printed = run_page(site, "alerts")
    assert "Nothing is wrong." in printed[0]


def test_security(site):
    site.start()
    printed = run_page(site, "security")
    assert "drain without a credential: 403" in printed[0] and "list with another token: 401" in printed[0]
    assert [line.split()[0] for line in printed[1].splitlines()[:3]] == ["700", "600", "600"]
    assert "true" in printed[2] and "/etc/gpu-scheduler.yaml" in printed[2]


def test_every_reason_that_the_guide_names_exists():
    text = (GUIDE / "troubleshoot.md").read_text()
    named = set(re.findall(r"^\| `([a-z_]+)`", text.partition("## A node does not")[0], re.MULTILINE))
    files = ("engine/planner/wait_reason.cc", "model/types.cc", "api/views/state_views.cc")
    source = "".join((ROOT / "src" / file).read_text() for file in files)
    missing = {name for name in named if f'"{name}"' not in source}
    assert not missing
