"""The tasks of agents over gRPC, by a client that is generated from the contract as clients have it."""

import concurrent.futures
import hashlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from harness import PATIENCE_S, ROOT, program, wait_until
from ports import free_port

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

from agent_client import (  # noqa: E402
    CANCELLED, COMPLETED, DIFFUSION, FAILED, LLM, OTHER, PENDING, REJECTED, RUNNING, UNSPECIFIED)


@pytest.fixture(name="make")
def make_fixture(new_world):
    """A scheduler with these settings; without a node, so that its tasks wait."""

    def make(**settings):
        world = new_world(**{"TASKS_OTHER_COMMAND": "cat", "TASKS_LLM_COMMAND": "cat", **settings})
        world.scheduler.start()
        return world

    return make


WORKER = 'sha256sum; echo "$TASK_ID $TASK_TYPE $TASK_USER_ID [${TASK_PAYLOAD_BASE64-not here}]" # the end'


def test_a_task_runs_with_its_payload_on_standard_input(make, connect):
    world = make(TASKS_LLM_COMMAND=WORKER)
    world.add_agent("n1").start()
    client = connect(world)
    client.listen()
    payload = bytes(range(256)) * 256  # The largest.
    job = client.submit("summary-1", user_id="agent-7", task_type=LLM, payload=payload, estimated_runtime_ms=5)
    done = client.wait_for("summary-1", COMPLETED)
    assert 0 < done.created_at <= done.started_at <= done.completed_at
    assert done.message.startswith(f"{job}: ")
    expected = f"{hashlib.sha256(payload).hexdigest()}  -\nsummary-1 llm agent-7 [not here]\n"
    assert world.cli("logs", job, expected=0).stdout == expected
    shown = str(world.api().call("GET", f"/v1/jobs/{job}")[1])
    assert "summary-1" in shown and "AAECAwQF" not in shown
    wait_until("all events came", lambda: client.told_of("summary-1")[-1:] == [COMPLETED])
    assert client.told_of("summary-1") == [PENDING, RUNNING, COMPLETED]
    assert all(event.timestamp > 0 and event.message.startswith(job) for event in client.events)


def test_a_persistent_worker_gets_the_tasks_of_its_type(make, connect):
    world = make(TASKS_OTHER_COMMAND=f"exec {sys.executable} {ROOT}/examples/worker.py",
                 TASKS_OTHER_WORKER="persistent", TASKS_WORKER_IDLE_SECONDS=2)
    world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB").start()
    client = connect(world)
    payload = bytes(range(256)) * 256  # The largest.
    for number in range(5):
        job = client.submit(f"t-{number}", user_id=f"agent-{number}", payload=payload)
        client.wait_for(f"t-{number}", COMPLETED)
        assert world.cli("logs", job, expected=0).stdout == f"65536 bytes for agent-{number}\n"
    started = [line for line in world.agents()[0].log_text().splitlines() if '"worker_starting"' in line]
    assert len(started) == 1


LARGEST = 4 * 1024 * 1024
COUNT = 'printf "%s " "$TASK_ID"; sha256sum; echo "[${TASK_PAYLOAD_BASE64-}${TASK_PAYLOAD_BYTES-}]"'


def payloads_on(world):
    return os.listdir(world.agents()[0].data_dir / "payloads")


def spec_bytes(world):
    with urllib.request.urlopen(f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics",
                                timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("gpu_scheduler_spec_bytes ")).split()[1])


