"""gpu-scheduler doctor, gpu-agent doctor: what they find on a machine that is well, and on one that is not."""

import json
import os
import re
import shutil
import subprocess
import urllib.request

import harness
import pytest
from harness import A100X4, PATIENCE_S, program
from ports import free_port

pytestmark = pytest.mark.shared_world


def doctor(world, name, *words):
    """(exit status, {check: [finding]}) of NAME doctor --json."""
    done = subprocess.run([program(name), "doctor", "--json", *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, env=world.environment())
    assert not done.stderr, done.stderr
    report = json.loads(done.stdout)
    worst = max((("ok", "warn", "fail").index(check["verdict"]) for check in report["checks"]), default=0)
    assert done.returncode == worst == ("ok", "warn", "fail").index(report["verdict"])
    found = {}
    for check in report["checks"]:
        # What is not well can be mended, and the command is named.
        assert (check["verdict"] == "ok") == (check["fix"] == ""), check
        found.setdefault(check["check"], []).append(check)
    return done.returncode, found


def verdict(found, check):
    return found[check][0]["verdict"]


def scheduler_words(world, config=None):
    words = ["--data-dir", world.scheduler.data_dir]
    path = world.folder / "doctor.yaml"
    ports = world.scheduler.ports
    path.write_text(config or f"api:\n  http_port: {ports['http']}\n  grpc_port: {ports['grpc']}\n"
                              f"metrics:\n  port: {ports['metrics']}\n")
    return [*words, "--config", path]


def test_a_scheduler_that_serves(world):
    _, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    for check in ("config", "token", "owner", "port", "health", "space", "sync", "address"):
        assert verdict(found, check) == "ok", found[check]
    assert [port["verdict"] for port in found["port"]] == ["ok"] * 3
    assert str(world.scheduler.pid()) in found["owner"][0]["detail"]


def test_a_scheduler_that_wants_the_token_on_every_call(new_world):
    world = new_world(API_TOKEN_REQUIRED="true")
    world.scheduler.start()
    _, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    assert verdict(found, "health") == "ok", found["health"]
    token = world.scheduler.data_dir / "token"
    was = token.read_text()
    token.write_text("0123456789abcdef" * 4)
    status, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    assert status == 2
    assert f"does not know what {token} holds now" in found["health"][0]["detail"]
    assert "restart" in found["health"][0]["fix"]
    token.write_text(was)


def test_callers_without_a_credential_are_named(new_world):
    def told_of(world, required):
        ports = world.scheduler.ports
        path = world.folder / "doctor.yaml"
        path.write_text(f"api:\n  http_port: {ports['http']}\n  token_required: {required}\n")
        (finding,) = doctor(world, "gpu-scheduler", "--data-dir", world.scheduler.data_dir, "--config", path)[1]["anonymous"]
        assert finding["verdict"] == "ok"
        lines = world.scheduler.log_since_start().splitlines()
        return finding["detail"], [json.loads(line)["details"] for line in lines
                                   if '"callers_without_credential"' in line]

    world = new_world()
    world.scheduler.start()
    detail, (event,) = told_of(world, "false")
    assert detail.startswith("callers without a credential are answered on 127.0.0.1: every user of this machine may")
    ports = world.scheduler.ports
    assert event["listeners"] == (f"http 127.0.0.1:{ports['http']}, grpc 127.0.0.1:{ports['grpc']}, "
                                  f"metrics 127.0.0.1:{ports['metrics']}")
    assert "enter and end the jobs of other such callers" in event["may"]
    assert "api.token_required" in event["hint"]

    def counted():
        url = f"http://127.0.0.1:{ports['metrics']}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            (line,) = re.findall(r"^gpu_scheduler_calls_without_credential_total (\d+)$", answer.read().decode(), re.M)
        return int(line)

    before = counted()
    assert world.scheduler.api(anonymous=True).call("GET", "/v1/jobs")[0] == 200
    assert world.scheduler.api().call("GET", "/v1/jobs")[0] == 200
    assert counted() == before + 2, "the list, and this reading of the metrics"
    closed = new_world(API_TOKEN_REQUIRED="true")
    closed.scheduler.start()
    detail, events = told_of(closed, "true")
    assert detail == "callers without a credential are refused at every port, but for /health"
    assert events == []


def test_a_port_that_somebody_else_holds(world):
    port = world.scheduler.ports["http"]
    words = ["--data-dir", world.folder / "another", "--config", scheduler_words(world)[-1]]
    status, found = doctor(world, "gpu-scheduler", *words)
    assert status == 2
    held = [finding for finding in found["port"] if str(port) in finding["detail"]]
    assert held[0]["verdict"] == "fail"
    assert f"process {world.scheduler.pid()} (gpu-scheduler)" in held[0]["detail"]
    assert f"sport = :{port}" in held[0]["fix"]


def test_a_token_that_others_can_read(world):
    token = world.scheduler.data_dir / "token"
    token.chmod(0o644)
    status, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    assert status == 2
    assert found["token"][0]["fix"] == f"chmod 600 {token}"
    assert token.read_text().strip() not in json.dumps(found)
    # The command that it names mends it.
    subprocess.run(found["token"][0]["fix"], shell=True, check=True)
    assert verdict(doctor(world, "gpu-scheduler", *scheduler_words(world))[1], "token") == "ok"


def test_a_wrong_configuration(world):
    status, found = doctor(world, "gpu-scheduler", *scheduler_words(world, "api:\n  htpp_port: 1\n"))
    assert status == 2
    assert "did you mean api.http_port?" in found["config"][0]["detail"]


def test_a_scheduler_that_hangs(new_world):
    world = new_world()
    world.scheduler.start()
    ports = world.scheduler.data_dir / "ports.json"
    text = ports.read_text()
    ports.write_text(json.dumps({**json.loads(text), "http": free_port()}))
    status, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    assert status == 2
    assert "does not answer" in found["health"][0]["detail"]
    # Without ports.json it has the folder open and serves nobody.
    ports.unlink()
    _, found = doctor(world, "gpu-scheduler", *scheduler_words(world))
    assert verdict(found, "owner") == "warn"
    assert f"process {world.scheduler.pid()}" in found["owner"][0]["detail"]
    ports.write_text(text)


def agent_words(world, agent, **options):
    words = ["--node", agent.node, "--data-dir", agent.data_dir, "--sim-gpus", A100X4]
    words += ["--scheduler", f"127.0.0.1:{world.scheduler.ports['grpc']}"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value]
    return words


def test_an_agent_that_is_well(world):
    agent = world.agents()[0]
    _, found = doctor(world, "gpu-agent", *agent_words(world, agent, token_file=world.scheduler.data_dir / "token"))
    for check in ("config", "gpus", "folder", "space", "sync", "agent", "scheduler", "token", "proof", "version", "skew"):
        assert verdict(found, check) == "ok", found[check]
    for check in ("nofile", "memlock", "nproc", "cgroup", "fence", "users", "shm", "containers", "clock", "systemd"):
        assert check in found
    assert world.api().node("n1")["state"] == "ready", "looking changed nothing"
    assert len(world.api().get("/nodes")["nodes"]) == 1


@pytest.mark.skipif(not harness.IS_ROOT, reason="needs root: looks at settings of an agent of root's")
def test_settings_that_give_a_boundary_away(new_world):
    world = new_world()
    words = ["--node", "n1", "--data-dir", world.folder, "--sim-gpus", A100X4, "--scheduler", "10.0.0.1:9090"]
    _, found = doctor(world, "gpu-agent", *words, "--default-user", "nobody", "--allow-root-jobs",
                      "--allow-set-user-id")
    for check in ("root_jobs", "default_user", "set_user_id", "network"):
        assert verdict(found, check) == "warn", found
    runtime = shutil.which("podman") or shutil.which("docker")
    assert not runtime or verdict(found, "container_network") == "warn", found
    config = world.folder / "agent.yaml"
    config.write_text("container_network: host\n")
    config.chmod(0o666)
    _, found = doctor(world, "gpu-agent", *words, "--config", config)
    assert verdict(found, "config_owner") == "warn", found
    config.chmod(0o644)
    _, found = doctor(world, "gpu-agent", *words[:-1], "127.0.0.1:1", "--config", config)
    assert verdict(found, "boundaries") == "ok"
    assert not {"root_jobs", "default_user", "set_user_id", "network", "container_network", "config_owner"} & set(found)


def test_an_agent_whose_scheduler_is_away(world):
    agent = world.agents()[0]
    words = agent_words(world, agent)
    words[words.index("--scheduler") + 1] = f"127.0.0.1:{free_port()}"
    status, found = doctor(world, "gpu-agent", *words)
    assert status == 2
    assert found["scheduler"][0]["verdict"] == "fail"
    assert "no scheduler can be reached" in found["scheduler"][0]["detail"]


def test_an_agent_with_another_token(world):
    token = world.folder / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    status, found = doctor(world, "gpu-agent", *agent_words(world, world.agents()[0], token_file=token))
    assert status == 2
    assert verdict(found, "proof") == "fail"


def test_no_agent_and_no_settings(new_world):
    world = new_world()
    config = world.folder / "agent.yaml"
    config.write_text(f"data_dir: {world.folder}/n1\n")
    status, found = doctor(world, "gpu-agent", "--config", config)
    assert status == 2
    assert verdict(found, "agent") == "warn"
    assert "join" in found["scheduler"][0]["fix"]


@pytest.mark.skipif(not harness.IS_ROOT, reason="needs root: becomes a plain user")
def test_a_plain_user_is_told_what_it_lacks(world):
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program("gpu-agent"), "doctor",
                           "--json", *map(str, agent_words(world, world.agents()[0]))], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, env=world.environment(), cwd="/")
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["users"]["verdict"] == "warn"
    assert checks["cgroup"]["verdict"] == "warn"
    assert checks["folder"]["verdict"] == "fail"
    assert done.returncode == 2


