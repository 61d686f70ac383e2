"""What a caller without a credential may do: where it calls from, as all users of a machine do, is no credential."""

import contextlib
import secrets
import socket

import pytest
from harness import IS_ROOT, wait_until
from security import NEEDS_ROOT, cli_as, public_programs, root_secret, throw_away_users


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


@pytest.fixture(name="rooted")
def rooted_fixture(new_world):
    """A world whose agent is root."""

    def start(*arguments, allow_root_jobs=False, **settings):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300, **settings)
        world.scheduler.start()
        world.add_agent("n1", allow_root_jobs=allow_root_jobs, arguments=list(arguments)).start()
        return world

    return start


@pytest.fixture(name="world")
def world_fixture(new_world):
    """One whose agent has a user for jobs that name none, as root."""
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", allow_root_jobs=False, arguments=["--default-user", "nobody"] if IS_ROOT else []).start()
    return world


def refused(answer, status=403, code="permission_denied"):
    assert answer[0] == status and answer[1]["code"] == code, answer
    return answer[1]["error"]


def strangers(world):
    """Callers over TCP who are nobody in particular: without a credential, and with a key that has the role of a user in
    the tenant `default`."""
    key = world.cli("key", "create", "stranger-" + secrets.token_hex(4), "--role", "user", expected=0).stdout.strip()
    return (("anonymous", world.scheduler.api(anonymous=True)), ("key", world.scheduler.api(token=key)))


# Whom jobs run as.


@NEEDS_ROOT
def test_nobody_submits_as_another_user(rooted, users):
    victim, default = users.add(), users.add()
    world = rooted("--default-user", default)
    for kind, api in strangers(world):
        for body in ({"script": "id -un", "user": victim}, {"script": "id -un", "user": "root"}):
            status, answer, _ = api.call("POST", "/api/v1/jobs", body)
            if status == 201:
                api.wait_for(answer["job_id"])
            assert status == 403, f"ran as {api.output(answer['job_id'])}"
            assert answer["field"] == "user" and answer["code"] == "permission_denied", (kind, answer)
            assert kind == "key" or "set the user of a job" in answer["error"]
        refused(api.call("POST", "/v1/jobs", {"spec": {"command": ["id"], "user": victim}}))
        refused(api.call("POST", "/v1/jobs", {"jobs": [{"spec": {"command": ["id"], "user": victim}}]}))
        refused(api.call("POST", "/v1/jobs:plan", {"spec": {"command": ["id"], "user": victim}}))
        job = api.submit("id -un")
        api.wait_for(job, "completed")
        assert api.output(job) == f"{default}\n", kind


@NEEDS_ROOT
def test_nobodys_job_is_roots_where_jobs_may_be(rooted):
    world = rooted(allow_root_jobs=True)
    for kind, api in strangers(world):
        status, answer, _ = api.call("POST", "/api/v1/jobs", {"script": "id -u"})
        if status == 201:
            api.wait_for(answer["job_id"])
        assert status == 422, f"{kind}: ran as {api.output(answer['job_id'])}"
        assert "as root" in answer["error"] and answer["field"] == "user", (kind, answer)
    # With the token it is as before.
    job = world.api().submit("id -u")
    world.api().wait_for(job, "completed")
    assert world.api().output(job) == "0\n"


@NEEDS_ROOT
def test_a_job_that_no_node_has_a_user_for_is_refused_at_once(rooted, users):
    world = rooted()
    for api in (world.api(), world.scheduler.api(anonymous=True)):
        status, answer, _ = api.call("POST", "/api/v1/jobs", {"script": "true"})
        assert (status, answer["field"]) == (422, "user") and "--default-user" in answer["error"], answer
    # Of one that names a user nothing is wrong.
    job = world.api().submit("true", user=users.add())
    world.api().wait_for(job, "completed")


# Other people's jobs.