@pytest.mark.parametrize("size", [65_537, LARGEST])
def test_a_large_payload_is_the_commands_standard_input(make, connect, size):
    world = make(TASKS_OTHER_COMMAND=COUNT, TASKS_LLM_COMMAND="head -c 3 > /dev/null; wc -c < /dev/stdin")
    world.add_agent("n1").start()
    client = connect(world)
    payload = (bytes(range(256)) * (size // 256 + 1))[-size:]
    job = client.submit("large", payload=payload)
    client.wait_for("large", COMPLETED)
    expected = f"large {hashlib.sha256(payload).hexdigest()}  -\n[]\n"
    assert world.cli("logs", job, expected=0).stdout == expected
    # By name as well, as the user that it runs as.
    job = client.submit("named", task_type=LLM, payload=payload)
    client.wait_for("named", COMPLETED)
    assert world.cli("logs", job, expected=0).stdout == f"{size}\n"
    wait_until("the node keeps none", lambda: not payloads_on(world))


def test_a_larger_payload_is_refused_by_its_size(make, connect):
    client = connect(make())
    assert client.refused("t", payload=bytes(LARGEST + 1)) == (
        "payload has 4194305 bytes, and a task carries at most 4194304; put larger data where the worker can read it, "
        "and send its place")


@pytest.mark.parametrize("restored", [False, True])
def test_a_large_payload_outlives_crashes_and_is_nobodys_to_see(make, connect, restored):
    world = make(TASKS_OTHER_COMMAND=COUNT)
    payload = bytes(reversed(range(256))) * (LARGEST // 256)
    job = connect(world).submit("kept", payload=payload)
    for _ in range(3):  # At the end from a snapshot.
        world.scheduler.restart()
    client = connect(world)
    assert client.submit("kept", payload=payload) == job
    assert client.refused("kept", payload=payload[:-1] + b"x") == OTHER_CONTENT
    for path in (f"/v1/jobs/{job}", f"/api/v1/jobs/{job}", "/v1/jobs"):
        status, answer, _ = world.api().call("GET", path)
        assert status == 200 and len(str(answer)) < 20_000, path
    assert len(world.cli("get", job, "--json", expected=0).stdout) < 20_000
    copy, elsewhere = world.folder / "copy.tar", world.folder / "elsewhere"
    for words in (("backup", copy, "--data-dir", world.scheduler.data_dir), ("restore", copy, elsewhere)):
        done = subprocess.run([program("gpu-scheduler"), *map(str, words)], capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, env=world.environment())
        assert done.returncode == 0, done.stderr
    if restored:
        world.scheduler.kill()
        world.scheduler.data_dir = elsewhere
        world.scheduler.start()
        client = connect(world)
    world.add_agent("n1").start()
    client.wait_for("kept", COMPLETED)
    expected = f"kept {hashlib.sha256(payload).hexdigest()}  -\n[]\n"
    assert world.cli("logs", job, expected=0).stdout == expected
    # An ended task takes no room, and is still told from another task of its name.
    assert spec_bytes(world) < 20_000
    assert client.refused("kept", payload=payload[:-1] + b"x") == OTHER_CONTENT
    assert client.submit("kept", payload=payload) == job
    world.scheduler.restart()
    assert spec_bytes(world) < 20_000


def test_payloads_take_a_holders_share_and_no_more(make, connect):
    world = make(SCHEDULER_SPECS_MB_MAX=64)
    client = connect(world)
    accepted = 0
    for number in range(16):
        answer = client.SubmitTask(task_id=f"t-{number}", payload=bytes(LARGEST))
        if not answer.accepted:
            break
        accepted += 1
    assert 6 <= accepted <= 8  # Half of it: as much as is left free.
    assert answer.status == REJECTED
    assert "of the 64 MB that scheduler.specs_mb_max allows" in answer.message, answer.message
    # Somebody else finds room, and so does the holder when its tasks have ended.
    world.cli("tenant", "create", "--name", "other", expected=0)
    other = connect(world, world.cli("key", "create", "k", "--tenant", "other", expected=0).stdout.strip())
    other.submit("mine", payload=bytes(LARGEST))
    for number in range(accepted):
        assert client.CancelTask(task_id=f"t-{number}").success
    client.submit("again", payload=bytes(LARGEST))


def test_a_persistent_worker_gets_large_payloads_too(make, connect):
    world = make(TASKS_OTHER_COMMAND=f"exec {sys.executable} {ROOT}/examples/worker.py",
                 TASKS_OTHER_WORKER="persistent", TASKS_OTHER_WORKER_TASKS=4, TASKS_WORKER_IDLE_SECONDS=30)
    world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB").start()
    client = connect(world)
    sizes = [LARGEST, 5, 65_536, 65_537] + [LARGEST] * 24  # Together more than an agent's orders may wait with.
    jobs = [client.submit(f"t-{number}", user_id=f"u-{number}", payload=bytes(size))
            for number, size in enumerate(sizes)]
    for number, (job, size) in enumerate(zip(jobs, sizes)):
        client.wait_for(f"t-{number}", COMPLETED)
        assert world.cli("logs", job, expected=0).stdout == f"{size} bytes for u-{number}\n"
    started = [line for line in world.agents()[0].log_text().splitlines() if '"worker_starting"' in line]
    assert len(started) < 8
    wait_until("the node keeps none", lambda: not payloads_on(world))


def test_who_used_less_goes_first(make, connect):
    world = make(TASKS_OTHER_COMMAND="sh")  # Tasks are scripts; by compute one is on the GPU at a time.
    world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB").start()
    client = connect(world)
    client.listen()
    client.submit("heavy-1", user_id="heavy", gpu_compute_required=60)
    client.wait_for("heavy-1", COMPLETED)
    client.submit("before", user_id="somebody", gpu_compute_required=60, payload=b"sleep 3")
    client.wait_for("before", RUNNING)
    for task in ("heavy-2", "light-1"):
        client.submit(task, user_id=task.split("-")[0], gpu_compute_required=60)
    client.wait_for("heavy-2", COMPLETED)
    client.wait_for("light-1", COMPLETED)
    wait_until("all events came", lambda: client.told_of("heavy-2")[-1:] == [COMPLETED])
    order = [event.task_id for event in client.events if event.status == RUNNING]
    assert order == ["heavy-1", "before", "light-1", "heavy-2"]


def test_a_failed_task_says_why(make, connect):
    world = make(TASKS_OTHER_COMMAND="cat; exit 3")
    world.add_agent("n1").start()
    client = connect(world)
    job = client.submit("broken", payload=b"oh")
    assert "3" in client.wait_for("broken", FAILED).message
    assert world.cli("logs", job, expected=0).stdout == "oh"


def test_a_task_is_a_job_at_every_door(make, connect):
    world = make(TASKS_OTHER_COMMAND="sleep 1000")
    world.add_agent("n1").start()
    client = connect(world)
    client.listen()
    jobs = {task: client.submit(task, task_type=OTHER, gpu_memory_required=2_000) for task in ("a", "b", "c")}
    for task in jobs:
        client.wait_for(task, RUNNING)
    listed = world.cli("list", "--state", "running", expected=0).stdout
    assert all(job in listed for job in jobs.values())
    # Small tasks share a GPU.
    gpus = client.GetGPUStatus().gpus
    assert sorted(task for gpu in gpus for task in gpu.running_tasks) == ["a", "b", "c"]
    assert max(len(gpu.running_tasks) for gpu in gpus) == 3
    status, shown, _ = world.api().call("GET", f"/api/v1/jobs/{jobs['a']}")
    assert (status, shown["state"]) == (200, "running")
    world.cli("cancel", jobs["a"], expected=0)
    world.api().cancel(jobs["b"])
    answer = client.CancelTask(task_id="c")
    assert answer.success, answer.message
    for task, job in jobs.items():
        assert client.wait_for(task, CANCELLED).completed_at > 0
        world.api().wait_for(job, "cancelled")
    wait_until("all events came", lambda: all(client.told_of(task)[-1:] == [CANCELLED] for task in jobs))
    assert all(client.told_of(task) == [PENDING, RUNNING, CANCELLED] for task in jobs)
    again = client.CancelTask(task_id="c")
    assert not again.success and again.message
    world.wait_nothing_runs()


def test_refusals_are_answers_and_read_back(make, connect):
    world = make(TASKS_QUEUE_SIZE=3, TASKS_TOKENS_BURST=8, TASKS_TOKENS_PER_SECOND=0.001)
    client = connect(world)
    unknown = client.GetTaskStatus(task_id="nowhere")
    assert (unknown.task_id, unknown.status, unknown.message) == ("nowhere", FAILED, "Task not found")
    answer = client.CancelTask(task_id="nowhere")
    assert (answer.success, answer.message) == (False, "task not found")
    assert client.refused("d", task_type=DIFFUSION) == (
        "no worker is configured for tasks of type diffusion; set tasks.diffusion_command or "
        "tasks.diffusion_endpoint in the scheduler's configuration")
    client.submit("one", user_id="u", task_type=LLM)
    client.submit("two", user_id="u", task_type=UNSPECIFIED)
    assert client.refused("three", user_id="u", task_type=LLM) == "insufficient token"
    back = client.GetTaskStatus(task_id="three")
    assert (back.status, back.message, back.started_at) == (REJECTED, "insufficient token", 0)
    assert back.created_at > 0
    client.submit("three", user_id="another")
    # The queue is looked at before the tokens.
    assert client.refused("four", user_id="u", task_type=LLM) == "queue is full"
    assert client.GetTaskStatus(task_id="four").status == REJECTED
    assert client.GetTaskStatus(task_id="three").status == PENDING
    assert world.api().call("GET", "/api/v1/jobs")[1]["total"] == 3


def test_the_daily_limit_counts_as_tokens(make, connect):
    client = connect(make(TASKS_TOKENS_DAILY=6))
    client.submit("one", user_id="u", task_type=LLM)
    client.submit("two", user_id="u")
    assert client.refused("three", user_id="u") == "insufficient token"
    client.submit("three", user_id="another")


def test_an_id_is_its_owners_own(make, connect):
    world = make()
    secrets = [world.cli("key", "create", name, "--tenant", "default", "--role", "user", expected=0).stdout.strip()
               for name in ("ana", "bob")]

    def clients():
        nobody = connect(world)
        nobody.metadata = ()
        return [nobody] + [connect(world, secret) for secret in secrets]

    def submit_all():
        return [client.submit("t-1", payload=payload) for client, payload in zip(clients(), (b"n", b"a", b"b"))]

    jobs = submit_all()
    assert len(set(jobs)) == 3
    for _ in range(2):
        assert submit_all() == jobs
        assert [client.GetTaskStatus(task_id="t-1").message.split(":")[0] for client in clients()] == jobs
        world.scheduler.restart()
    nobody, ana, bob = clients()
    # A refusal is one's own as well, and not hidden by another's task.
    ana.submit("t-2")
    assert "no worker" in bob.refused("t-2", task_type=DIFFUSION)
    assert bob.GetTaskStatus(task_id="t-2").status == REJECTED
    assert ana.GetTaskStatus(task_id="t-2").status == PENDING
    # Cancelling reaches one's own, and of others' only what any door lets one end.
    assert bob.CancelTask(task_id="t-1").success and not bob.CancelTask(task_id="t-1").success
    ana.submit("t-3")
    for client in (nobody, bob):
        with pytest.raises(grpc.RpcError) as refused:
            client.CancelTask(task_id="t-3")
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert ana.GetTaskStatus(task_id="t-3").status == PENDING
    states = [client.GetTaskStatus(task_id="t-1").status for client in (nobody, ana, bob)]
    assert states == [PENDING, PENDING, CANCELLED]
    admin = connect(world)
    assert admin.GetTaskStatus(task_id="t-3").message.startswith("job-")
    assert admin.submit("t-3") not in jobs


@pytest.mark.parametrize("label", ["agent_task_id", "agent_user_id", "agent_task_load", "agent_task_memory",
                                   "gpusched.lease-request"])
def test_labels_of_tasks_and_leases_are_refused_at_other_doors(make, connect, label):
    world = make()
    labels = {label: "t-1"}
    spec = {"spec": {"command": ["true"], "labels": labels}}
    for api in (world.api(), world.scheduler.api(anonymous=True)):
        for path, body in (("/api/v1/jobs", {"command": ["true"], "labels": labels}), ("/v1/jobs", spec),
                           ("/v1/jobs", {"jobs": [{"spec": {"command": ["true"]}}, spec]}),
                           ("/v1/jobs:plan", spec), ("/v1/services", {"name": "web", "job": spec})):
            status, answer, _ = api.call("POST", path, body)
            assert (status, answer["code"], answer["field"]) == (422, "unprocessable", "labels"), (path, answer)
            assert label in answer["error"] and "remove it" in answer["error"]
    done = world.cli("submit", "--label", f"{label}=t-1", "--", "true")
    assert done.returncode != 0 and label in done.stderr
    client = connect(world)
    assert client.GetTaskStatus(task_id="t-1").message == "Task not found"
    assert world.api().submit(["echo", label], labels={"team": label})
    assert world.api().submit(["true"], labels={f"{label}-2": "mine"})


def test_the_same_id_is_one_job_over_a_crash(make, connect):
    world = make()
    client = connect(world)
    job = client.submit("once", payload=b"x")
    assert client.submit("once", payload=b"x", estimated_runtime_ms=5) == job
    world.scheduler.restart()
    client = connect(world)
    assert client.submit("once", payload=b"x") == job
    assert client.GetTaskStatus(task_id="once").status == PENDING
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(client.submit, ["many"] * 8))) == 1
    assert world.api().call("GET", "/api/v1/jobs")[1]["total"] == 2
    world.add_agent("n1").start()
    client.wait_for("once", COMPLETED)
    assert world.cli("logs", job, expected=0).stdout == "x"
    assert client.SubmitTask(task_id="once", payload=b"x").status == COMPLETED


OTHER_CONTENT = "task already exists with other content"


def test_an_id_with_other_content_is_refused(make, connect):
    world = make()
    content = {"user_id": "u", "task_type": OTHER, "gpu_memory_required": 100, "payload": b"x"}
    others = [{**content, **change} for change in (
        {"user_id": "v"}, {"user_id": ""}, {"task_type": LLM}, {"task_type": UNSPECIFIED}, {"task_type": DIFFUSION},
        {"gpu_memory_required": 200}, {"gpu_memory_required": 0}, {"gpu_compute_required": 1}, {"payload": b"y"},
        {"payload": b""}, {"payload": b"x" * 100_000})]
    job = connect(world).submit("t-1", **content)
    for _ in range(3):  # At the end from a snapshot and what the journal has behind it.
        client = connect(world)
        assert {client.refused("t-1", **other) for other in others} == {OTHER_CONTENT}
        assert client.submit("t-1", **content) == job
        world.scheduler.restart()
    client = connect(world)
    assert client.GetTaskStatus(task_id="t-1").status == PENDING
    # The digest is for the scheduler alone: whoever sees the job could try out payloads.
    shown = world.api().call("GET", f"/v1/jobs/{job}")[1]
    assert "content" not in str(shown["job"]["spec"] if "job" in shown else shown)
    world.add_agent("n1").start()
    client.wait_for("t-1", COMPLETED)
    assert world.cli("logs", job, expected=0).stdout == "x"
    assert client.refused("t-1", **others[0]) == OTHER_CONTENT
    assert client.SubmitTask(task_id="t-1", **content).status == COMPLETED


def test_of_contents_at_the_same_time_one_is_the_task(make, connect):
    world = make()
    client = connect(world)
    payloads = [b"a", b"b"] * 8
    for task in (f"t-{number}" for number in range(20)):
        with concurrent.futures.ThreadPoolExecutor(len(payloads)) as pool:
            answers = list(pool.map(lambda payload, task=task: client.SubmitTask(task_id=task, payload=payload),
                                    payloads))
        accepted = {payload for payload, answer in zip(payloads, answers) if answer.accepted}
        assert len(accepted) == 1, answers
        for payload, answer in zip(payloads, answers):
            assert answer.accepted == (payload in accepted)
            assert answer.accepted or (answer.status, answer.message) == (REJECTED, OTHER_CONTENT)
    assert world.api().call("GET", "/api/v1/jobs")[1]["total"] == 20


def test_tenants_do_not_see_each_others_tasks(make, connect):
    world = make()
    clients = {}
    for name in ("vision", "speech"):
        world.cli("tenant", "create", "--name", name, expected=0)
        key = world.cli("key", "create", f"agents-of-{name}", "--tenant", name, expected=0).stdout.strip()
        clients[name] = connect(world, secret=key)
        clients[name].listen()
    vision, speech = clients["vision"], clients["speech"]
    job = vision.submit("t")
    assert vision.refused("d", task_type=DIFFUSION)
    for task in ("t", "d"):
        assert speech.GetTaskStatus(task_id=task).message == "Task not found"
        assert speech.CancelTask(task_id=task).message == "task not found"
    assert speech.submit("t") != job
    assert speech.CancelTask(task_id="t").success
    assert vision.GetTaskStatus(task_id="t").status == PENDING
    assert vision.CancelTask(task_id="t").success
    wait_until("both were told", lambda: all(c.told_of("t")[-1:] == [CANCELLED] for c in clients.values()))
    assert all(client.told_of("t") == [PENDING, CANCELLED] for client in clients.values())


def test_who_has_no_credential_is_told_by_the_status_of_the_call(make, connect):
    client = connect(make(API_TOKEN_REQUIRED="true"), secret="gsk_wrong")
    with pytest.raises(grpc.RpcError) as caught:
        client.SubmitTask(task_id="t")
    assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_memory_that_is_reserved_is_not_free(make, connect):
    world = make(TASKS_OTHER_COMMAND="sleep 1000")
    world.add_agent("n1").start()
    world.api().wait_node("n1")
    client = connect(world)
    assert all(gpu.memory_free == gpu.memory_total for gpu in client.GetGPUStatus().gpus)
    for number in range(2):
        assert client.SubmitTask(task_id=f"t-{number}", task_type=OTHER, gpu_memory_required=3000).accepted
        client.wait_for(f"t-{number}", RUNNING)
    gpus = client.GetGPUStatus().gpus
    assert sum(gpu.memory_used for gpu in gpus) == 6000
    assert all(gpu.memory_used + gpu.memory_free == gpu.memory_total for gpu in gpus)
    assert sum(gpu["memory_used_mb"] for gpu in world.api().call("GET", "/gpu/metrics")[1]) == 6000
    for number in range(2):
        client.CancelTask(task_id=f"t-{number}")


def test_gpus_have_numbers_that_stay(make, connect):
    world = make(TASKS_GRPC_PORT=free_port())
    for node in ("n1", "n2"):
        world.add_agent(node).start()
    ports = world.scheduler.served_ports()
    client = connect(world, port=ports["tasks_grpc"])  # The same service on the port beside.

    def gpus():
        answer = client.GetGPUStatus()
        assert answer.timestamp > 0
        return {gpu.gpu_id: gpu.name for gpu in answer.gpus}

    wait_until("both nodes are told", lambda: len(gpus()) == 8)
    before = gpus()
    assert all("A100" in name for name in before.values()), before
    told = [device["gpu_id"] for node in ("n1", "n2")
            for device in world.api().call("GET", f"/v1/nodes/{node}")[1]["devices"]]
    assert sorted(told) == sorted(before)
    gpu = client.GetGPUStatus().gpus[0]
    assert gpu.memory_total > 0 and gpu.memory_used + gpu.memory_free == gpu.memory_total
    world.scheduler.restart()
    client = connect(world, port=ports["tasks_grpc"])
    wait_until("the nodes are back", lambda: len(gpus()) == 8)
    assert gpus() == before


def test_the_state_of_tasks_is_read_over_http(make, connect):
    world = make(TASKS_HTTP_PORT=free_port(), TASKS_OTHER_COMMAND="sleep 1000", TASKS_QUEUE_SIZE=2)
    world.add_agent("n1").start()
    client = connect(world)
    base = f"http://127.0.0.1:{world.scheduler.served_ports()['tasks_http']}"

    def get(url, secret=world.scheduler.token()):
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.headers["Content-Type"].startswith("application/json")
            return json.load(answer)

    health = get(f"{base}/health", secret=None)
    assert health.keys() == {"status", "timestamp"} and health["status"] == "healthy" and health["timestamp"] > 0
    world.api().wait_node("n1")
    client.submit("runs", user_id="agent-7")
    client.wait_for("runs", RUNNING)
    world.cli("pause", expected=0)
    client.submit("first", task_type=LLM)
    client.submit("second", user_id="agent-8")
    assert client.refused("third") == "queue is full"
    queue = {"queue_size": 2, "running_count": 1,
             "pending": [{"id": "first", "user_id": "", "type": "TASK_TYPE_LLM"},
                         {"id": "second", "user_id": "agent-8", "type": "TASK_TYPE_OTHER"}],
             "running": [{"id": "runs", "user_id": "agent-7", "type": "TASK_TYPE_OTHER"}]}
    api = f"http://127.0.0.1:{world.scheduler.ports['http']}"
    for server in (base, api):
        wait_until("the queue is told", lambda s=server: get(f"{s}/queue/status") == queue)
        gpus = get(f"{server}/gpu/metrics")
        assert [gpu["gpu_id"] for gpu in gpus] == [gpu.gpu_id for gpu in client.GetGPUStatus().gpus]
        assert gpus[0].keys() == {"gpu_id", "memory_total_mb", "memory_used_mb", "memory_free_mb",
                                  "compute_util_percent", "memory_util_percent", "temperature_celsius",
                                  "last_updated_unix"}
        assert gpus[0]["last_updated_unix"] >= health["timestamp"] - 60
    client.CancelTask(task_id="runs")
    client.wait_for("runs", CANCELLED)
    metrics = get(f"{base}/metrics")
    assert isinstance(metrics["gpu_metrics"], str) and len(json.loads(metrics["gpu_metrics"])) == 4
    counted = {name: metrics[name] for name in ("queue_size", "running_tasks", "completed_tasks", "failed_tasks",
                                                "rejected_tasks")}
    assert counted == {"queue_size": 2, "running_tasks": 0, "completed_tasks": 0, "failed_tasks": 0,
                       "rejected_tasks": 1}
    # Whoever is of another tenant is told of nothing here.
    world.cli("tenant", "create", "--name", "speech", expected=0)
    key = world.cli("key", "create", "reader", "--tenant", "speech", expected=0).stdout.strip()
    assert get(f"{api}/queue/status", secret=key) == {"queue_size": 0, "running_count": 0, "pending": [],
                                                      "running": []}
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{base}/queue/status", secret="gsk_wrong")
    assert caught.value.code == 401


def run_agents(world, *arguments):
    return subprocess.run([sys.executable, ROOT / "examples" / "agents.py", "--tasks", "60", "--agents", "6",
                           "--address", f"127.0.0.1:{world.scheduler.ports['grpc']}", *arguments],
                          env={**os.environ, "GPU_SCHEDULER_API_TOKEN": world.scheduler.token()},
                          capture_output=True, text=True, check=False)


def test_the_example_of_agents_runs(make):
    world = make(TASKS_OTHER_COMMAND="wc -c", TASKS_QUEUE_SIZE=20)
    world.add_agent("n1").start()
    done = run_agents(world)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "60 tasks of 6 agents were accepted" in done.stdout
    assert "completed 60, failed 0, cancelled 0" in done.stdout
    assert world.api().call("GET", "/api/v1/jobs")[1]["total"] == 60


@pytest.mark.parametrize("settings, arguments, why", [
    ({"TASKS_OTHER_COMMAND": ""}, (), "was refused: no worker is configured for tasks of type other"),
    ({"TASKS_QUEUE_SIZE": 2}, ("--patience", "0.5"), "was refused for 0.5 s, in which no task ended: queue is full")])
def test_the_example_of_agents_ends_with_what_it_was_refused_for(make, settings, arguments, why):
    done = run_agents(make(**settings), *arguments)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert why in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert "nothing happened" not in done.stderr


def test_tasks_share_the_cores_of_a_small_node(make, connect, tmp_path):
    world = make(TASKS_OTHER_COMMAND=f"until test -e {tmp_path}/go; do sleep 0.05; done")
    world.add_agent("n1", sim_gpus="8xA100-SXM4-80GB", cpus=2).start()
    client = connect(world)
    tasks = [f"t{number}" for number in range(8)]
    for task in tasks:
        client.submit(task, task_type=OTHER, gpu_memory_required=100)
    wait_until("all eight run", lambda: all(client.GetTaskStatus(task_id=task).status == RUNNING for task in tasks))
    (tmp_path / "go").touch()
    for task in tasks:
        client.wait_for(task, COMPLETED)


def cores_of(world, job):
    return world.api().call("GET", f"/v1/jobs/{job}")[1]["resources"].get("cpu_milli", 0)


def test_a_task_asks_for_the_cores_that_its_type_has_in_the_settings(make, connect):
    world = make(TASKS_DIFFUSION_ENDPOINT="http://127.0.0.1:1/x")
    client = connect(world)
    asked = {kind: cores_of(world, client.submit(f"t{kind}", task_type=kind)) for kind in (LLM, DIFFUSION, OTHER)}
    assert asked == {LLM: 200, DIFFUSION: 0, OTHER: 100}, "an endpoint computes elsewhere"
    world.scheduler.settings["TASKS_CPU_MILLI"] = "1500, llm=0"
    world.scheduler.restart()
    client = connect(world)
    asked = {kind: cores_of(world, client.submit(f"u{kind}", task_type=kind)) for kind in (LLM, DIFFUSION, OTHER)}
    assert asked == {LLM: 0, DIFFUSION: 0, OTHER: 1500}