def test_text_for_people(world):
    done = subprocess.run([program("gpu-scheduler"), "doctor", *map(str, scheduler_words(world))], capture_output=True,
                          text=True, timeout=PATIENCE_S, check=False, env=world.environment())
    assert done.stdout.startswith("ok    config ")
    assert " ok, " in done.stdout.splitlines()[-1]
    assert os.path.basename(str(world.scheduler.data_dir)) in done.stdout


def test_keys_that_never_expire(world):
    def keys():
        return doctor(world, "gpu-scheduler", *scheduler_words(world))[1].get("keys", [])

    assert keys() == []
    world.cli("key", "create", "careful", "--expires", "30d", expected=0)
    assert [finding["verdict"] for finding in keys()] == ["ok"]
    world.cli("key", "create", "careless", expected=0)
    (finding,) = keys()
    assert finding["verdict"] == "warn"
    made = next(key for key in world.cli_json("key", "list")["keys"] if key["name"] == "careless")
    assert f"1 API key never expires: {made['key_id']} default/careless (gsk_{made['prefix']})" in finding["detail"]
    assert f"gpu-cli key revoke {made['key_id']}" in finding["fix"]
    # Who may not ask the scheduler for its keys is told nothing of them.
    token = world.scheduler.data_dir / "token"
    was = token.read_text()
    token.write_text("0123456789abcdef" * 4)
    assert keys() == []
    token.write_text(was)
    for key in world.cli_json("key", "list")["keys"]:
        world.cli("key", "revoke", key["key_id"], expected=0)
    assert keys() == []
