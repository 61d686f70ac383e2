"""Which GPUs a job sees, when a GPU is given to the next one, and when it is not."""

import os
import pwd
import re
import shutil
import urllib.request

import pytest
from harness import IS_ROOT, is_alive, wait_until
from security import copy_programs


pytestmark = pytest.mark.shared_world


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1").start()
        return world

    return start


@pytest.fixture(name="cluster")
def cluster_fixture(world):
    return world


PRINT = "echo $CUDA_VISIBLE_DEVICES; echo $NVIDIA_VISIBLE_DEVICES; env | grep -c -e ^HIP_VIS -e ^ROCR_VIS -e ^GPU_DEVICE_ORD"
LIES = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "NVIDIA_VISIBLE_DEVICES": "all", "HIP_VISIBLE_DEVICES": "3",
        "ROCR_VISIBLE_DEVICES": "2", "GPU_DEVICE_ORDINAL": "1", "GPU_SCHEDULER_ATTEMPT": "mine"}


def test_a_job_sees_exactly_its_granted_gpus_whatever_it_asks_for(cluster):
    api = cluster.api()
    gate = cluster.folder / "gate"
    hold = f"; while [ ! -e {gate} ]; do sleep 0.05; done"
    jobs = {count: api.submit(PRINT + hold, gpu_count=count, environment=LIES) for count in (1, 3)}
    jobs[0] = api.submit(PRINT, environment=LIES)
    api.wait_for(jobs[0])
    shown = {}
    for count in (1, 3):
        job = api.wait_for(jobs[count], "running")
        wait_until("it printed", lambda i=jobs[count]: (api.output(i) if api.job(i) else "").count("\n") == 3)
        lines = api.output(jobs[count]).splitlines()
        uuids = [api.gpu("n1", int(name.rpartition("-")[2]))["uuid"] for name in job["allocated_gpus"]]
        assert lines[0].split(",") == uuids
        assert lines[1] == lines[0]
        assert lines[2] == "0"
        shown[count] = set(uuids)
        for name in job["allocated_gpus"]:
            assert api.gpu("n1", int(name.rpartition("-")[2]))["held_by"] == jobs[count]
    assert len(shown[1]) == 1 and len(shown[3]) == 3
    assert not shown[1] & shown[3]
    assert api.output(jobs[0]).splitlines() == ["", "void", "0"]
    gate.touch()
    for count in (1, 3):
        api.wait_for(jobs[count])


