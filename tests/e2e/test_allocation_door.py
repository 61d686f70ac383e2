"""The allocation door, by plain HTTP as its contract has it: GPUs held for somebody, told before their time is over,
and given to the next when it is."""

import http.client
import os
import re
import signal
import threading
import time
import uuid
from datetime import datetime

import pytest
from harness import IS_ROOT, PATIENCE_S, Api, wait_until
from ports import free_port

pytestmark = pytest.mark.shared_world
PREFIX = "/api/gpuscheduler/v1"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
FIELDS = {"id", "organization_id", "user_id", "instance_id", "instance_public_ip", "hostname", "status", "health_state",
          "cost_per_hour", "lease_expires_at", "last_seen", "created_at", "updated_at"}
NO_GPU = {"detail": "GPU not found."}
NOT_YOURS = {"detail": "You do not have permission to access this resource."}
QUOTA = {"detail": "GPU quota reached. Please deallocate an existing GPU before requesting a new one."}


class Holder:
    """Somebody with a key of an organization."""

    def __init__(self, world, tenant, role="user", port=None):
        self.world, self.port = world, port
        tenant = world.tenants.get(tenant, tenant)
        self.key_file = world.folder / f"{tenant}-{role}-{uuid.uuid4().hex[:6]}.key"
        world.cli("key", "create", self.key_file.stem, "--tenant", tenant, "--role", role, "--out", str(self.key_file),
                  expected=0)
        self.key = self.key_file.read_text().strip()

    def call(self, method, path, body=None, headers=None):
        api = Api(self.port or self.world.scheduler.ports["http"], token=self.key)
        return api.call(method, f"{PREFIX}{path}", body, headers)

    def ask(self, method, path, body=None, expected=200, headers=None):
        status, answer, _ = self.call(method, path, body, headers)
        assert status == expected, (method, path, status, answer)
        return answer

    def allocate(self, headers=None, **body):
        return self.ask("POST", "/allocate", body, 202, headers)["gpu_id"]

    def gpu(self, lease):
        return self.ask("GET", f"/gpu/{lease}")

    def wait_for(self, lease, *statuses):
        return wait_until(f"{lease} is {statuses}",
                          lambda: (lambda gpu: gpu if gpu["status"] in statuses else None)(self.gpu(lease)))

    def cli(self, *words, **options):
        return self.world.cli("--token-file", str(self.key_file), *words, **options)


def parsed(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200, DOORS_ALLOCATION_PORT=free_port())
        world.scheduler.start()
        # The holders of keys never run anything as root.
        world.add_agent("n1", allow_root_jobs=False, arguments=["--default-user", "nobody"] if IS_ROOT else []).start()
        return world

    return start


@pytest.fixture(name="world")
def world_fixture(world):
    """With organizations vision and speech of the test's own, by the names that they have here."""
    number = uuid.uuid4().hex[:6]
    world.tenants = {name: f"{name}-{number}" for name in ("vision", "speech")}
    world.cli("tenant", "create", "--name", world.tenants["vision"], "--max-gpus", "3", expected=0)
    world.cli("tenant", "create", "--name", world.tenants["speech"], expected=0)
    return world


@pytest.fixture(name="holder")
def holder_fixture(world):
    return Holder(world, "vision")


def limit(world, gpu, milliseconds):
    """A shorter lease than the door gives, by the native API."""
    status, answer, _ = world.api().call("PATCH", f"/v1/jobs/{gpu['job_id']}", {"max_runtime_ms": milliseconds})
    assert status == 200, (status, answer)


