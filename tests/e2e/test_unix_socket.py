"""The scheduler's Unix socket: who calls is who the kernel says, and nobody needs a token or a URL."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from harness import IS_ROOT, PATIENCE_S, program, wait_until
from security import NEEDS_ROOT, as_user, public_programs, throw_away_users


@pytest.fixture(name="users")
def users_fixture(monkeypatch):
    with public_programs(monkeypatch), throw_away_users() as users:
        yield users


@pytest.fixture(name="socket_world")
def socket_world_fixture(new_world):
    """A scheduler with a socket that everybody can come to; its path is the world's `socket`."""

    def make(**settings):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300, **settings)
        world.socket = world.folder / "api.sock"
        world.scheduler.settings["API_UNIX_SOCKET"] = world.socket
        world.scheduler.start()
        return world

    return make


def cli(world, user, *words, expected=0):
    """gpu-cli as the user over the socket, without a token."""
    prefix = as_user(user, program("gpu-cli")) if user else [program("gpu-cli")]
    done = subprocess.run([*prefix, *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd="/",
                          env=world.environment({"GPU_SCHEDULER_URL": f"unix://{world.socket}", "HOME": "/"}))
    assert done.returncode == expected, (words, done.returncode, done.stdout, done.stderr)
    return done


def submitted(world, user, *words):
    return json.loads(cli(world, user, "--json", "submit", *words).stdout)["job_id"]


@NEEDS_ROOT
def test_a_person_runs_jobs_as_itself_and_ends_no_others(socket_world, users):
    ana, bob = users.add(), users.add()
    world = socket_world()
    world.add_agent("n1").start()
    assert cli(world, ana, "submit", "--wait", "--logs", "--", "id", "-un").stdout.split()[-1] == ana
    job = submitted(world, ana, "--", "sh", "-c", "echo mine; sleep 1000")
    seen = world.api().wait_for(job, "running")
    assert (seen["owner"], seen["user"]) == (f"person {ana}", ana)
    wait_until("it wrote", lambda: "mine" in world.api().output(job))
    for words in (("cancel", job), ("logs", job), ("exec", job, "--", "id"), ("hold", job)):
        refused = cli(world, bob, *words, expected=4)
        assert "permission_denied" in refused.stderr, (words, refused.stderr)
    assert "may not run jobs as the Unix user" in cli(world, bob, "submit", "--user", ana, "--", "id", expected=4).stderr
    # Over a WebSocket, too.
    assert cli(world, ana, "exec", job, "--", "id", "-un").stdout.strip() == ana
    cli(world, ana, "cancel", job)
    world.api().wait_for(job, "cancelled")


@NEEDS_ROOT
def test_members_of_the_group_are_administrators_under_their_own_names(socket_world, users):
    admin, person = users.add(), users.add()
    group = users.add()  # Each user has a group of its own.
    subprocess.run(["usermod", "--append", "--groups", group, admin], check=True)
    world = socket_world(API_ADMIN_GROUP=group)
    world.add_agent("n1").start()
    assert "permission_denied" in cli(world, person, "node", "drain", "n1", expected=4).stderr
    assert "permission_denied" in cli(world, person, "tenant", "create", "--name", "lab", expected=4).stderr
    cli(world, admin, "node", "drain", "n1")
    cli(world, None, "node", "resume", "n1")  # Root.

    def who_drained():
        lines = (world.scheduler.data_dir / "audit.log").read_text().split("\n")[:-1]  # Whole ones.
        drains = [line for line in map(json.loads, lines) if line.get("action") == "drain_node"]
        return [(line["caller_kind"], line["caller"], line["peer"]) for line in drains]

    wait_until("the audit has both", lambda: len(who_drained()) == 2)
    expected = [("person", person, f"unix:{users.uid(person)}"), ("person", admin, f"unix:{users.uid(admin)}")]
    assert who_drained() == expected


@NEEDS_ROOT
def test_an_agent_of_a_plain_user_runs_nobody_elses_jobs(socket_world, users):
    ana, bob = users.add(), users.add()
    world = socket_world()
    folder = pathlib.Path(world.folder / "of-ana")
    folder.mkdir()
    shutil.chown(folder, ana)
    token = folder / "token"
    shutil.copy(world.scheduler.data_dir / "token", token)
    shutil.chown(token, ana)
    world.add_agent("n1", data_dir=folder / "agent", prefix=as_user(ana), allow_root_jobs=False,
                    arguments=["--token-file", str(token)]).start()
    job = submitted(world, bob, "--", "id")
    why = f"runs as '{ana}' and cannot run jobs as '{bob}'"
    wait_until("the agent says so", lambda: why in world.agents()[0].log_text())
    cli(world, bob, "cancel", job)
    assert cli(world, ana, "submit", "--wait", "--logs", "--", "id", "-un").stdout.split()[-1] == ana


@NEEDS_ROOT
def test_where_the_token_is_required_a_person_needs_it_and_root_does_not(socket_world, users):
    ana = users.add()
    world = socket_world(API_TOKEN_REQUIRED="true")
    assert "unauthenticated" in cli(world, ana, "list", expected=4).stderr
    cli(world, None, "list")


def test_a_dead_schedulers_socket_is_replaced_and_a_living_ones_is_not(socket_world):
    world = socket_world()
    assert json.loads((world.scheduler.data_dir / "ports.json").read_text())["unix_socket"] == str(world.socket)
    assert world.socket.stat().st_mode & 0o777 == 0o666
    world.scheduler.kill()
    assert world.socket.is_socket()
    assert "unreachable" in cli(world, None, "list", expected=3).stderr
    world.scheduler.start()
    cli(world, None, "list")

    thief = world.add_scheduler({"API_UNIX_SOCKET": world.socket}, name="thief")
    thief.launch()
    assert thief.ended() == 1
    assert f"cannot listen on the Unix socket {world.socket}: another process listens there" in thief.log_text()
    cli(world, None, "list")

    assert world.scheduler.stop() == 0
    assert not world.socket.exists()
    assert "unreachable" in cli(world, None, "list", expected=3).stderr
    world.scheduler.start()


def test_a_path_that_no_socket_can_have_is_refused_in_words(new_world):
    world = new_world()
    world.strict = False
    for path, words in ((world.folder / ("x" * 120), "at most 107"), ("api.sock", "a path that starts with /")):
        world.scheduler.settings["API_UNIX_SOCKET"] = path
        world.scheduler.launch()
        assert world.scheduler.ended() in (1, 2)
        assert words in world.scheduler.log_since_start()


def has_namespaces():
    done = subprocess.run(["unshare", "-mn", "sh", "-c", "ip link set lo up && mount -t tmpfs none /run"],
                          capture_output=True, check=False)
    return done.returncode == 0


# Where nobody else has the usual port and the usual place.
MACHINE = ["unshare", "-mn", "sh", "-c", 'ip link set lo up && mount -t tmpfs none /run && exec "$@"', "sh"]


@pytest.mark.skipif(not IS_ROOT or shutil.which("nsenter") is None or shutil.which("ip") is None
                    or not has_namespaces(), reason="needs namespaces of root's")
def test_one_machine_needs_neither_url_nor_token(new_world, users):
    ana = users.add()
    world = new_world()
    world.strict = False  # Its ports are another machine's.
    scheduler = world.scheduler
    scheduler.prefix = MACHINE
    scheduler.ports = {"http": 8080, "grpc": 9090, "metrics": 9091}
    scheduler.start()
    there = ["nsenter", "--target", str(scheduler.pid()), "--mount", "--net"]

    def run(user, *words, expected=0, more=None):
        become = {None: [], "nobody": ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]}
        prefix = [*(become[user] if user in become else as_user(user)), program("gpu-cli")]
        done = subprocess.run([*there, *prefix, *words], capture_output=True, text=True, timeout=PATIENCE_S,
                              check=False, env=world.environment({"HOME": "/", **(more or {})}))
        assert done.returncode == expected, (words, done.returncode, done.stdout, done.stderr)
        return done

    def owner(user, more=None):
        made = json.loads(run(user, "--json", "submit", "--", "true", more=more).stdout)["job_id"]
        return json.loads(run(None, "--json", "get", made).stdout)["owner"]

    assert owner(None) == "person root"
    assert owner(ana) == f"person {ana}"
    assert owner("nobody") == "anonymous"
    # A URL, a context and a token go before the socket.
    by_port = {"GPU_SCHEDULER_URL": "http://127.0.0.1:8080"}
    assert owner(None, by_port) == "operator admin by shared token"
    assert owner(ana, by_port) == "anonymous"
    assert owner(None, {"GPU_SCHEDULER_TOKEN_FILE": str(scheduler.data_dir / "token")}) == "operator admin by shared token"
    contexts = {"XDG_CONFIG_HOME": str(world.folder)}
    run(None, "context", "set", "here", "--api-url", "http://127.0.0.1:8080", more=contexts)
    assert owner(None, contexts) == "operator admin by shared token"
    # One that is not there any more is not waited for: the port is asked.
    scheduler.settings["API_UNIX_SOCKET"] = ""
    keeper = subprocess.Popen([*there, "sleep", "1000"], env=world.environment(), stdin=subprocess.DEVNULL)
    try:
        mine = os.readlink("/proc/self/ns/mnt")
        wait_until("it is there", lambda: os.readlink(f"/proc/{keeper.pid}/ns/mnt") != mine)
        there[2] = str(keeper.pid)
        scheduler.kill()
        scheduler.prefix = list(there)
        assert "http://127.0.0.1:8080" in run(ana, "list", expected=3).stderr
        scheduler.start()
        assert owner(ana) == "anonymous"
        assert owner(None) == "operator admin by shared token"
        assert scheduler.stop() == 0
    finally:
        keeper.kill()
        keeper.wait()
