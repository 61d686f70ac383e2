"""docs/operate/high-availability.md makes three schedulers of one: its blocks run as they stand there, each on its
machine, but for folders, addresses and ports."""

import os
import re
import shutil
import subprocess

import harness
import pytest
from harness import PATIENCE_S, ROOT, bin_dir, wait_until
from ports import free_port

PAGE = ROOT / "docs" / "operate" / "high-availability.md"
PLACES = re.compile(r"/(?=(?:var/lib/gpu-|var/backups/gpu-|etc/gpu-))")


class Machine(harness.Scheduler):
    """One machine of the page: its folders below the world's, its address one of loopback."""

    def __init__(self, world, number, ports):
        self.number, self.root = number, world.folder / f"machine-{number}"
        for folder in ("var/lib", "var/backups", "etc/gpu-scheduler"):
            (self.root / folder).mkdir(parents=True)
        self.peer_port = ports["peers"]
        super().__init__(world, {}, self.root / "var/lib/gpu-scheduler", f"scheduler-{number}",
                         address=f"127.0.0.1{number}", ports={kind: ports[kind] for kind in ("http", "grpc", "metrics")})

    def command(self):
        words = super().command()
        config = self.root / "etc/gpu-scheduler/scheduler.yaml"
        return words + (["--config", str(config)] if config.is_file() else [])

    def run(self, text):
        """A block of the page as its shell on this machine runs it: (exit status, output)."""
        text = PLACES.sub(f"{self.root}/", text).replace(":7080", f":{self.peer_port}")
        text = re.sub(r"\b10\.0\.0\.1([123])\b", r"127.0.0.1\1", text)
        environment = self.world.environment({
            "PATH": f"{bin_dir()}:{os.environ['PATH']}", "GPU_SCHEDULER_API_HTTP_PORT": str(self.ports["http"]),
            "GPU_SCHEDULER_API_GRPC_PORT": str(self.ports["grpc"]), "GPU_SCHEDULER_METRICS_PORT": str(self.ports["metrics"])})
        done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", text], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=2 * PATIENCE_S,
                              check=False)
        return done.returncode, done.stdout


def blocks_of_page():
    """(number of the machine, text) of each block."""
    found = re.findall(r"^```sh\n# on scheduler-(\d)[^\n]*\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [(int(machine), text) for machine, text in found]


@pytest.mark.skipif(not harness.has_consensus(), reason="gpu-scheduler was built without the consensus of replicas")
def test_the_page_makes_three_schedulers_of_one(new_world):
    world = new_world()
    world.strict = False
    ports = {kind: free_port() for kind in ("http", "grpc", "metrics", "peers")}
    one, two, three = machines = [Machine(world, number, ports) for number in (1, 2, 3)]
    one.start()
    before = one.api().submit("true", gpu_count=1)
    assert one.stop() == 0
    blocks = blocks_of_page()
    assert [machine for machine, _ in blocks] == [1, 1, 2, 3, 1, 1, 2]
    look = blocks[4][1]
    for number, text in blocks[:4]:
        for other in (2, 3):  # What scp does.
            file = one.root / f"var/backups/gpu-scheduler-{other}.tar"
            if number == other:
                shutil.move(file, machines[other - 1].root / "var/backups")
        status, out = machines[number - 1].run(text)
        assert status == 0, f"{text}\n---\n{out}"
    for machine in machines:
        machine.launch()

    told = []

    def listed():
        told[:] = two.run(look)
        return told[0] == 0

    try:
        wait_until("all three serve", listed)
    except AssertionError:
        logs = "\n".join(f"{m.name}: {m.process.poll()}\n{m.log_since_start()[-2000:]}" for m in machines)
        raise AssertionError(told[1] + logs) from None
    out = told[1]
    assert sorted(line.split()[2] for line in out.splitlines()[1:]) == ["follower", "follower", "leader"], out
    token = one.token()
    assert token == two.token() == three.token()
    for machine in machines:
        assert harness.Api(ports["http"], machine.address, token).job(before)["state"] == "pending"
    leading = next(line.split()[1] for line in out.splitlines() if " leader " in line)
    leader = next(machine for machine in machines if machine.address == leading)
    others = [machine for machine in machines if machine is not leader]
    leader.kill()
    after = wait_until("another one leads", lambda: submitted(others[0], ports, token))
    for machine in others:
        assert harness.Api(ports["http"], machine.address, token).job(after)["state"] == "pending"
        assert harness.Api(ports["http"], machine.address, token).job(before)["state"] == "pending"
    status, out = others[0].run(look)
    assert status == 1 and "refused" in out, out  # One is away.
    # One disk is lost: the folder of the one that leads becomes the first of a new cluster.
    first = next(machine for machine in others if f"{machine.address} leader" in re.sub(r" +", " ", out))
    rest = [machine for machine in machines if machine is not first]
    for machine in sorted(others, key=lambda machine: machine is first):
        assert machine.stop() == 0
    status, out = first.run("gpu-scheduler members export /var/backups/gpu-scheduler-9.tar --id "
                            f"{rest[0].number} --data-dir /var/lib/gpu-scheduler")
    assert status == 1 and "has run since" in out, out
    numbers = {1: first.number, 2: rest[0].number, 3: rest[1].number}
    as_here = [re.sub(r"(?<=-)([123])(?=\.tar)|(?<=--id )([123])\b",
                      lambda found: str(numbers[int(found[0])]), text) for _, text in blocks[5:]]
    status, out = first.run(as_here[0])
    assert status == 0, out
    for machine in rest:
        shutil.move(first.root / f"var/backups/gpu-scheduler-{machine.number}.tar", machine.root / "var/backups")
        status, out = machine.run(as_here[1].replace(f"-{rest[0].number}.tar", f"-{machine.number}.tar"))
        assert status == 0, out
    for machine in machines:
        machine.launch()
    wait_until("all three serve again", lambda: one.run(look)[0] == 0)
    for machine in machines:
        for job in (before, after):
            assert harness.Api(ports["http"], machine.address, token).job(job)["state"] == "pending"


def submitted(machine, ports, token):
    try:
        status, body, _ = harness.Api(ports["http"], machine.address, token).call(
            "POST", "/api/v1/jobs", {"script": "true", "gpu_count": 1}, {"Idempotency-Key": "after"})
    except (OSError, harness.http.client.HTTPException):
        return None
    return body["job_id"] if status == 201 else None
