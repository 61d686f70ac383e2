"""Scheduler and agent on different machines, as far as one machine can tell: two network namespaces, one cable."""

import subprocess
import time

import pytest
from cable import NEEDS_NAMESPACES, ApiInside, Cable, can_lay_cables
from harness import is_alive, program, wait_until

LEASE_MS = 1000

pytestmark = pytest.mark.skipif(not can_lay_cables(), reason=NEEDS_NAMESPACES)


@pytest.fixture(name="cable")
def cable_fixture(session_folder):
    cable = Cable(session_folder.name.rpartition("-")[2])
    try:
        cable.lay()
        yield cable
    finally:
        cable.take_away()


@pytest.fixture(name="world")
def world_fixture(cable, new_world):
    """The scheduler at one end, on an address that others reach. Its api() speaks from there, with the token."""
    world = new_world(SCHEDULER_NODE_LEASE_MS=LEASE_MS)
    scheduler = world.scheduler
    scheduler.prefix = cable.inside(0)
    scheduler.address = cable.addresses[0]
    scheduler.start()
    world.token = (scheduler.data_dir / "token").read_text().strip()
    scheduler.api = lambda token=world.token: ApiInside(cable.names[0], scheduler.ports["http"], scheduler.address, token)
    return world


def add_far_agent(world, cable, arguments, name="n1"):
    at = f"{cable.addresses[0]}:{world.scheduler.ports['grpc']}"
    return world.add_agent("n1", name=name, scheduler=at, prefix=cable.inside(1), arguments=arguments)


def with_token(world):
    return ["--token-file", str(world.scheduler.data_dir / "token")]


def test_without_the_token_nobody_gets_in_from_afar(world, cable):
    assert (world.scheduler.data_dir / "token").stat().st_mode & 0o777 == 0o600
    for token in (None, "0" * 64):
        api = world.scheduler.api(token)
        status, body, _ = api.call("POST", "/api/v1/jobs", {"command": ["true"]})
        assert (status, body["code"]) == (401, "unauthenticated")
        assert api.call("GET", "/api/v1/jobs")[0] == 401
    assert world.api().jobs() == []

    # An agent would obey a stranger: it refuses to start, and says what to do.
    agent = add_far_agent(world, cable, [], name="no-token")
    agent.launch()
    assert agent.ended() == 1
    assert "--token-file" in agent.log_text() and cable.addresses[0] in agent.log_text()
    # One with another token is refused.
    wrong = world.folder / "wrong-token"
    wrong.write_text("f" * 64 + "\n")
    wrong.chmod(0o600)
    agent = add_far_agent(world, cable, ["--token-file", str(wrong)], name="wrong-token-agent")
    agent.launch()
    wait_until("it is told no", lambda: "scheduler_unreachable" in agent.log_text())
    time.sleep(0.5)
    assert '"registered"' not in agent.log_text()
    assert world.api().get("/nodes")["total"] == 0
    agent.kill()

    # With the right one all works, the command line too.
    add_far_agent(world, cable, with_token(world)).start()
    url = f"http://{cable.addresses[0]}:{world.scheduler.ports['http']}"
    words = [*cable.inside(0), program("gpu-cli"), "--api-url", url]
    submit = ["submit", "--wait", "--", "sh", "-c", "exit 3"]
    done = subprocess.run([*words, *submit], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 4 and "unauthenticated" in done.stderr
    done = subprocess.run([*words, *with_token(world), *submit], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stderr


def test_a_cut_longer_than_the_lease_ends_no_job_and_loses_no_exit_code(world, cable):
    agent = add_far_agent(world, cable, with_token(world)).start()
    api = world.api()
    gates = {name: world.folder / name for name in ("during", "after")}
    jobs = {name: api.submit(f"echo $$; while [ ! -e {gate} ]; do sleep 0.05; done; exit {code}", gpu_count=1)
            for (name, gate), code in zip(gates.items(), (23, 24))}
    pids = {}
    for name, job_id in jobs.items():
        api.wait_for(job_id, "running")
        pids[name] = int(wait_until("its pid is printed", lambda i=job_id: api.output(i).strip()))

    cable.cut()
    api.wait_node("n1", "unreachable")
    gates["during"].touch()
    wait_until("one ends while the cable is cut", lambda: not is_alive(pids["during"]))
    waiting = api.submit("exit 25", gpu_count=1)
    wait_until("no node reports", lambda: api.explain(waiting)["reason"] == "nodes_unreachable")
    assert "unreachable" in str(api.get("/nodes"))
    assert [api.job(job_id)["state"] for job_id in jobs.values()] == ["running", "running"]
    assert api.get("/cluster/status")["online_nodes"] == 0
    time.sleep(2 * LEASE_MS / 1000)  # Clearly longer than the lease; nothing is measured by it.
    assert is_alive(pids["after"]) and agent.alive()

    cable.plug()
    api.wait_node("n1", "ready")
    job = api.wait_for(jobs["during"])
    assert (job["exit_code"], job["attempts"]) == (23, 1)
    assert api.wait_for(waiting)["exit_code"] == 25
    assert is_alive(pids["after"])
    gates["after"].touch()
    job = api.wait_for(jobs["after"])
    assert (job["exit_code"], job["attempts"]) == (24, 1)
    wait_until("all GPUs are free", lambda: api.get("/cluster/status")["available_gpus"] == 4)


def test_a_job_cancelled_during_a_cut_is_ended_after_it(world, cable):
    add_far_agent(world, cable, with_token(world)).start()
    api = world.api()
    job_id = api.submit("echo $$; exec sleep 600", gpu_count=1)
    api.wait_for(job_id, "running")
    pid = int(wait_until("its pid is printed", lambda: api.output(job_id).strip()))
    cable.cut()
    api.wait_node("n1", "unreachable")
    api.cancel(job_id)
    assert is_alive(pid)
    assert api.job(job_id)["state"] == "running"  # Its GPU is not given away on a guess.
    cable.plug()
    assert api.wait_for(job_id)["state"] == "cancelled"
    assert not is_alive(pid)
