"""The Unix socket for agents of the scheduler's machine: they need no token, and no other user's process is one of them."""

import json
import shutil
import subprocess

import pytest
from harness import IS_ROOT, PATIENCE_S, Agent, program, wait_until
from security import NEEDS_ROOT, as_user, public_programs, throw_away_users
from test_reload import events
from test_unix_socket import MACHINE, has_namespaces

PYTHON = "/usr/bin/python3"  # One that every user may run.


class LocalAgent(Agent):
    """One that is told its scheduler's socket, or nothing, and no token."""

    def command(self):
        words = super().command()
        at = words.index("--scheduler")
        return words[:at] + ([] if self.scheduler is None else ["--scheduler", self.scheduler]) + words[at + 2:]


def add_agent(world, node, scheduler, **options):
    agent = LocalAgent(world, node, scheduler=scheduler, **options)
    world.daemons.append(agent)
    return agent


@pytest.fixture(name="users")
def users_fixture(monkeypatch):
    with public_programs(monkeypatch), throw_away_users() as users:
        yield users


@pytest.fixture(name="world")
def world_fixture(new_world):
    """A scheduler with such a socket; its address for agents is the world's `address`."""
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.socket = world.folder / "agent.sock"
    world.address = f"unix:{world.socket}"
    world.scheduler.settings["AGENT_UNIX_SOCKET"] = world.socket
    world.scheduler.start()
    return world


def agent_doctor(agent):
    done = subprocess.run([program("gpu-agent"), "doctor", "--json", *agent.command()[1:]], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)
    return {finding["check"]: finding for finding in json.loads(done.stdout)["checks"]}


