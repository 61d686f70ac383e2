"""Every `sh` block of docs/operate/three-machines.md, section after section, on machines that tests/e2e/machines.py
makes of folders: the programs and units are the installed ones, and only what an operating system brings is not."""

import json
import os
import re
import shutil
import stat
import subprocess

import harness
import pytest
from harness import A100X4, MARK, PATIENCE_S, ROOT, bin_dir, is_alive, wait_until
from ports import free_port
from machines import DYNAMIC_ID, Machine, Unit
from test_operator_guide import GUIDE, PLACES

# Not 127.0.0.1, where a client or an agent that forgot the address would look.
ADDRESS = "127.0.0.5"
SECTIONS = ("Build, and install on `head`", "The scheduler", "The first node", "The first job", "The second node",
            "An upgrade, while a job runs", "A node leaves")


def sections():
    """{title: its `sh` blocks}"""
    parts = re.split(r"^## (.*)\n", (GUIDE / "three-machines.md").read_text(), flags=re.MULTILINE)
    found = {title: re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
             for title, text in zip(parts[1::2], parts[2::2])}
    assert "```sh\n" not in parts[0]
    return {title: blocks for title, blocks in found.items() if blocks}


class Rack:
    """The page's machines, before anything is on them."""

    def __init__(self, world):
        self.world = world
        self.folder = world.folder / "site"
        self.folder.mkdir()
        self.ports = {"8080": free_port(), "9090": free_port(), "9091": free_port()}
        http, grpc, metrics = self.ports.values()
        settings = {"GPU_SCHEDULER_API_HTTP_PORT": http, "GPU_SCHEDULER_API_GRPC_PORT": grpc,
                    "GPU_SCHEDULER_METRICS_PORT": metrics}
        # What is built are the programs under test.
        make = f'#!/bin/sh\nexec {shutil.which("make")} -s -o build "$@"\n'
        (self.folder / "machines.json").write_text(json.dumps({
            "environment": {MARK: str(world.folder)}, "path": os.environ["PATH"], "gpus": A100X4, "join": [],
            "programs": {"head": {"make": make}},
            "more": {"head": {"BIN_DIR": str(bin_dir()), **{name: str(port) for name, port in settings.items()}}}}))
        self.head, self.gpu1, self.gpu2 = (Machine(self.folder, name) for name in ("head", "gpu1", "gpu2"))
        for machine in (self.head, self.gpu1, self.gpu2):
            machine.lay_out()
        # All of 127.0.0.0/8 is loopback; elsewhere the token is required without this word.
        settings |= {"GPU_SCHEDULER_API_TOKEN_REQUIRED": "true", "GPU_SCHEDULER_SCHEDULER_NODE_LEASE_MS": 1500}
        (self.head.root / "etc/default/gpu-scheduler").write_text(
            "".join(f"{name}={value}\n" for name, value in settings.items()))

    def translated(self, text):
        text = PLACES.sub(f"{self.head.root}/", text).replace("10.0.0.5", ADDRESS)
        text = text.replace("gpu-jobs", "nobody")  # A user that every machine has.
        for port, ours in self.ports.items():
            text = text.replace(f":{port}", f":{ours}")
        return text

    def run(self, text):
        """(exit status, what it printed) of a block, typed on the scheduler's machine."""
        process = subprocess.Popen(["bash", "-eu", "-o", "pipefail", "-c", self.translated(text)], cwd=ROOT,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   env=self.head.environment(), start_new_session=True)
        try:
            out, _ = process.communicate(timeout=2 * PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return "a hang", process.communicate()[0].decode("utf-8", "replace")
        return process.returncode, out.decode("utf-8", "replace")

    def run_section(self, title):
        """What each of its blocks printed."""
        printed = []
        for number, block in enumerate(sections()[title], 1):
            status, out = self.run(block)
            assert status == 0, f"block {number} of '{title}' ended with {status}:\n{block}\n---\n{out}{self.logs()}"
            printed.append(out)
        return printed

    def logs(self):
        found = sorted(self.folder.glob("*/var/log/gpu-*.log"))
        return "".join(f"\n--- the end of {log}\n" + "\n".join(log.read_text().splitlines()[-20:]) for log in found)

    def token(self):
        return (self.head.root / "var/lib/gpu-scheduler/token").read_text().strip()

    def api(self, token=None):
        return harness.Api(self.ports["8080"], ADDRESS, token)


def unit_facts(machine, name):
    return Unit(machine, name).facts()


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def runs_installed_program(machine, unit, program):
    """Whether the unit's process is of the file that is installed now, not of one that was there before."""
    pid = unit_facts(machine, unit)["main_pid"]
    return os.stat(f"/proc/{pid}/exe").st_ino == (machine.root / "usr/local/bin" / program).stat().st_ino


@pytest.fixture(name="rack")
def rack_fixture(new_world):
    world = new_world()
    world.strict = False  # The page starts programs of its own.
    yield Rack(world)
    harness.kill_processes_of(world.folder)


def test_every_block_is_in_a_section_that_is_run():
    assert tuple(sections()) == SECTIONS


def check_scheduler(rack, printed):
    facts = unit_facts(rack.head, "gpu-scheduler")
    assert facts["state"] == "active" and facts["starts"] == 1
    if harness.IS_ROOT:  # The unit's own user, without a privilege.
        assert os.stat(f"/proc/{facts['main_pid']}").st_uid == DYNAMIC_ID
    assert "Active: active" in printed[0] and " 0 fail" in printed[0]
    assert mode_of(rack.head.root / "var/lib/gpu-scheduler/token") == 0o600
    for token in (None, "0123456789abcdef0123456789abcdef"):
        assert rack.api(token).call("GET", "/api/v1/jobs")[0] == 401


def check_first_node(rack, printed):
    for name in ("agent.yaml", "agent.token"):
        assert mode_of(rack.gpu1.root / "etc/gpu-scheduler" / name) == 0o600
    token = rack.token()
    assert (rack.gpu1.root / "etc/gpu-scheduler/agent.token").read_text().strip() == token
    assert "the scheduler has the same token" in printed[1] and " 0 fail" in printed[1]
    assert token not in "".join(printed) + rack.logs()
    assert "gpu1-gpu-0" in printed[2] or "GPU-sim-gpu1-0" in printed[2]
    assert rack.api(token).node("gpu1")["state"] == "ready"
    assert unit_facts(rack.gpu1, "gpu-agent")["starts"] == 1


def shim_of(machine, job_id):
    instance = (machine.root / "var/lib/gpu-agent/instance").read_text().strip()
    mark = harness.mark_of(instance)
    for pid in harness.processes():
        words = harness.read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
        if words[0] == b"gpu-shim" and words[1].decode().startswith(f"{job_id.removeprefix('job-')}-") \
                and words[1].decode().endswith(f"@{mark}") and is_alive(pid):
            return pid
    return None


def check_upgrade(rack):
    """The section, with a look at the processes before and after the upgrade itself."""
    begin, upgrade, end = sections()["An upgrade, while a job runs"]
    status, out = rack.run(begin)
    assert status == 0, out
    job_id = out.split()[0]
    api = rack.api(rack.token())
    job = api.job(job_id)
    node = rack.gpu1 if job["node_name"] == "gpu1" else rack.gpu2
    units = [(rack.head, "gpu-scheduler"), (rack.gpu1, "gpu-agent"), (rack.gpu2, "gpu-agent")]
    before = [unit_facts(*unit)["main_pid"] for unit in units]
    shim = shim_of(node, job_id)
    assert shim is not None and all(runs_installed_program(*unit, unit[1]) for unit in units)

    status, out = rack.run(upgrade)
    assert status == 0, out + rack.logs()
    for unit, pid in zip(units, before):
        assert not is_alive(pid) and runs_installed_program(*unit, unit[1])
        assert unit_facts(*unit)["starts"] == 1, "it started at the first attempt"
    assert shim_of(node, job_id) == shim, "the same process as before"

    status, out = rack.run(end)
    assert status == 0, out + rack.logs()
    assert "trained to the end" in out
    ended = api.job(job_id)
    assert (ended["state"], ended["attempts"], ended["exit_code"]) == ("completed", 1, 0)
    # What a site had configured is as it was.
    assert "address" in (rack.head.root / "etc/gpu-scheduler/scheduler.yaml").read_text()


def left_on(machine):
    """Processes and files that a node has, besides what it had before."""
    mark = f"MACHINE={machine.name}\0".encode()
    processes = [harness.describe_process(pid) for pid in harness.processes_of(machine.site.parent)
                 if mark in harness.read_bytes(f"/proc/{pid}/environ")]
    known = {"run/systemd/gpu-agent.json", "run/gpu-agent.notify", "var/log/gpu-agent.log"}
    files = {str(path.relative_to(machine.root)) for path in machine.root.rglob("*") if not path.is_dir()}
    return processes + sorted(files - known)


def test_the_walk_through(rack):
    printed = rack.run_section("Build, and install on `head`")
    assert re.search(r"^gpu-scheduler \d", printed[0], re.MULTILINE)
    check_scheduler(rack, rack.run_section("The scheduler"))
    check_first_node(rack, rack.run_section("The first node"))
    printed = rack.run_section("The first job")
    assert "got GPU-sim-gpu1-" in printed[0] and "Nothing is wrong." in printed[0]
    printed = rack.run_section("The second node")
    assert "member 0 of 2" in printed[1] and "member 1 of 2" in printed[1]
    check_upgrade(rack)
    rack.run_section("A node leaves")
    assert [node["name"] for node in rack.api(rack.token()).get("/nodes")["nodes"]] == ["gpu1"]
    wait_until("nothing is left on gpu2", lambda: not left_on(rack.gpu2))
