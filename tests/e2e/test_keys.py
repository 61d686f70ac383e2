"""API keys: shown once, as good as their roles and no better, refused from their end on, over every start."""

import contextlib
import hashlib
import http.client
import json
import os
import stat

import pytest
from harness import IS_ROOT, PATIENCE_S, processes, read_bytes, wait_until


pytestmark = pytest.mark.shared_world


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1", allow_root_jobs=False, arguments=["--default-user", "nobody"] if IS_ROOT else []).start()
        for name in ("vision", "other"):
            world.cli("tenant", "create", "--name", name, expected=0)
        return world

    return start


@pytest.fixture(name="world")
def world_fixture(world):
    """Without the keys of the tests before, and with tenants vision and other."""
    for key in world.cli_json("key", "list")["keys"]:
        world.cli("key", "revoke", key["key_id"], expected=0)
    return world


def make_key(world, name, *words):
    """(id, secret) of a new key, which gpu-cli writes into a file of its own."""
    path = world.folder / f"{name}.key"
    key_id = world.cli("key", "create", name, "--out", str(path), *words, expected=0).stdout.strip()
    return key_id, path.read_text().strip()


def tenant_id(world, name):
    return world.api().get(f"/tenants/{name}")["id"]


def status_of(world, secret, method="GET", path="/v1/jobs", body=None):
    status, answer, _ = world.scheduler.api(token=secret).call(method, path, body)
    return status, answer.get("code"), answer.get("error", "")


def audited(world, holder, key_id):
    """What the audit has of a key's holder."""
    told = set()
    for text in (world.scheduler.data_dir / "audit.log").read_text().splitlines():
        with contextlib.suppress(ValueError):  # A line that is being written.
            line = json.loads(text)
            if (line["caller_kind"], line["caller"], line["key_id"]) == ("service", holder, key_id):
                told.add((line["action"], line["outcome"]))
    return told


def test_a_key_is_shown_once(world):
    done = world.cli("key", "create", "ci", "--tenant", "vision", expected=0)
    secret = done.stdout.strip()
    assert secret.startswith("gsk_") and len(secret) == 81
    assert "shown this once" in done.stderr
    key_id, second = make_key(world, "deploy", "--tenant", "vision", "--role", "viewer", "--expires", "30d")
    path = world.folder / "deploy.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # A file that is there stays as it is, and no key is made for it.
    assert world.cli("key", "create", "third", "--out", str(path)).returncode == 2
    assert path.read_text().strip() == second

    listed = world.cli("key", "list", expected=0).stdout
    assert "ci" in listed and "vision" in listed and "viewer" in listed and "third" not in listed
    keys = {key["name"]: key for key in world.cli_json("key", "list")["keys"]}
    assert keys["deploy"]["key_id"] == key_id and "expires_at" in keys["deploy"] and "expires_at" not in keys["ci"]
    # Its hash alone is kept, and that is shown to nobody.
    journal = world.scheduler.journal("dump", str(world.scheduler.data_dir)).stdout
    assert "deploy" in journal
    for text in (listed, str(keys), *(daemon.log_text() for daemon in world.daemons),
                 (world.scheduler.data_dir / "audit.log").read_text(), journal):
        for each in (secret, second):
            assert each[17:] not in text
            assert hashlib.blake2b(each[17:].encode(), digest_size=32).hexdigest() not in text