def test_a_gpu_from_its_allocation_to_its_release(world, holder):
    answer = holder.ask("POST", "/allocate", {"gpu_model": "A100", "count": 2, "min_memory_gb": 80, "lease_minutes": 30,
                                              "job_type": "notebook", "user_region": "eu-north"}, 202)
    assert set(answer) == {"task_id", "gpu_id", "message"}
    lease = answer["gpu_id"]
    assert uuid.UUID(lease).version == 8
    gpu = holder.wait_for(lease, "AVAILABLE")
    assert FIELDS <= set(gpu)
    assert gpu["hostname"] == gpu["instance_id"] == "n1" and gpu["health_state"] == "HEALTHY"
    assert gpu["job_id"] == answer["task_id"]
    assert TIME.fullmatch(gpu["lease_expires_at"]) and TIME.fullmatch(gpu["created_at"]) and gpu["last_seen"] is None
    assert len(gpu["gpu_uuids"]) == 2
    # What is told is what its holder finds inside.
    seen = holder.cli("exec", gpu["job_id"], "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES", expected=0).stdout
    assert seen.strip() == gpu["environment"]["CUDA_VISIBLE_DEVICES"] == ",".join(gpu["gpu_uuids"])
    assert [each["id"] for each in holder.ask("GET", "/gpus")] == [lease]
    assert holder.ask("GET", "/gpus?status=AVAILABLE&health=HEALTHY")[0]["id"] == lease
    assert holder.ask("GET", "/gpus?status=ERROR") == []
    beat = holder.ask("PUT", f"/gpu/{lease}/heartbeat", {"health": "ok", "utilization": 0.4})
    assert TIME.fullmatch(beat["last_seen"]) and beat["lease_expires_at"] == gpu["lease_expires_at"]
    ended = holder.ask("DELETE", f"/gpu/{lease}")
    assert (ended["id"], ended["status"]) == (lease, "DEPROVISIONED")
    world.wait_nothing_runs()
    assert holder.ask("DELETE", f"/gpus/gpu/{lease}/")["status"] == "DEPROVISIONED"
    assert world.api().job(gpu["job_id"])["state"] == "cancelled"


def test_a_busy_gpu_is_told_so(world, holder):
    lease = holder.allocate()
    gpu = holder.wait_for(lease, "AVAILABLE")
    index = int(gpu["gpus"][0].rpartition("-")[2])
    world.agents()[0].set_gpus({index: {"utilization_percent": 70, "memory_used_mb": 9000}})
    holder.wait_for(lease, "BUSY")
    world.agents()[0].set_gpus({})
    holder.wait_for(lease, "AVAILABLE")


def test_organizations_see_and_touch_only_their_own(world, holder):
    lease = holder.allocate()
    holder.wait_for(lease, "AVAILABLE")
    stranger, colleague, viewer = Holder(world, "speech"), Holder(world, "vision"), Holder(world, "vision", "viewer")
    job = world.api().submit(["sleep", "600"], tenant_id=world.tenants["vision"])
    number = int(job.removeprefix("job-"))
    no_lease = lease[:24] + f"{number:012x}"  # An id of the door for what is a job and no lease.
    for method, path in [("GET", ""), ("DELETE", ""), ("PUT", "/heartbeat"), ("POST", "/renew")]:
        body = {} if method in ("PUT", "POST") else None
        assert stranger.ask(method, f"/gpu/{lease}{path}", body, 403) == NOT_YOURS
        for unknown in (uuid.uuid4(), "nonsense", no_lease):
            assert stranger.ask(method, f"/gpu/{unknown}{path}", body, 404) == NO_GPU
    world.api().cancel(job)
    assert stranger.ask("GET", "/gpus") == []
    assert [gpu["id"] for gpu in viewer.ask("GET", "/gpus")] == [lease]
    for who in (colleague, viewer):
        refused = who.ask("DELETE", f"/gpu/{lease}", expected=403)
        assert refused == {"detail": "You do not have permission to access this resource."}
    assert holder.gpu(lease)["status"] == "AVAILABLE"


def test_without_a_key_nothing_is_told(world):
    for api in (Api(world.scheduler.ports["http"]), Api(int(world.scheduler.settings["DOORS_ALLOCATION_PORT"]))):
        for token in (None, "gsk_abcdefghijkl." + "0" * 64):
            api.token = token
            status, answer, headers = api.call("GET", f"{PREFIX}/gpus/")
            assert status == 401 and set(answer) == {"detail"} and headers["WWW-Authenticate"] == "Bearer"