@NEEDS_ROOT
def test_nobody_enters_reads_or_ends_another_users_job(rooted, users, monkeypatch):
    victim, stranger = users.add(), users.add()
    world = rooted("--default-user", stranger)
    trusted, api, others = world.api(), world.scheduler.api(anonymous=True), strangers(world)
    word = secrets.token_hex(8)
    job = trusted.submit(f"echo {word}; sleep 1000", user=victim, environment={"WORD": word})
    trusted.wait_for(job, "running")
    wait_until("it wrote", lambda: word in trusted.output(job))
    named = world.cli("submit", "--user", victim, "--", "true", expected=0).stdout.strip()
    with public_programs(monkeypatch):
        done = cli_as(world, stranger, "exec", job, "--", "id", "-un")
        assert victim not in done.stdout and done.returncode == 4, done
        done = cli_as(world, stranger, "cp", f"{job}:stdout", "-")
        assert word not in done.stdout and done.returncode == 4, done
        done = cli_as(world, stranger, "logs", job)
        assert word not in done.stdout and done.returncode == 4, done
    for _, other in others:
        refused(other.call("DELETE", f"/api/v1/jobs/{job}"))
        refused(other.call("GET", f"/api/v1/jobs/{job}/logs"))
        refused(other.call("GET", f"/v1/jobs/{job}/files?path=x"))
        refused(other.call("PATCH", f"/v1/jobs/{job}", {"priority": 1}))
        for verb in ("cancel", "hold", "release", "requeue"):
            refused(other.call("POST", f"/v1/jobs/{job}/{verb}", {}))
        refused(other.call("GET", f"/v1/jobs/{job}/log"))
        for path in (f"/api/v1/jobs/{job}", "/api/v1/jobs", f"/v1/jobs/{job}", "/v1/jobs"):
            status, answer, _ = other.call("GET", path)
            assert status == 200 and word not in str(answer), answer
    # It is seen to be there, and nothing of what it is.
    for path in (f"/api/v1/jobs/{job}", "/api/v1/jobs", f"/v1/jobs/{job}", "/v1/jobs"):
        status, answer, _ = api.call("GET", path)
        assert status == 200 and word not in str(answer) and victim not in str(answer), answer
    assert api.get(f"/jobs/{job}")["state"] == "running"
    assert trusted.job(job)["state"] == "running"
    # Nor who submitted it, of whom gpu-cli tells more than an address.
    assert socket.gethostname() in trusted.job(named)["submitted_by"]
    for path in (f"/api/v1/jobs/{named}", "/api/v1/jobs", f"/v1/jobs/{named}", "/v1/jobs"):
        assert "@" not in str(api.call("GET", path)[1])


def test_tenants_of_operators_are_neither_seen_nor_used(world):
    trusted, api = world.api(), world.scheduler.api(anonymous=True)
    closed = trusted.post("/tenants", {"name": "closed"}, 201)["id"]
    hidden = trusted.submit("true", tenant_id=closed)
    trusted.wait_for(hidden, "completed")
    for tenant in (closed, "closed"):
        refused(api.call("POST", "/api/v1/jobs", {"script": "true", "tenant_id": tenant}), 404, "tenant_not_found")
        refused(api.call("GET", f"/api/v1/tenants/{tenant}"), 404, "tenant_not_found")
        refused(api.call("PUT", f"/api/v1/tenants/{tenant}", {"max_gpus": 1}), 404, "tenant_not_found")
        refused(api.call("DELETE", f"/api/v1/tenants/{tenant}"), 404, "tenant_not_found")
        # As for one that is not there.
        for unknown in (tenant, "nobody-has-this-name"):
            assert api.get(f"/jobs?tenant_id={unknown}") == {"jobs": [], "total": 0}
        refused(api.call("POST", "/api/v1/tenants", {"name": "child", "parent_id": tenant}), 404, "tenant_not_found")
    refused(api.call("GET", f"/api/v1/jobs/{hidden}"), 404, "job_not_found")
    refused(api.call("GET", f"/api/v1/jobs/{hidden}?tenant_id={closed}"), 404, "job_not_found")
    assert [tenant["name"] for tenant in api.get("/tenants")["tenants"]] == ["default"]
    listed = api.get("/jobs")
    assert (listed["jobs"], listed["total"]) == ([], 0)
    # Whoever has the token may open it.
    trusted.call("PUT", f"/api/v1/tenants/{closed}", {"anonymous": True})
    assert api.get("/jobs")["total"] == 1
    job = api.submit("true", tenant_id=closed)
    assert api.wait_for(job)["state"] == "completed"


