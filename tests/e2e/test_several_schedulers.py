"""A scheduler at changing addresses: agents and clients that know several follow it, and no job ends by that."""

import contextlib
import socket
import subprocess
import threading

import pytest
from harness import A100X4, is_alive, program, wait_until
from ports import free_port
from test_restart import gated, open_gate


class ClosingPort:
    """Accepts connections and closes each at once, as one of several schedulers does that knows no leader."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.closed = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                self.listener.accept()[0].close()
                self.closed += 1

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


class Site:
    """A scheduler that is at its first ports and may go on at its second ones, with an agent that knows both."""

    def __init__(self, world):
        self.world = world
        self.closing = ClosingPort()
        self.first = {kind: free_port() for kind in ("http", "grpc", "metrics")}
        self.second = {kind: free_port() for kind in ("http", "grpc", "metrics")}
        world.scheduler.ports = dict(self.first)
        world.scheduler.start()
        self.agent = world.add_agent("n1", scheduler=self.addresses("grpc", "127.0.0.1:{}"))

    def addresses(self, kind, form):
        """Those of a dead machine, of one that closes, and of both of the scheduler's."""
        return ",".join(form.format(port) for port in (1, self.closing.port, self.first[kind], self.second[kind]))

    def urls(self):
        return self.addresses("http", "http://127.0.0.1:{}")

    def cli_start(self, *words):
        return subprocess.Popen([program("gpu-cli"), "--api-url", self.urls(), *words], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.world.environment())

    def cli(self, *words):
        return subprocess.run([program("gpu-cli"), "--api-url", self.urls(), *words], capture_output=True, text=True,
                              timeout=60, check=False, env=self.world.environment())

    def move(self):
        """Killed where it is; its folder is served from the other ports."""
        before = self.world.scheduler
        before.kill()
        self.world.scheduler = self.world.add_scheduler(data_dir=before.data_dir, name="moved", ports=dict(self.second))
        self.world.scheduler.start()


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = Site(new_world())
    yield site
    site.closing.close()


def test_jobs_waits_and_followed_logs_go_on_where_the_scheduler_goes(site):
    site.agent.start()
    assert site.closing.closed >= 1
    job = site.world.api().submit("echo before; " + gated(site.world, "gate", "echo after; exit 6"), gpu_count=1)
    wait_until("it runs", lambda: site.world.api().job(job)["state"] == "running")
    pid = int(wait_until("it has written", lambda: site.world.api().output(job).split()[1:2])[0])
    waiter, follower = site.cli_start("wait", job), site.cli_start("logs", "-f", job)
    with waiter, follower:
        assert follower.stdout.readline() == b"before\n"
        site.move()
        wait_until("the agent is back", lambda: site.world.api().node("n1")["state"] == "ready")
        assert is_alive(pid)
        assert (site.world.api().job(job)["state"], site.world.api().job(job)["attempts"]) == ("running", 1)
        assert site.cli("get", "--json", job).returncode == 0
        open_gate(site.world, "gate")
        assert follower.stdout.read().split()[-1] == b"after"
        assert (waiter.wait(60), follower.wait(60)) == (6, 0), waiter.stderr.read()
    assert site.world.api().job(job)["attempts"] == 1


def test_a_submission_without_a_scheduler_is_made_once_where_it_comes_up(site):
    site.agent.start()
    site.world.scheduler.kill()
    submission = site.cli_start("submit", "--wait", "--", "sh", "-c", "exit 9")
    with submission:
        assert b"does not answer; repeating the submission" in submission.stderr.readline()
        site.move()
        assert submission.wait(60) == 9, submission.stderr.read()
    assert len(site.world.api().jobs()) == 1


def test_an_agent_takes_the_addresses_from_its_file_and_its_environment(site):
    config = site.world.folder / "agent.yaml"
    first, second = (f"127.0.0.1:{ports['grpc']}" for ports in (site.first, site.second))
    config.write_text(f"scheduler: ['{second}', '127.0.0.1:1', '{first}']\nnode: n1\n"
                      f"data_dir: {site.world.folder / 'n1'}\nsim_gpus: {A100X4}\n")
    words = [program("gpu-agent"), "--config", str(config)]
    site.agent.command = lambda: words
    site.agent.start()
    site.agent.kill()
    config.write_text(config.read_text().replace(first, "127.0.0.1:2"))
    site.agent.environment = {"GPU_AGENT_SCHEDULER": f"{second},{first}"}
    site.agent.start()
    doctor = subprocess.run([program("gpu-agent"), "doctor", "--scheduler", f"{first},127.0.0.1:1", "--node", "n1",
                             "--data-dir", str(site.world.folder / "n1")], capture_output=True, text=True, check=False,
                            env=site.world.environment(), timeout=60)
    lines = [line for line in doctor.stdout.splitlines() if "scheduler" in line.split()]
    assert any(line.startswith("ok") and first in line for line in lines), doctor.stdout
    assert any(line.startswith("warn") and "127.0.0.1:1" in line for line in lines), doctor.stdout