def test_a_key_of_a_tenant_submits_sees_and_cancels_its_own(world):
    tenant = tenant_id(world, "vision")
    key_id, _ = make_key(world, "ci", "--tenant", "vision")
    with_key = ("--token-file", str(world.folder / "ci.key"))
    job = world.cli("submit", *with_key, "--", "sleep", "1000", expected=0).stdout.strip()
    world.api().wait_for(job, "running")
    shown = world.cli_json("get", job, *with_key)
    assert shown["tenant_id"] == tenant
    assert job in world.cli("list", *with_key, expected=0).stdout
    assert world.cli("exec", *with_key, job, "--", "echo", "inside", expected=0).stdout == "inside\n"
    make_key(world, "watcher", "--tenant", "vision", "--role", "viewer")
    assert world.cli("exec", "--token-file", str(world.folder / "watcher.key"), job, "--", "true").returncode != 0
    others = world.api().submit("true")
    refused = world.cli("get", others, *with_key)
    assert refused.returncode != 0 and "no such job" in refused.stderr
    assert world.cli("node", "drain", "n1", *with_key).returncode != 0
    world.cli("cancel", job, *with_key, expected=0)
    world.api().wait_for(job, "cancelled")
    expected = {("submit_job", "applied"), ("enter_job", "allowed"), ("cancel_job", "applied"), ("drain_node", "forbidden")}
    wait_until("the audit has its calls", lambda: expected <= audited(world, f"{tenant}/ci", key_id))
    url = world.cli_environment()["GPU_SCHEDULER_URL"]
    world.cli("context", "set", "ours", "--api-url", url, *with_key, expected=0)
    assert job in world.cli("list", "--context", "ours", expected=0).stdout


@pytest.mark.own_world
def test_a_revoked_key_stays_so_over_a_crash(world):
    lives, right = make_key(world, "ci", "--tenant", "vision")
    ended, wrong = make_key(world, "old", "--tenant", "vision")
    assert status_of(world, wrong)[0] == 200
    world.cli("key", "revoke", "old", expected=0)

    def check():
        assert status_of(world, right)[0] == 200
        status, code, sentence = status_of(world, wrong)
        assert (status, code) == (401, "unauthenticated") and f"{ended} was revoked" in sentence

    check()
    world.scheduler.kill()
    world.scheduler.start()
    check()
    world.scheduler.restart()
    check()
    assert world.cli("key", "revoke", ended).returncode != 0
    assert [key["key_id"] for key in world.cli_json("key", "list")["keys"]] == [lives]
    states = {key["key_id"]: key["state"] for key in world.cli_json("key", "list", "--all")["keys"]}
    assert states == {lives: "active", ended: "revoked"}


def test_a_swapped_secret_is_nobodys(world):
    _, first = make_key(world, "a")
    _, second = make_key(world, "b")
    unknown = status_of(world, "gsk_" + "a" * 12 + "." + "0" * 64)
    assert unknown[:2] == (401, "unauthenticated")
    for credential in (first[:17] + second[17:], second[:17] + first[17:], first[:17] + "0" * 64, first[17:], first[:-1]):
        assert status_of(world, credential) == unknown
    assert status_of(world, first)[0] == status_of(world, second)[0] == 200


def test_a_header_of_a_megabyte_is_refused(world):
    _, secret = make_key(world, "a")
    try:
        assert status_of(world, secret + "0" * (1 << 20))[0] == 431
    except (OSError, http.client.HTTPException):
        pass  # Cut off while it was sent.
    assert status_of(world, secret)[0] == 200


@pytest.mark.own_world
def test_an_expired_key_is_refused(world):
    key_id, secret = make_key(world, "short", "--expires", "2s")
    status = 200
    while status == 200:
        status, code, sentence = status_of(world, secret)
    assert (status, code) == (401, "unauthenticated") and f"{key_id} has expired" in sentence
    world.scheduler.restart()
    assert status_of(world, secret)[0] == 401


def test_a_key_of_a_tenants_admin_gives_no_more_than_it_has(world):
    make_key(world, "boss", "--tenant", "vision", "--role", "tenant_admin", "--as-user", "nobody")
    as_boss = ("--token-file", str(world.folder / "boss.key"))
    made = world.cli("key", "create", "mine", "--as-user", "nobody", *as_boss, expected=0).stdout.strip()
    assert status_of(world, made)[0] == 200
    for words in (["--role", "admin"], ["--cluster", "--role", "admin"], ["--tenant", "other"], ["--role", "user@other"],
                  ["--as-user", "root"], ["--as-user", "*"], ["--cluster"]):
        refused = world.cli("key", "create", "more", *words, *as_boss)
        assert refused.returncode != 0, words
        assert refused.stdout == "", words
    world.cli("key", "bind", "mine", "--role", "tenant_admin", *as_boss, expected=0)
    assert world.cli("key", "bind", "mine", "--role", "admin", *as_boss).returncode != 0
    bound = world.cli("key", "bind", "mine", "--role", "tenant_admin", "--take", *as_boss, expected=0)
    assert bound.stdout.endswith("has user\n")
    assert {key["name"] for key in world.cli_json("key", "list", *as_boss)["keys"]} == {"boss", "mine"}