def test_a_hidden_job_is_told_of_like_one_that_is_not_there(world):
    trusted = world.api()
    closed = trusted.post("/tenants", {"name": "closed"}, 201)["id"]
    hidden, absent = trusted.submit("true", tenant_id=closed), "job-987654"
    calls = [("GET", "/api/v1/jobs/{}"), ("DELETE", "/api/v1/jobs/{}"), ("GET", "/api/v1/jobs/{}/explain")]
    calls += [("GET", "/api/v1/jobs/{}/logs"), ("GET", "/v1/jobs/{}/files?path=x"), ("GET", "/v1/jobs/{}/history")]
    calls += [("GET", "/v1/jobs/{}?tenant_id=" + closed), ("POST", "/v1/jobs/{}/hold"), ("GET", "/v1/jobs/{}/watch")]
    for kind, api in strangers(world):
        for method, path in calls:
            told = [refused(api.call(method, path.format(job)), 404, "job_not_found") for job in (hidden, absent)]
            assert told[0].replace(hidden, absent) == told[1], (kind, path)


def test_names_of_hidden_tenants_are_not_told(world):
    trusted = world.api()
    ids = [trusted.post("/tenants", {"name": "twins"}, 201)["id"] for _ in range(2)]
    for _, api in strangers(world):
        job = api.submit("sleep 100")
        for path in (f"/api/v1/jobs/{job}", f"/api/v1/jobs/{job}/explain", f"/v1/jobs/{job}/log"):
            told = refused(api.call("GET", f"{path}?tenant_id=twins"), 404, "job_not_found")
            assert not any(tenant in told for tenant in ids), told
    # Whoever sees both is asked which one is meant.
    assert refused(trusted.call("GET", f"/api/v1/jobs/{job}?tenant_id=twins"), 409, "tenant_ambiguous")


def test_no_verb_of_operators_is_for_everybody(world):
    trusted, others = world.api(), strangers(world)
    for method, path, body in (
            ("POST", "/v1/nodes/n1/drain", {"reason": "x"}), ("POST", "/v1/nodes/n1/resume", {}),
            ("POST", "/v1/nodes/n1/reboot", {"reason": "x"}), ("POST", "/v1/nodes/n1/confirm-dead", {}),
            ("POST", "/v1/nodes/n1/label", {"set": {"a": "b"}}),
            ("POST", "/v1/nodes/n1/devices/0/condition", {"condition": "unhealthy", "detail": "x"}),
            ("POST", "/api/v1/nodes/n1/confirm-dead", {}),
            ("POST", "/api/v1/nodes/n1/gpus/0/condition", {"condition": "unhealthy", "detail": "x"}),
            ("POST", "/v1/reservations", {"name": "r", "node_names": ["n1"], "duration_ms": 1000}),
            ("DELETE", "/v1/reservations/r", None), ("GET", "/v1/moves", None), ("POST", "/v1/moves", {"id": "x"}),
            ("PUT", "/api/v1/tenants/default", {"max_gpus": 1}), ("DELETE", "/api/v1/tenants/default", None),
            ("POST", "/api/v1/tenants", {"name": "greedy", "guaranteed_gpus": 4, "max_gpus": 4})):
        for kind, api in others:
            status, answer, _ = api.call(method, path, body)
            assert (status, answer["code"]) == (403, "permission_denied"), (kind, method, path, status, answer)
        trusted_status, trusted_answer, _ = trusted.call(method, path, body)
        # The call is one that there is, and is not refused to whoever has the token.
        assert trusted_status != 405 and trusted_answer.get("code") != "permission_denied", (path, trusted_answer)
        assert "no such path" not in str(trusted_answer), (path, trusted_answer)


def test_the_first_steps_of_a_client_without_a_credential(world):
    api = world.scheduler.api(anonymous=True)
    tenant = api.post("/tenants", {"name": "lab", "max_gpus": 2, "priority_tier": "high", "fair_share_weight": 1.0}, 201)
    assert tenant["anonymous"] is True
    job = api.submit("echo hello; sleep 1000", tenant_id=tenant["id"], gpu_count=1)
    api.wait_for(job, "running")
    wait_until("it says hello", lambda: api.output(job) == "hello\n")
    assert api.get(f"/jobs?tenant_id={tenant['id']}")["total"] == 1
    assert api.get("/cluster/status")["running_jobs"] == 1
    assert api.call("PUT", f"/api/v1/tenants/{tenant['id']}", {"max_gpus": 1})[0] == 200
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    # Another such caller is not told apart from this one: they share what they have.
    assert world.scheduler.api(anonymous=True).job(job)["state"] == "cancelled"
    assert api.call("DELETE", f"/api/v1/tenants/{tenant['id']}")[0] == 200