@pytest.mark.own_world
def test_a_gpu_with_a_stuck_process_is_not_given_away_but_quarantined_with_the_evidence(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    gate = cluster.folder / "gate"
    job_id = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", gpu_count=1)
    job = api.wait_for(job_id, "running")
    index = int(job["allocated_gpus"][0].rpartition("-")[2])
    agent.set_gpus({index: {"processes": [4242], "memory_used_mb": 3000}})
    gate.touch()
    assert api.wait_for(job_id)["state"] == "completed"  # The job is over; its device is not free.

    wait_until("the device is quarantined", lambda: api.gpu("n1", index)["state"] == "quarantined")
    gpu = api.gpu("n1", index)
    assert "4242" in gpu["detail"] and "3000" in gpu["detail"]
    assert gpu["held_by"] in ("", job_id)  # Who left it behind, at most.
    shown = cluster.cli("gpus", expected=0).stdout
    assert "quarantined" in shown
    assert "4242" in str(cluster.cli_json("gpus"))
    assert api.get("/cluster/status")["available_gpus"] == 3

    # Its node goes on working, and nothing is placed on it.
    full = api.submit(["true"], gpu_count=4)
    wait_until("four GPUs are too many", lambda: api.explain(full)["reason"] in ("gpus_unhealthy", "gpus_busy"))
    assert cluster.cli("submit", "--gpus", "3", "--wait", "--", "true").returncode == 0
    assert api.job(full)["state"] == "pending"

    # A restarted scheduler and agent remember it.
    cluster.scheduler.restart()
    agent.restart()
    assert cluster.api().gpu("n1", index)["state"] == "quarantined"

    # Nobody's word makes it empty: it has its time to become so again, and what is on it is found again.
    cluster.cli("node", "condition", "n1", str(index), "ok", expected=0)
    assert api.gpu("n1", index)["state"] in ("draining", "quarantined")
    wait_until("it is quarantined again", lambda: api.gpu("n1", index)["state"] == "quarantined")
    assert "4242" in api.gpu("n1", index)["detail"]
    assert api.job(full)["state"] == "pending"
    cluster.cli("node", "condition", "n1", str(index), "ok", expected=0)
    agent.set_gpus({})
    assert api.wait_for(full)["state"] == "completed"


def test_a_gpu_whose_memory_stays_used_drains_until_it_is_empty(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    job_id = api.submit(["sleep", "600"], gpu_count=4)
    api.wait_for(job_id, "running")
    agent.set_gpus({2: {"memory_used_mb": 5000}})
    api.cancel(job_id)
    wait_until("it is held back", lambda: api.gpu("n1", 2)["state"] in ("draining", "quarantined"))
    for index in (0, 1, 3):
        wait_until("the others are free", lambda i=index: api.gpu("n1", i)["state"] == "free")
    agent.set_gpus({})
    wait_until("it is free once it is empty", lambda: api.gpu("n1", 2)["state"] == "free")


@pytest.mark.parametrize("condition", ["unhealthy", "missing"])
def test_a_broken_gpu_is_not_placed_on(cluster, condition):
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({index: {"condition": condition, "detail": "Xid 79"} for index in (0, 1, 2)})
    wait_until("three show as broken",
               lambda: [api.gpu("n1", index)["condition"] for index in range(4)] == [condition] * 3 + ["ok"])
    assert condition in cluster.cli("gpus", expected=0).stdout
    assert api.gpu("n1", 0)["detail"] == "Xid 79"
    # Nobody has them, and they are not free.
    node = next(line for line in cluster.cli("node", "list", expected=0).stdout.splitlines() if line.startswith("n1"))
    assert "1/4" in node, node
    assert "1/4 free" in cluster.cli("node", "show", "n1", expected=0).stdout
    assert [gpu["id"] for gpu in cluster.cli_json("gpu", "--free")["gpus"]] == ["n1-gpu-3"]
    with urllib.request.urlopen(f"http://127.0.0.1:{cluster.scheduler.ports['metrics']}/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    assert re.findall(r'gpu_scheduler_gpus\{state="(\w+)",model="[^"]+"\} (\d+)', metrics) == [("free", "1"), ("unhealthy", "3")]
    pair = api.submit(["true"], gpu_count=2)
    wait_until("two are too many", lambda: api.explain(pair)["reason"] == "gpus_unhealthy")
    single = api.submit("echo $CUDA_VISIBLE_DEVICES", gpu_count=1)
    assert api.wait_for(single)["state"] == "completed"
    assert api.output(single).strip() == api.gpu("n1", 3)["uuid"]
    agent.set_gpus({})
    assert api.wait_for(pair)["state"] == "completed"


def test_an_operator_takes_a_gpu_out_of_service_and_puts_it_back(cluster):
    api = cluster.api()
    cluster.cli("node", "condition", "n1", "1", "unhealthy", "--detail", "fan rattles", expected=0)
    gpu = api.gpu("n1", 1)
    assert gpu["condition"] == "unhealthy" and "fan rattles" in gpu["detail"]
    waiting = api.submit(["true"], gpu_count=4)
    wait_until("it waits for the device", lambda: api.explain(waiting)["reason"] == "gpus_unhealthy")
    cluster.cli("node", "condition", "n1", "1", "ok", expected=0)
    assert api.wait_for(waiting)["state"] == "completed"


@pytest.mark.own_world
def test_a_quarantined_gpu_runs_on_takes_nothing_new_and_shows_who_did_it_and_why(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    gate = cluster.folder / "gate"
    job_id = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo went on", gpu_count=1)
    job = api.wait_for(job_id, "running")
    gpu_id = job["allocated_gpus"][0]
    index = int(gpu_id.rpartition("-")[2])
    said = cluster.cli("device", "quarantine", "n1", gpu_id, "--reason", "fan rattles", expected=0).stdout
    assert gpu_id in said and f"{job_id} continues" in said
    # Another one, by its UUID, that nobody has.
    idle = (index + 1) % 4
    cluster.cli("device", "quarantine", "n1", api.gpu("n1", idle)["uuid"], "--reason", "old", expected=0)
    me = cluster.cli_json("device", "list", "n1")["gpus"][index]["quarantined_by"]
    assert me == pwd.getpwuid(os.geteuid()).pw_name

    def every_page_shows_it():
        listed = cluster.cli_json("device", "list", "n1")["gpus"]
        shown = cluster.cli_json("node", "show", "n1")["devices"]
        rest = api.node("n1")["gpus"]
        for gpus in (listed, shown, rest):
            assert [gpus[i].get("quarantine_reason", "") for i in (index, idle)] == ["fan rattles", "old"]
            assert {gpus[i].get("quarantined_by") for i in (index, idle)} == {me}
            assert gpus[idle]["state"] == "quarantined"
        # A terminal's width ends lists, not what is written to a pipe in the wide format.
        text = cluster.cli("device", "list", "n1", "-o", "wide", expected=0).stdout
        assert "fan rattles" in text and f"quarantined by {me}" in text

    every_page_shows_it()
    assert api.gpu("n1", index)["state"] == "held"
    assert api.get("/cluster/status")["available_gpus"] == 2
    full = api.submit(["true"], gpu_count=4)
    wait_until("it waits for the two", lambda: api.explain(full)["reason"] == "gpus_unhealthy")

    cluster.scheduler.restart()
    agent.restart()
    every_page_shows_it()
    assert api.job(job_id)["state"] == "running"
    gate.touch()
    assert api.wait_for(job_id)["state"] == "completed"
    assert api.output(job_id) == "went on\n"
    wait_until("nothing is on it", lambda: api.gpu("n1", index)["state"] == "quarantined")
    assert cluster.cli("submit", "--gpus", "2", "--wait", "--", "true").returncode == 0
    assert api.job(full)["state"] == "pending"

    cluster.cli("device", "release", "n1", str(idle), expected=0)
    assert api.job(full)["state"] == "pending"
    cluster.cli("device", "release", "n1", gpu_id, expected=0)
    assert api.wait_for(full)["state"] == "completed"
    assert "quarantined_by" not in api.gpu("n1", index)


def test_what_is_wrong_with_a_quarantine_is_said_in_one_sentence(cluster):
    def refused(*words, code):
        done = cluster.cli("device", *words)
        assert done.returncode == code, (words, done)
        assert len(done.stderr.strip().splitlines()) <= 2
        return done.stderr

    assert "--reason" in refused("quarantine", "n1", "0", code=2)
    assert "n9" in refused("quarantine", "n9", "0", "--reason", "x", code=4)
    assert "0 to 3" in refused("quarantine", "n1", "4", "--reason", "x", code=4)
    assert "0 to 3" in refused("release", "n1", "n2-gpu-0", code=4)
    assert "not quarantined" in refused("release", "n1", "0", code=4)
    assert "n9" in refused("list", "n9", code=4)


def test_a_hot_gpu_takes_no_new_work_until_it_has_cooled(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=100, SCHEDULER_THERMAL_THRESHOLD=75, SCHEDULER_THERMAL_HYSTERESIS=5,
                      SCHEDULER_THERMAL_READINGS=2)
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    api = world.api()
    gate = world.folder / "gate"
    running = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", gpu_count=4)
    api.wait_for(running, "running")
    agent.set_gpus({index: {"temperature_celsius": 82} for index in range(4)})
    for index in range(4):
        wait_until("it is hot", lambda i=index: api.gpu("n1", i)["condition"] == "hot")
    gpu = api.gpu("n1", 0)
    assert "82 C, threshold 75 C, cools until 70 C" in gpu["detail"]
    assert "hot" in world.cli("device", "list", "-o", "wide", expected=0).stdout
    assert api.job(running)["state"] == "running"  # Heat ends nothing.
    waiting = api.submit(["true"], gpu_count=1)
    gate.touch()
    assert api.wait_for(running)["state"] == "completed"
    wait_until("it says so", lambda: api.explain(waiting)["reason"] == "devices_hot")
    assert "too hot" in world.cli("explain", waiting, expected=0).stdout

    # Neither a restart nor a little cooling makes it well.
    agent.set_gpus({index: {"temperature_celsius": 72} for index in range(4)})
    world.scheduler.restart()
    agent.restart()
    wait_until("the new readings are there", lambda: api.gpu("n1", 0)["temperature_celsius"] == 72)
    assert api.gpu("n1", 0)["condition"] == "hot"
    assert api.job(waiting)["state"] == "pending"
    agent.set_gpus({index: {"temperature_celsius": 70 if index == 2 else 90} for index in range(4)})
    assert api.wait_for(waiting)["state"] == "completed"
    assert api.gpu("n1", 2)["condition"] == "ok"
    assert api.gpu("n1", 1)["condition"] == "hot"


def test_the_threshold_may_be_each_gpus_own_or_none(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=100, SCHEDULER_THERMAL_THRESHOLD="auto",
                      SCHEDULER_THERMAL_AUTO_MARGIN=4, SCHEDULER_THERMAL_READINGS=1)
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    api = world.api()
    agent.set_gpus({0: {"temperature_celsius": 86}, 1: {"temperature_celsius": 87}})  # Its limit is 90.
    wait_until("one is hot", lambda: api.gpu("n1", 1)["condition"] == "hot")
    assert "threshold 86 C" in api.gpu("n1", 1)["detail"]
    assert api.gpu("n1", 0)["condition"] == "ok"
    # Without a threshold what was hot is well again.
    world.scheduler.settings["SCHEDULER_THERMAL_THRESHOLD"] = 0
    world.scheduler.restart()
    wait_until("it is not hot any more", lambda: api.gpu("n1", 1)["condition"] == "ok")


def test_gpu_memory_and_model_choose_the_device(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="2xA100-SXM4-40GB,2xH100-SXM5-80GB").start()
    api = world.api()
    models = {gpu["uuid"]: gpu["model"] for gpu in api.node("n1")["gpus"]}

    def model_of(**wanted):
        job_id = api.submit("echo $CUDA_VISIBLE_DEVICES", **wanted)
        assert api.wait_for(job_id)["state"] == "completed"
        return {models[uuid] for uuid in api.output(job_id).strip().split(",")}

    assert model_of(gpu_count=2, gpu_model="H100") == {"NVIDIA H100-SXM5-80GB"}
    assert model_of(gpu_count=1, gpu_memory_mb=60_000) == {"NVIDIA H100-SXM5-80GB"}
    assert model_of(gpu_count=2, gpu_memory_mb=60_000) <= {"NVIDIA A100-SXM4-40GB", "NVIDIA H100-SXM5-80GB"}
    never = api.submit(["true"], gpu_count=1, gpu_memory_mb=90_000)
    wait_until("no device is as large", lambda: api.explain(never)["reason"] == "no_matching_gpu")


def test_two_agents_share_the_work_and_never_a_gpu(new_world):
    world = new_world()
    world.scheduler.start()
    for name in ("n1", "n2"):
        world.add_agent(name).start()
    api = world.api()
    gate = world.folder / "gate"
    jobs = [api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done", gpu_count=2) for _ in range(5)]
    running = [api.wait_for(job_id, "running") for job_id in jobs[:4]]
    names = [name for job in running for name in job["allocated_gpus"]]
    assert len(set(names)) == len(names) == 8
    assert api.job(jobs[4])["state"] == "pending"
    gate.touch()
    for job_id in jobs:
        assert api.wait_for(job_id)["state"] == "completed"


def test_a_killed_job_gives_its_gpu_back_only_when_its_daemons_are_dead(cluster):
    api = cluster.api()
    pid_file = cluster.folder / "daemon-pid"
    job_id = api.submit(f"(setsid sh -c 'trap \"\" TERM; echo $$ > {pid_file}; while :; do sleep 0.1; done' &); "
                        f"while [ ! -s {pid_file} ]; do sleep 0.02; done", gpu_count=4)
    following = api.submit(["sh", "-c", f"kill -0 $(cat {pid_file})"], gpu_count=4)
    assert api.wait_for(job_id)["state"] == "completed"
    job = api.wait_for(following)
    assert job["state"] == "failed", "the daemon still lived when the next job had the GPU"
    assert not is_alive(int(pid_file.read_text()))


@pytest.mark.skipif(not IS_ROOT, reason="needs root: runs processes of another user")
def test_an_unprivileged_user_runs_everything(new_world, monkeypatch):
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    world = new_world()
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    world.folder.chmod(0o777)
    # The checkout may stand where that user cannot look, as under root's home.
    monkeypatch.setenv("GPUSCHED_BIN_DIR", str(copy_programs(world.folder / "bin")))
    world.scheduler.prefix = user
    world.scheduler.start()
    agent = world.add_agent("n1", prefix=user)
    agent.start()
    api = world.api()
    job_id = api.submit("id -u; echo $CUDA_VISIBLE_DEVICES", gpu_count=1)
    assert api.wait_for(job_id)["state"] == "completed"
    uid, uuid = api.output(job_id).split()
    assert (uid, uuid) == ("65534", "GPU-sim-n1-0")
    token = world.scheduler.data_dir / "token"
    assert token.stat().st_mode & 0o777 == 0o600
    # Root's agent does not obey that user's scheduler.
    other = world.add_agent("n2")
    other.launch()
    assert other.ended() != 0
    assert "root" in other.log_text() and "token" in other.log_text()