def scheduler_doctor(world):
    done = subprocess.run([program("gpu-scheduler"), "doctor", "--json", "--data-dir", str(world.scheduler.data_dir)],
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return {finding["check"]: finding for finding in json.loads(done.stdout)["checks"]}


def test_an_agent_of_this_machine_needs_no_token(world):
    assert world.socket.stat().st_mode & 0o777 == 0o600
    assert json.loads((world.scheduler.data_dir / "ports.json").read_text())["agent_socket"] == str(world.socket)
    agent = add_agent(world, "n1", world.address)
    agent.start()
    api = world.api()
    short = api.submit("echo it ran")
    assert api.wait_for(short, "completed")["exit_code"] == 0
    job = api.submit("sleep 1000")
    api.wait_for(job, "running")
    # It comes back by the same way, whoever of the two was restarted, and nothing ends.
    world.scheduler.restart()
    wait_until("the agent is back", lambda: len(events(agent, "registered")) == 2)
    agent.restart()
    assert (api.job(job)["state"], api.job(job)["attempts"]) == ("running", 1)
    assert not events(agent, "token_not_found")

    found = agent_doctor(agent)
    assert found["scheduler"]["verdict"] == "ok" and str(world.socket) in found["scheduler"]["detail"]
    assert "without a token" in found["proof"]["detail"], found
    assert str(world.socket) in scheduler_doctor(world)["agent_socket"]["detail"]
    api.cancel(job)
    api.wait_for(job, "cancelled")
    assert world.scheduler.stop() == 0
    assert not world.socket.exists()
    found = agent_doctor(agent)
    assert found["scheduler"]["verdict"] == "fail" and str(world.socket) in found["scheduler"]["detail"]
    world.scheduler.start()


@NEEDS_ROOT
def test_another_user_is_no_agent_by_the_socket(world, users):
    ana = users.add()
    folder = world.folder / "of-ana"
    folder.mkdir()
    shutil.chown(folder, ana)
    options = {"data_dir": folder / "agent", "prefix": as_user(ana), "allow_root_jobs": False}
    agent = add_agent(world, "n1", world.address, **options)
    agent.launch()
    wait_until("the agent says so", lambda: "Permission denied" in agent.log_text())
    # Not by the mode of the file alone: who comes is looked at.
    world.socket.chmod(0o666)
    refused = [{"peer": f"unix:{users.uid(ana)}", "code": "permission_denied"}]
    wait_until("the scheduler refused it", lambda: [one["details"] for one in events(world.scheduler, "agent_refused")][:1] == refused)
    probe = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.exit(len(s.recv(1)))"
    done = subprocess.run(as_user(ana) + [PYTHON, "-c", probe, str(world.socket)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, cwd="/")
    assert done.returncode == 0 or "reset" in done.stderr, done.stderr
    status, body, _ = world.api().call("GET", "/v1/nodes")
    assert status == 200 and not body.get("nodes"), body
    assert not events(agent, "registered")
    agent.kill()
    # Root is one, beside.
    add_agent(world, "n2", world.address).start()


@NEEDS_ROOT
def test_an_agent_believes_no_strangers_socket(world, users):
    """Whoever listens there could run anything as root."""
    ana = users.add()
    folder = world.folder / "of-ana"
    folder.mkdir()
    shutil.chown(folder, ana)
    path = folder / "made-by-ana" / "agent.sock"
    listen = "import os, socket, sys, time; os.mkdir(os.path.dirname(sys.argv[1])); " \
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(1000)"
    stranger = subprocess.Popen(as_user(ana) + [PYTHON, "-c", listen, str(path)], cwd="/")
    try:
        wait_until("the stranger listens", path.exists)
        agent = add_agent(world, "n1", f"unix:{path}")
        agent.launch()
        wait_until("the agent says so", lambda: f"the Unix socket {path}, at which user" in agent.log_text())
        assert not events(agent, "registered")
        agent.kill()
    finally:
        stranger.kill()
        stranger.wait()


def test_calls_over_the_socket_are_anybodys_without_a_credential(world):
    """It makes agents, and no administrators: the API knows callers by their credentials."""
    grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
    with grpc.insecure_channel(world.address) as channel:
        drain = channel.unary_unary("/gpusched.v1.Scheduler/DrainNode")
        with pytest.raises(grpc.RpcError) as refused:
            drain(b"\x0a\x02n1", timeout=PATIENCE_S)
        assert refused.value.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)


def test_it_can_be_switched_off_and_wrong_addresses_are_told(new_world):
    world = new_world()
    world.strict = False
    world.scheduler.settings["AGENT_UNIX_SOCKET"] = ""
    world.scheduler.start()
    assert "agent_socket" not in json.loads((world.scheduler.data_dir / "ports.json").read_text())
    assert "no Unix socket for agents" in scheduler_doctor(world)["agent_socket"]["detail"]
    for address, words in (("unix:agent.sock", "names no path"), ("unix:/run/x.sock", "TLS is not spoken")):
        agent = add_agent(world, "n1", address, arguments=["--tls"] if "TLS" in words else [])
        agent.launch()
        wait_until("the agent has ended", lambda one=agent: not one.alive())
        assert words in agent.log_text()
    world.scheduler.stop()
    world.scheduler.settings["AGENT_UNIX_SOCKET"] = "agent.sock"
    world.scheduler.launch()
    assert world.scheduler.ended() in (1, 2)
    assert "agent.unix_socket is \"agent.sock\"; expected auto" in world.scheduler.log_since_start()


@pytest.mark.skipif(not IS_ROOT or shutil.which("nsenter") is None or shutil.which("ip") is None or not has_namespaces(),
                    reason="needs namespaces of root's")
def test_on_one_machine_neither_side_is_told_anything(new_world):
    world = new_world()
    world.strict = False  # Its ports are another machine's.
    scheduler = world.scheduler
    scheduler.prefix = MACHINE
    scheduler.ports = {"http": 8080, "grpc": 9090, "metrics": 9091}
    scheduler.start()
    there = ["nsenter", "--target", str(scheduler.pid()), "--mount", "--net"]
    agent = add_agent(world, "n1", None, prefix=there)
    agent.start()
    env = world.environment({"HOME": "/"})
    done = subprocess.run([*there, program("gpu-cli"), "submit", "--wait", "--logs", "--", "echo", "it ran"], env=env,
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and "it ran" in done.stdout, done.stdout + done.stderr
    agent.kill()
    assert scheduler.stop() == 0