def test_how_far_before_others_a_caller_without_a_credential_goes(world, new_world):
    api = world.scheduler.api(anonymous=True)
    assert api.call("POST", "/api/v1/tenants", {"name": "lab", "priority_tier": "high"})[0] == 201
    status, answer, _ = api.call("POST", "/api/v1/tenants", {"name": "greedy", "priority_tier": "critical"})
    assert (status, answer["code"], answer["field"]) == (403, "permission_denied", "priority_tier"), answer
    strict = new_world(API_ANONYMOUS_PRIORITY_TIER="medium")
    strict.scheduler.start()
    user = ["--default-user", "nobody"] if IS_ROOT else []
    strict.add_agent("n1", allow_root_jobs=False, arguments=user).start()
    api = strict.scheduler.api(anonymous=True)
    for field, value in (("priority_tier", "high"), ("priority_tier", 501), ("fair_share_weight", 1.5)):
        status, answer, _ = api.call("POST", "/api/v1/tenants", {"name": "greedy", field: value})
        assert (status, answer["code"], answer["field"]) == (403, "permission_denied", field), answer
        assert "remove or lower it, or send the shared token" in answer["error"]
    tenant = api.post("/tenants", {"name": "humble", "priority_tier": "low", "fair_share_weight": 0.5}, 201)["id"]
    assert api.call("PUT", f"/api/v1/tenants/{tenant}", {"priority_tier": "critical"})[0] == 403
    status, answer, _ = api.call("POST", "/api/v1/jobs", {"script": "true", "priority": 501})
    assert (status, answer["field"]) == (403, "priority")
    job = api.submit("sleep 1000", priority=500, gpu_count=1_000)
    assert api.call("PATCH", f"/v1/jobs/{job}", {"priority": 501})[0] == 403
    api.cancel(job)
    trusted = strict.api()
    assert trusted.post("/tenants", {"name": "urgent", "priority_tier": "critical"}, 201)["priority_tier"] in (5000, "critical")
    assert trusted.wait_for(trusted.submit("true", priority=5_000))["state"] == "completed"


def test_a_wrong_token_is_refused_on_loopback_too(world):
    assert world.scheduler.api("0" * 64).call("GET", "/api/v1/jobs")[0] == 401


def test_no_caller_without_a_token_where_that_is_configured(new_world):
    world = new_world(API_TOKEN_REQUIRED="true")
    world.scheduler.start()
    assert world.scheduler.api(anonymous=True).call("GET", "/api/v1/jobs")[0] == 401
    assert world.api().call("GET", "/api/v1/jobs")[0] == 200
    assert world.cli("list").returncode == 0


# Who has the token by itself.


@NEEDS_ROOT
def test_gpu_cli_of_root_and_of_the_schedulers_user_has_the_token(users, new_world, monkeypatch):
    owner, stranger = users.add(), users.add()
    with public_programs(monkeypatch):
        world = new_world()
        world.folder.chmod(0o777)
        world.scheduler.prefix = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--init-groups"]
        world.scheduler.start()
        assert world.cli("tenant", "create", "--name", "of-root").returncode == 0
        assert cli_as(world, owner, "tenant", "create", "--name", "of-owner").returncode == 0
        assert cli_as(world, stranger, "tenant", "create", "--name", "of-stranger").returncode == 0
        made = {tenant["name"]: tenant["anonymous"] for tenant in world.api().get("/tenants")["tenants"]}
        assert made == {"default": False, "of-root": False, "of-owner": False, "of-stranger": True}


@NEEDS_ROOT
def test_gpu_cli_as_a_stranger_runs_a_job(rooted, users, monkeypatch):
    default, stranger = users.add(), users.add()
    world = rooted("--default-user", default)
    with public_programs(monkeypatch):
        done = cli_as(world, stranger, "submit", "--wait", "--logs", "--", "id", "-un")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, default), done
        path, content = root_secret(world)
        done = cli_as(world, stranger, "submit", "--user", "root", "--wait", "--logs", "--", "cat", str(path))
        assert done.returncode == 4 and content not in done.stdout, done
    with contextlib.suppress(OSError):
        path.unlink()
