"""Services whose replicas get ports: which, that nobody else has them, and that a rollout waits for what probes say."""

import json
import os
import signal
import socket
import sys
import urllib.request

import pytest
from harness import wait_until
from ports import free_range

# Answers at its port once the file `open` is in the folder that it is given; /port says which port it has.
SERVER = """
import http.server, os, pathlib, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_open = (pathlib.Path(sys.argv[1]) / sys.argv[2]).exists()
        self.send_response(200 if is_open else 503)
        self.end_headers()
        self.wfile.write(os.environ["PORT"].encode())
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
PROBE = ("--ready-probe", "http:/health", "--probe-period", "1s", "--probe-failures", "1")
PORTS = 50


@pytest.fixture(name="world")
def world_fixture(new_world):
    """Its node has ports for services from `first_port` on."""
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.first_port = free_range(PORTS)
    world.scheduler.start()
    last = world.first_port + PORTS - 1
    world.add_agent("n1", arguments=("--service-ports", f"{world.first_port}-{last}")).start()
    return world


def server(world, gate):
    return ("--", sys.executable, "-c", SERVER, str(world.folder), gate)


def open_gate(world, gate):
    (world.folder / gate).touch()


def get(world, name="web"):
    return world.cli_json("service", "get", name)


def wait_for(world, what, holds, name="web"):
    return wait_until(f"{name} {what}", lambda: (lambda service: service if holds(service) else None)(get(world, name)))


def wait_ready(world, replicas, generation=1, name="web"):
    return wait_for(world, f"has {replicas} ready", lambda s: s["state"] == "ready" and s["ready"] == replicas
                    and len(s["jobs"]) == replicas and all(one["generation"] == generation for one in s["jobs"]), name)


def told_by(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/port", timeout=10) as answer:
        return int(answer.read())


def test_two_replicas_of_a_node_get_ports_of_their_own_and_are_ready_by_their_probe(world):
    world.cli("service", "create", "web", "--replicas", "2", *PROBE, *server(world, "open"), expected=0)
    waits = wait_for(world, "runs and is not ready", lambda s: len(s["jobs"]) == 2 and all(
        one["port"] and "503" in one["message"] for one in s["jobs"]))
    assert (waits["state"], waits["ready"], waits["port"], waits["ready_probe"]) == ("starting", 0, True, "http:/health")
    open_gate(world, "open")
    service = wait_ready(world, 2)
    ports = [one["port"] for one in service["jobs"]]
    assert len(set(ports)) == 2 and all(port in range(world.first_port, world.first_port + PORTS) for port in ports)
    assert [told_by(port) for port in ports] == ports
    shown = world.cli("service", "get", "web", expected=0).stdout
    assert all(f"n1:{port}" in shown for port in ports)
    status, answer, _ = world.api().call("GET", "/v1/services/web")
    assert (status, [one["port"] for one in answer["jobs"]]) == (200, ports)
    (world.folder / "open").unlink()
    wait_for(world, "is not ready any more", lambda s: s["ready"] == 0)
    assert [one["port"] for one in get(world)["jobs"]] == ports


def test_a_port_without_a_probe_and_none_at_all(world):
    world.cli("service", "create", "web", "--port", "--ready-after", "1s", "--", "sh", "-c", "echo at $PORT; sleep 1000",
              expected=0)
    service = wait_for(world, "has a port", lambda s: s["ready"] == 1 and s["jobs"][0]["port"])
    job, port = service["jobs"][0]["job_id"], service["jobs"][0]["port"]
    wait_until("it says its port", lambda: f"at {port}" in world.cli("logs", job).stdout)
    world.cli("service", "rollout", "web", "--no-port", "--", "sh", "-c", "echo at ${PORT:-none}; sleep 1000", expected=0)
    service = wait_ready(world, 1, generation=2)
    assert not service["port"] and not service["jobs"][0]["port"]
    wait_until("it has none", lambda: "at none" in world.cli("logs", service["jobs"][0]["job_id"]).stdout)
    refused = world.cli("service", "create", "bad", "--ready-probe", "udp", "--", "true")
    assert refused.returncode != 0 and "--ready-probe must be http:/PATH" in refused.stderr, refused.stderr


def test_a_rollout_waits_until_the_new_replica_is_ready(world):
    open_gate(world, "old")
    world.cli("service", "create", "web", "--replicas", "2", *PROBE, *server(world, "old"), expected=0)
    old = [one["job_id"] for one in wait_ready(world, 2)["jobs"]]
    world.cli("service", "rollout", "web", "--rollout-deadline", "2s", *server(world, "new"), expected=0)
    stalled = wait_for(world, "is stalled", lambda s: s["state"] == "stalled")
    fresh = [one for one in stalled["jobs"] if one["generation"] == 2]
    assert len(fresh) == 1 and fresh[0]["state"] == "running" and not fresh[0]["ready"]
    assert fresh[0]["job_id"] in stalled["message"] and "503" in stalled["message"]
    assert "--rollout-deadline" in stalled["message"]
    still = {one["job_id"]: one for one in stalled["jobs"]}
    assert all(still[job]["state"] == "running" and still[job]["ready"] for job in old)
    assert "stalled" in world.cli("service", "list", expected=0).stdout
    open_gate(world, "new")
    now = wait_ready(world, 2, generation=2)
    assert now["message"] == ""
    assert fresh[0]["job_id"] in {one["job_id"] for one in now["jobs"]}


def test_restarts_of_agent_and_scheduler_keep_port_and_readiness(world):
    open_gate(world, "open")
    world.cli("service", "create", "web", *PROBE, *server(world, "open"), expected=0)
    before = wait_ready(world, 1)["jobs"][0]
    agent = world.agents()[0]
    agent.restart()
    after = wait_ready(world, 1)["jobs"][0]
    assert [after[name] for name in ("job_id", "port")] == [before[name] for name in ("job_id", "port")]
    world.scheduler.restart()
    after = wait_ready(world, 1)["jobs"][0]
    assert [after[name] for name in ("job_id", "port")] == [before[name] for name in ("job_id", "port")]
    assert told_by(before["port"]) == before["port"]
    # The new agent probes, too.
    (world.folder / "open").unlink()
    wait_for(world, "is not ready any more", lambda s: s["ready"] == 0)


def test_a_killed_shim_frees_its_port_and_what_listens_there_is_passed_over(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.scheduler.start()
    first = free_range(2)
    both = f"{first}-{first + 1}"
    agent = world.add_agent("n1", arguments=("--service-ports", both))
    agent.start()
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("0.0.0.0", first))
        stranger.listen()
        open_gate(world, "open")
        world.cli("service", "create", "web", *PROBE, *server(world, "open"), expected=0)
        service = wait_ready(world, 1)
        assert service["jobs"][0]["port"] == first + 1
        # No port is left for another one, which says so.
        world.cli("service", "create", "more", *PROBE, *server(world, "open"), expected=0)
        other = wait_for(world, "has a job", lambda s: s["jobs"], name="more")["jobs"][0]["job_id"]
        wait_until("it cannot start", lambda: both in json.dumps(world.api().call("GET", f"/v1/jobs/{other}")[1]))
        world.cli("service", "delete", "more", expected=0)
        os.kill(agent.shim_of(service["jobs"][0]["job_id"]), signal.SIGKILL)
        again = wait_for(world, "is ready again", lambda s: s["ready"] == 1 and s["jobs"][0]["port"] == first + 1
                         and agent.shim_of(s["jobs"][0]["job_id"]))
        assert told_by(first + 1) == first + 1 and len(again["jobs"]) == 1