def test_the_doors_own_port(world, holder):
    port = int(world.scheduler.settings["DOORS_ALLOCATION_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/health")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    there = Holder(world, "vision", port=port)
    lease = there.allocate()
    there.wait_for(lease, "AVAILABLE")
    assert holder.ask("GET", "/gpus/gpus")[0]["id"] == lease


def test_a_full_organization_is_refused_until_it_releases(world, holder):
    leases = [holder.allocate(count=2), holder.allocate()]
    assert holder.ask("POST", "/gpus/allocate", {}, 429) == QUOTA
    # Also while they wait for a place.
    other = Holder(world, "speech")
    holder.ask("DELETE", f"/gpu/{leases[0]}")
    blocker = other.allocate(count=3)
    other.wait_for(blocker, "AVAILABLE")
    waits = holder.allocate(count=2)
    assert holder.ask("POST", "/allocate", {}, 429) == QUOTA
    assert holder.gpu(waits)["status"] == "PROVISIONING"
    other.ask("DELETE", f"/gpu/{blocker}")
    holder.wait_for(waits, "AVAILABLE")


def test_the_quota_of_an_organization_above_counts_those_below(world):
    world.cli("tenant", "create", "--name", "institute", "--max-gpus", "2", expected=0)
    for name in ("optics", "robots"):
        world.cli("tenant", "create", "--name", name, "--parent", "institute", expected=0)
    optics, robots = Holder(world, "optics"), Holder(world, "robots")
    lease = optics.allocate(count=2)
    optics.wait_for(lease, "AVAILABLE")
    refused = robots.ask("POST", "/allocate", {}, 429)
    assert set(refused) == {"detail"} and refused["detail"].startswith(QUOTA["detail"] + " The quota is that of")
    assert "institute" not in refused["detail"] and robots.ask("GET", "/gpus") == []
    optics.ask("DELETE", f"/gpu/{lease}")
    robots.wait_for(robots.allocate(), "AVAILABLE")


def test_a_repeated_allocation_is_one(holder):
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first = holder.ask("POST", "/allocate", {"count": 3}, 202, key)
    assert holder.ask("POST", "/allocate", {"count": 3}, 202, key) == first
    holder.ask("POST", "/allocate", {"count": 2}, 409, key)
    assert len(holder.ask("GET", "/gpus")) == 1


@pytest.mark.parametrize("body, field", [({"count": 0}, "count"), ({"lease_minutes": 0}, "lease_minutes"),
                                         ({"lease_minutes": "long"}, "lease_minutes"), ({"gpu_model": 3}, "gpu_model")])
def test_a_wrong_request_is_told_in_a_list(holder, body, field):
    (problem,) = holder.ask("POST", "/allocate", body, 422)["detail"]
    assert problem["loc"] == ["body", field] and problem["msg"] and problem["type"] == "value_error"
    (problem,) = holder.ask("GET", "/gpus?limit=many", expected=422)["detail"]
    assert problem["loc"] == ["query", "limit"]
    (problem,) = holder.ask("POST", "/allocate", b"{", 422)["detail"]
    assert problem["loc"] == ["body"] and problem["type"] == "json_invalid"


class Watcher(threading.Thread):
    """Follows all changes, as any client of the native API does."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", world.scheduler.ports["http"], timeout=PATIENCE_S)
        self.connection.request("GET", "/v1/watch", headers={"Authorization": f"Bearer {world.scheduler.token()}"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        self.text = ""
        self.start()

    def run(self):
        try:
            while line := self.answer.fp.readline():
                self.text += line.decode()
        except (OSError, ValueError):
            pass  # The test is over.


@pytest.mark.own_world
def test_a_lease_is_told_its_end_and_reclaimed_for_the_next(world, holder):
    watcher = Watcher(world)
    lease = holder.allocate(count=3)
    gpu = holder.wait_for(lease, "AVAILABLE")
    next_one = Holder(world, "speech")
    waits = next_one.allocate(count=4)
    assert next_one.gpu(waits)["status"] == "PROVISIONING"
    assert "about to end" not in watcher.text
    limit(world, gpu, 8_000)
    told = wait_until("its holder is told", lambda: holder.gpu(lease) if "about to end" in holder.gpu(lease)["message"] else None)
    assert told["status"] == "AVAILABLE"
    wait_until("watchers are told", lambda: "about to end; renew it" in watcher.text)
    over = holder.wait_for(lease, "DEPROVISIONED")
    assert over["lease_expires_at"] and over["gpu_uuids"] == []
    next_one.wait_for(waits, "AVAILABLE")
    assert world.scheduler.wait_log('"kind":"ending"').count('"kind":"ending"') == 1
    holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 5}, 409)


def test_a_renewed_lease_goes_on(world, holder):
    lease = holder.allocate()
    gpu = holder.wait_for(lease, "AVAILABLE")
    limit(world, gpu, 20_000)
    before = holder.gpu(lease)["lease_expires_at"]
    wait_until("it is told", lambda: "about to end" in holder.gpu(lease)["message"])
    renewed = holder.ask("POST", f"/gpu/{lease}/renew/", {"lease_minutes": 10})
    assert renewed["lease_expires_at"] > before
    wait_until("it is not any more", lambda: "about to end" not in holder.gpu(lease)["message"])
    # A renewal makes no lease shorter.
    assert holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 1})["lease_expires_at"] == renewed["lease_expires_at"]
    # Nobody keeps what others wait for.
    other = Holder(world, "speech")
    other.allocate(count=4)
    refused = holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 60}, 409)
    assert "wait" in refused["detail"]
    assert holder.gpu(lease)["lease_expires_at"] == renewed["lease_expires_at"]


@pytest.mark.own_world
@pytest.mark.parametrize("killed", ["scheduler", "agent", "both"])
def test_a_lease_outlives_crashes_and_ends_in_time(world, holder, killed):
    lease = holder.allocate(count=3)
    before = holder.wait_for(lease, "AVAILABLE")
    other = Holder(world, "speech")
    waits = other.allocate(count=2)
    limit(world, before, 30_000)
    before = holder.gpu(lease)
    if killed != "agent":
        world.scheduler.kill()
    if killed != "scheduler":
        world.agents()[0].kill()
    if killed != "agent":
        world.scheduler.start()
    if killed != "scheduler":
        world.agents()[0].start()
    after = holder.wait_for(lease, "AVAILABLE")
    for name in ("id", "organization_id", "user_id", "lease_expires_at", "gpu_uuids"):
        assert after[name] == before[name], name
    assert other.gpu(waits)["status"] == "PROVISIONING"
    assert holder.ask("POST", "/allocate", {}, 429) == QUOTA
    limit(world, after, 1)
    holder.wait_for(lease, "DEPROVISIONED")
    other.wait_for(waits, "AVAILABLE")
    other.ask("DELETE", f"/gpu/{waits}")
    world.wait_nothing_runs()


@pytest.mark.own_world
def test_a_lease_of_a_lost_node_is_an_error_and_begins_nowhere_again(world, holder):
    lease = holder.allocate()
    holder.wait_for(lease, "AVAILABLE")
    world.agents()[0].kill()
    for pid in world.attempts_left():
        os.kill(pid, signal.SIGKILL)
    world.agents()[0].start()
    holder.wait_for(lease, "ERROR")


def test_organizations_and_keys_by_the_door(world):
    admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
    status, made, _ = admin.call("POST", f"{PREFIX}/organizations/", {"name": "robotics"})
    assert status == 201 and made["max_active_gpus"] == 5 and uuid.UUID(made["id"])
    status, refused, _ = admin.call("POST", f"{PREFIX}/organizations/", {"name": "robotics"})
    assert status == 409 and set(refused) == {"detail"}
    head = Holder(world, "robotics", "tenant_admin")
    made = head.ask("POST", "/api-keys/", {"expires_in_days": 7}, 201)
    assert made["key"].startswith("gsk_") and len(made["key_prefix"]) == 8 and TIME.fullmatch(made["expires_at"])
    status, gpus, _ = Api(world.scheduler.ports["http"], token=made["key"]).call("GET", f"{PREFIX}/gpus/")
    assert (status, gpus) == (200, [])
    assert all("key" not in key for key in head.ask("GET", "/api-keys/"))
    head.ask("DELETE", f"/api-keys/{made['id']}")
    status, _, _ = Api(world.scheduler.ports["http"], token=made["key"]).call("GET", f"{PREFIX}/gpus/")
    assert status == 401


def test_a_lease_that_waits_says_when_it_would_end(world, holder):
    first = holder.allocate(count=3, lease_minutes=30)
    holder.wait_for(first, "AVAILABLE")
    other = Holder(world, "speech")
    waits = other.allocate(count=4, lease_minutes=30)

    def expires():
        return parsed(other.gpu(waits)["lease_expires_at"]) - time.time()

    assert other.gpu(waits)["status"] == "PROVISIONING" and abs(expires() - 1800) < 60
    before = parsed(other.gpu(waits)["lease_expires_at"])
    wait_until("it moves", lambda: parsed(other.gpu(waits)["lease_expires_at"]) > before)
    assert TIME.fullmatch([gpu for gpu in other.ask("GET", "/gpus") if gpu["id"] == waits][0]["lease_expires_at"])
    holder.ask("DELETE", f"/gpu/{first}")
    begun = other.wait_for(waits, "AVAILABLE")["lease_expires_at"]
    assert other.gpu(waits)["lease_expires_at"] == begun


def test_a_request_that_can_never_run_blocks_no_renewal(world, holder):
    lease = holder.allocate(lease_minutes=5)
    before = holder.wait_for(lease, "AVAILABLE")["lease_expires_at"]
    other = Holder(world, "speech")
    other.allocate(gpu_model="H9000")
    other.allocate(count=64)
    assert holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 60})["lease_expires_at"] > before
    other.allocate(count=4)
    assert "wait" in holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 120}, 409)["detail"]


def test_a_cluster_admin_allocates_for_an_organization(world, holder):
    key = world.folder / "cluster.key"
    world.cli("key", "create", "cluster-" + uuid.uuid4().hex[:6], "--cluster", "--role", "admin", "--out", str(key), expected=0)
    admin = Api(world.scheduler.ports["http"], token=key.read_text().strip())
    lease = holder.allocate()
    organization = holder.gpu(lease)["organization_id"]
    status, answer, _ = admin.call("POST", f"{PREFIX}/allocate", {"organization_id": organization})
    assert status == 202, answer
    assert holder.gpu(answer["gpu_id"])["organization_id"] == organization
    # It renews and releases its own allocations, and nothing else.
    mine = answer["gpu_id"]
    holder.wait_for(mine, "AVAILABLE")
    assert admin.call("POST", f"{PREFIX}/gpu/{mine}/renew", {"lease_minutes": 90})[0] == 200
    assert admin.call("DELETE", f"{PREFIX}/gpu/{lease}")[:2] == (403, NOT_YOURS)
    # The quota is that organization's, and others have nothing to say there.
    assert admin.call("POST", f"{PREFIX}/allocate", {"organization_id": organization, "count": 2})[:2] == (429, QUOTA)
    assert admin.call("POST", f"{PREFIX}/allocate", {"organization_id": str(uuid.uuid4())})[0] == 404
    assert Holder(world, "speech").call("POST", "/allocate", {"organization_id": organization})[0] in (403, 404)
    assert admin.call("DELETE", f"{PREFIX}/gpu/{mine}")[0] == 200


@pytest.mark.parametrize("word, role", [("member", "user"), ("admin", "tenant_admin"), ("user", "user"),
                                        ("tenant_admin", "tenant_admin"), ("viewer", "viewer")])
def test_roles_have_the_names_of_this_door_too(world, word, role):
    admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
    status, user, _ = admin.call("POST", f"{PREFIX}/users", {"email": f"{word}-{uuid.uuid4().hex[:6]}@example.org", "role": word,
                                                            "organization_id": world.tenants["vision"]})
    assert (status, user["role"]) == (201, role), user
    assert admin.call("PUT", f"{PREFIX}/users/{user['id']}", {"role": "member"})[1]["role"] == "user"
    assert admin.call("PUT", f"{PREFIX}/users/{user['id']}", {"role": "operator"})[0] == 422


class Person:
    """A recorded user with the key that an administrator made for it."""

    def __init__(self, world, role="member"):
        self.world = world
        self.admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
        self.user = self.admin.call("POST", f"{PREFIX}/users", {
            "email": f"{uuid.uuid4().hex[:8]}@example.org", "role": role, "organization_id": world.tenants["vision"]})[1]
        self.first = self.admin.call("POST", f"{PREFIX}/api-keys", {"user_id": self.user["id"]})[1]

    def ask(self, method, path, body=None, expected=200, key=None, headers=None):
        api = Api(self.world.scheduler.ports["http"], token=(key or self.first)["key"])
        status, answer, _ = api.call(method, f"{PREFIX}{path}", body, headers)
        assert status == expected, (method, path, status, answer)
        return answer


@pytest.mark.parametrize("role", ["member", "viewer"])
def test_a_user_makes_lists_and_revokes_its_own_keys(world, role):
    person, other = Person(world, role), Person(world)
    made = person.ask("POST", "/api-keys/", {"expires_in_days": 3}, 201)
    assert made["user_id"] == person.user["id"] and made["organization_id"] == person.user["organization_id"]
    assert made["key"].startswith(made["key_prefix"]) and len(made["key_prefix"]) == 8
    own = {person.first["id"], made["id"]}
    for key in (person.first, made):
        listed = person.ask("GET", "/api-keys/", key=key)
        assert {one["id"] for one in listed} == own and all("key" not in one for one in listed)
    assert {one["id"] for one in other.ask("GET", "/api-keys")} == {other.first["id"]}
    assert person.admin.call("DELETE", f"{PREFIX}/api-keys/{uuid.uuid4()}")[0] == 404
    other.ask("DELETE", f"/api-keys/{made['id']}", expected=404)
    other.ask("POST", "/api-keys", {"user_id": person.user["id"]}, 404)
    # It is the same caller: what one key holds the other may release; and it has no more rights.
    if role == "member":
        lease = person.ask("POST", "/allocate", {}, 202, key=made)["gpu_id"]
        assert person.ask("GET", f"/gpu/{lease}")["user_id"] == person.user["id"]
        person.ask("DELETE", f"/gpu/{lease}")
    person.ask("GET", "/users", expected=403, key=made)
    third = person.ask("POST", "/api-keys", {}, 201, key=made)
    person.ask("DELETE", f"/api-keys/{person.first['id']}", key=made)
    person.ask("GET", "/gpus", expected=401)
    person.ask("GET", "/gpus", key=third)
    # With the user all of them end at once, also over a crash.
    person.admin.call("PUT", f"{PREFIX}/users/{person.user['id']}", {"is_active": False})
    for key in (made, third):
        person.ask("GET", "/gpus", expected=401, key=key)


@pytest.mark.own_world
def test_own_keys_follow_their_user_over_a_crash(world):
    person = Person(world)
    made = person.ask("POST", "/api-keys", {}, 201)
    world.scheduler.kill()
    world.scheduler.start()
    person.ask("POST", "/allocate", {}, 202, key=made)
    person.admin.call("PUT", f"{PREFIX}/users/{person.user['id']}", {"role": "viewer"})
    person.ask("POST", "/allocate", {}, 403, key=made)
    person.admin.call("PUT", f"{PREFIX}/users/{person.user['id']}", {"is_active": False})
    world.scheduler.kill()
    world.scheduler.start()
    person.ask("GET", "/gpus", expected=401, key=made)
    for _ in range(2):
        person.admin.call("PUT", f"{PREFIX}/users/{person.user['id']}", {"is_active": True})
    keys = [key for key in person.admin.call("GET", f"{PREFIX}/api-keys")[1] if key["user_id"] == person.user["id"]]
    assert {key["id"] for key in keys} <= {made["id"]}, "the first one was revoked for good"


def test_every_post_and_delete_may_be_repeated(world, holder):
    def repeated(api, method, path, body, expected):
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        first = api.call(method, f"{PREFIX}{path}", body, headers)[:2]
        assert first[0] == expected, first
        assert api.call(method, f"{PREFIX}{path}/", body, headers)[:2] == first
        assert api.call(method, f"{PREFIX}{path}", body, {"Idempotency-Key": "x" * 200})[0] == 422
        if body is not None:
            assert api.call(method, f"{PREFIX}{path}", {**body, "more": 1}, headers)[0] == 409
        return first[1]

    admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
    theirs = Api(world.scheduler.ports["http"], token=holder.key)
    number = uuid.uuid4().hex[:6]
    user = repeated(admin, "POST", "/users", {"email": f"{number}@example.org", "organization_id": world.tenants["vision"]}, 201)
    key = repeated(admin, "POST", "/api-keys", {"user_id": user["id"]}, 201)
    assert admin.call("DELETE", f"{PREFIX}/api-keys/{key['id']}", None, {"Idempotency-Key": "x" * 200})[0] == 422
    repeated(admin, "DELETE", f"/api-keys/{key['id']}", None, 200)
    lease = holder.allocate()
    holder.wait_for(lease, "AVAILABLE")
    repeated(theirs, "POST", f"/gpu/{lease}/renew", {"lease_minutes": 70}, 200)
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    for _ in range(2):
        assert holder.ask("DELETE", f"/gpu/{lease}", headers=headers)["status"] == "DEPROVISIONED"
    # Another caller's key is another one.
    stranger = Holder(world, "speech", "tenant_admin")
    assert stranger.ask("POST", "/api-keys", {}, 201, headers)["organization_id"] != user["organization_id"]


@pytest.mark.own_world
def test_a_repetition_after_a_crash_does_nothing_twice(world, holder):
    admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
    headers = {kind: {"Idempotency-Key": str(uuid.uuid4())} for kind in ("user", "key", "renewal", "second")}
    user = {"email": f"{uuid.uuid4().hex[:6]}@example.org", "organization_id": world.tenants["vision"]}
    assert admin.call("POST", f"{PREFIX}/users", user, headers["user"])[0] == 201
    key = admin.call("POST", f"{PREFIX}/api-keys", {}, headers["key"])[1]
    lease = holder.allocate(lease_minutes=30)
    holder.wait_for(lease, "AVAILABLE")
    told = parsed(holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 50}, 200,
                             headers["renewal"])["lease_expires_at"])
    for _ in range(2):
        world.scheduler.restart()
        time.sleep(1.5)
        again = holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 50}, 200, headers["renewal"])
        assert abs(parsed(again["lease_expires_at"]) - told) < 1
        assert admin.call("POST", f"{PREFIX}/users", user, headers["user"])[0] == 409
        users = admin.call("GET", f"{PREFIX}/users")[1]
        assert [one["email"] for one in users].count(user["email"]) == 1
        status, refused, _ = admin.call("POST", f"{PREFIX}/api-keys", {}, headers["key"])
        assert status == 409 and "its secret was in that answer only" in str(refused), refused
        keys = admin.call("GET", f"{PREFIX}/api-keys")[1]
        assert [one["id"] for one in keys].count(key["id"]) == 1
    # Another request, and one without a key, count from now.
    later = holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 50}, 200, headers["second"])
    assert parsed(later["lease_expires_at"]) > told + 1
    holder.ask("POST", f"/gpu/{lease}/renew", {"lease_minutes": 60}, 200)
    assert parsed(holder.gpu(lease)["lease_expires_at"]) > told + 300
    # No file has the secret.
    secret = key["key"].encode()
    files = [path for path in world.scheduler.data_dir.rglob("*") if path.is_file()]
    assert files and not [path for path in files if secret in path.read_bytes()]


def test_the_document_is_at_the_doors_own_port(world):
    api = Api(int(world.scheduler.settings["DOORS_ALLOCATION_PORT"]))
    status, page, _ = api.call("GET", "/docs")
    assert status == 200 and b"allocate" in page
    status, document, _ = api.call("GET", "/openapi.json")
    assert status == 200 and "/api/gpuscheduler/v1/allocate" in document["paths"]


@pytest.mark.own_world
def test_a_users_key_ends_with_the_user_over_a_crash(world):
    admin = Api(world.scheduler.ports["http"], token=world.scheduler.token())
    status, user, _ = admin.call("POST", f"{PREFIX}/users/", {"email": "bo@example.org", "password": "correct horse",
                                                              "organization_id": world.tenants["vision"]})
    assert status == 201 and user["role"] == "user" and user["is_active"] and "password" not in user
    status, key, _ = admin.call("POST", f"{PREFIX}/api-keys/", {"user_id": user["id"]})
    assert status == 201 and key["user_id"] == user["id"] and key["organization_id"] == user["organization_id"]
    theirs = Api(world.scheduler.ports["http"], token=key["key"])
    status, made, _ = theirs.call("POST", f"{PREFIX}/allocate", {})
    assert status == 202, made
    status, lease, _ = theirs.call("GET", f"{PREFIX}/gpu/{made['gpu_id']}")
    assert (status, lease["user_id"]) == (200, user["id"])
    world.scheduler.kill()
    world.scheduler.start()
    assert theirs.call("GET", f"{PREFIX}/gpus")[0] == 200
    status, gone, _ = admin.call("PUT", f"{PREFIX}/users/{user['id']}", {"is_active": False})
    assert status == 200 and not gone["is_active"] and gone["created_at"] == user["created_at"]
    assert theirs.call("GET", f"{PREFIX}/gpus")[0] == 401
    world.scheduler.kill()
    world.scheduler.start()
    assert theirs.call("GET", f"{PREFIX}/gpus")[0] == 401
    status, users, _ = admin.call("GET", f"{PREFIX}/users/")
    assert users == [gone]
    assert "correct horse" not in world.scheduler.log_text() and "argon2id" not in world.scheduler.log_text()


# gpu-cli.


def test_a_command_runs_in_a_lease(holder):
    lease = holder.allocate(count=2)
    gpu = holder.wait_for(lease, "AVAILABLE")
    done = holder.cli("run", "--in-lease", gpu["job_id"], "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; exit 7", expected=7)
    assert done.stdout.strip() == ",".join(gpu["gpu_uuids"])
    assert holder.gpu(lease)["status"] == "AVAILABLE"
    stranger = Holder(holder.world, "speech")
    assert "no such job" in stranger.cli("run", "--in-lease", gpu["job_id"], "--", "true").stderr
    # By its id at this door, too; that of another's is as if there were none.
    holder.cli("run", "--in-lease", gpu["id"].upper(), "--", "sh", "-c", "exit 7", expected=7)
    refused = stranger.cli("run", "--in-lease", gpu["id"], "--", "true", expected=4).stderr
    assert f"no such lease: {gpu['id']}; " in refused and "(lease_not_found)" in refused
    assert gpu["job_id"] in holder.cli("list", "--label", "gpusched.lease", "-o", "name", expected=0).stdout


def test_a_shell_of_its_own_ends_with_its_lease(world, screen):
    shell = screen("shell", "--gpus", "2", "--time", "1h")
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    (job,) = [job for job in world.api().jobs() if job["state"] == "running"]
    assert job["gpu_count"] == 2 and job["labels"] == {"gpusched.lease": "1"}
    shell.type("exit 5\r")
    assert shell.wait_end() == 5
    world.api().wait_for(job["id"])
    # A closed terminal gives the GPUs back, too.
    lost = screen("shell", "--gpus", "4")
    lost.type("PS1='rea''dy> '\r")
    lost.wait_for("ready> ")
    lost.process.send_signal(signal.SIGHUP)
    assert lost.wait_end() == 128 + signal.SIGHUP
    world.wait_nothing_runs()
    assert world.cli("shell", expected=2).stderr and world.cli("shell", job["id"], "--gpus", "1", expected=2).stderr


def test_a_lease_takes_no_core_from_the_jobs(world):
    holder = Holder(world, "default")
    lease = holder.allocate()
    holder.wait_for(lease, "AVAILABLE", "BUSY")
    jobs = [job for job in world.api().jobs() if job["name"] == "gpu-lease" and job["state"] == "running"]
    assert jobs and all(job["cpu_cores"] == 0 for job in jobs), jobs
    holder.ask("DELETE", f"/gpu/{lease}")