def test_a_key_for_metrics_reads_nothing_else(world):
    _, secret = make_key(world, "watcher", "--cluster", "--role", "metrics")
    connection = http.client.HTTPConnection("127.0.0.1", world.scheduler.ports["metrics"], timeout=30)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {secret}"})
    assert connection.getresponse().status == 200
    connection.close()
    assert status_of(world, secret, "POST", "/v1/jobs", {"spec": {"command": ["true"]}})[0] in (403, 404)
    assert status_of(world, secret, path="/v1/nodes")[0] == 403


def runs(command):
    return any(read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").strip() == command.encode() for pid in processes())


@pytest.mark.parametrize("how", ["revoked", "expired", "lost"])
def test_what_a_key_has_open_ends_with_it(world, how):
    make_key(world, "owner", "--tenant", "vision")
    owned = ("--token-file", str(world.folder / "owner.key"))
    job = world.cli("submit", *owned, "--", "sh", "-c", "echo begun; sleep 1000", expected=0).stdout.strip()
    world.api().wait_for(job, "running")
    lifetime = ["--expires", "12s"] if how == "expired" else []
    key_id, _ = make_key(world, "boss", "--tenant", "vision", "--role", "tenant_admin", *lifetime)
    with_key = ("--token-file", str(world.folder / "boss.key"))
    beside = f"sleep {1000 + int(key_id.removeprefix('key-'))}.{os.getpid()}"
    with world.cli_start("logs", *with_key, "--follow", job) as logs, \
            world.cli_start("exec", *with_key, job, "--", "sh", "-c", f"echo entered; exec {beside}") as entered, \
            world.cli_start("wait", *with_key, job) as waiting:
        assert logs.stdout.readline() == b"begun\n"
        assert entered.stdout.readline() == b"entered\n"
        wait_until("the session's command runs", lambda: runs(beside))
        if how == "revoked":
            world.cli("key", "revoke", "boss", expected=0)
        elif how == "lost":
            world.cli("key", "bind", "boss", "--role", "tenant_admin", "--take", expected=0)
        said = {}
        for name, client in (("logs", logs), ("exec", entered), ("wait", waiting)):
            said[name] = client.communicate(timeout=PATIENCE_S)[1].decode()
            assert client.returncode != 0, (name, said)
    why = {"revoked": f"{key_id} was revoked", "expired": f"{key_id} has expired",
           "lost": f"was taken from the API key {key_id}"}[how]
    assert why in said["exec"], said
    if how != "lost":  # Who asks again without its role is told of no job.
        assert why in said["logs"] and why in said["wait"], said
    wait_until("the session's command has ended", lambda: not runs(beside))
    assert world.api().job(job)["state"] == "running"


@pytest.mark.own_world
def test_the_last_use_of_a_key_is_shown_and_survives_a_restart(world):
    _, secret = make_key(world, "used")
    make_key(world, "unused")

    def uses():
        return {key["name"]: key.get("last_used_at") for key in world.cli_json("key", "list")["keys"]}

    assert uses() == {"used": None, "unused": None}
    assert status_of(world, secret)[0] == 200
    used = uses()
    assert used["used"].startswith("20") and used["used"].endswith(":00Z") and used["unused"] is None
    assert "LAST USED" in world.cli("key", "list", expected=0).stdout
    world.scheduler.stop()
    world.scheduler.start()
    assert uses() == used
    path = world.scheduler.data_dir / "key-uses"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # What is no such list costs what it knew, and nothing else.
    world.scheduler.stop()
    path.write_text("nonsense")
    world.scheduler.start()
    world.scheduler.wait_log("key_uses_not_read")
    assert uses()["unused"] is None
    assert status_of(world, secret)[0] == 200
    assert uses()["used"] is not None
