"""Several jobs on one GPU: what each is told, when a share is free again, and that nobody suffers for another."""

import pytest
from harness import wait_until


pytestmark = pytest.mark.shared_world


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1").start()
        world.api().wait_node("n1")
        return world

    return start


@pytest.fixture(name="cluster")
def cluster_fixture(world):
    return world


def hold(cluster, name, before="true"):
    return f"{before}; while [ ! -e {cluster.folder}/{name} ]; do sleep 0.05; done"


def test_shares_of_one_gpu_see_it_and_are_told_their_part(cluster):
    api = cluster.api()
    show = "echo $CUDA_VISIBLE_DEVICES $GPU_SCHEDULER_GPU_MILLI $GPU_SCHEDULER_GPU_MEMORY_MB $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    first = api.submit(hold(cluster, "gate", show), gpu_milli=250, gpu_memory_mb=3000)
    second = api.submit(hold(cluster, "gate", show), gpu_milli=500)
    jobs = [api.wait_for(job, "running") for job in (first, second)]
    assert jobs[0]["allocated_gpus"] == jobs[1]["allocated_gpus"] and len(jobs[0]["allocated_gpus"]) == 1
    index = int(jobs[0]["allocated_gpus"][0].rpartition("-")[2])
    gpu = api.gpu("n1", index)
    assert gpu["state"] == "shared"
    wait_until("both printed", lambda: all(api.output(job).count("\n") == 1 for job in (first, second)))
    assert api.output(first).split() == [gpu["uuid"], "250", "3000", "0=3000M"]
    half = gpu["memory_mb"] // 2
    assert api.output(second).split() == [gpu["uuid"], "500", str(half), f"0={half}M"]
    assert [job["gpu_milli"] for job in jobs] == [250, 500]
    assert cluster.cli_json("tenant", "get", "default")["current_gpu_milli"] == 750
    assert "0.75" in cluster.cli("node", "show", "n1", expected=0).stdout
    assert "0.25 of one" in cluster.cli("get", first, expected=0).stdout
    (cluster.folder / "gate").touch()
    for job in (first, second):
        assert api.wait_for(job)["state"] == "completed"
    wait_until("the GPU is whole again", lambda: api.gpu("n1", index)["state"] == "free")


def test_a_share_is_given_again_while_the_other_runs_on(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    gone = api.submit(hold(cluster, "gone"), gpu_milli=600)
    index = int(api.wait_for(gone, "running")["allocated_gpus"][0].rpartition("-")[2])
    stays = api.submit(hold(cluster, "stays", "echo $$"), gpu_milli=400)
    assert api.wait_for(stays, "running")["allocated_gpus"] == api.job(gone)["allocated_gpus"]
    wait_until("it printed", lambda: api.output(stays).strip())
    # What the driver shows on the GPU is the other one's process, which is no reason to wait.
    agent.set_gpus({index: {"processes": [int(api.output(stays))], "memory_used_mb": 9000}})
    others = [api.submit(hold(cluster, "others"), gpu_count=1) for _ in range(3)]
    for job in others:
        api.wait_for(job, "running")
    waits = api.submit("true", gpu_milli=600)
    wait_until("it was looked at", lambda: api.explain(waits)["reason"] == "gpus_busy")
    (cluster.folder / "gone").touch()
    assert api.wait_for(waits)["state"] == "completed"
    assert api.job(stays)["state"] == "running"
    agent.set_gpus({})
    for name in ("stays", "others"):
        (cluster.folder / name).touch()
    for job in (stays, *others):
        api.wait_for(job)


def test_what_a_share_left_behind_bars_the_gpu_and_nobody_on_it(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    gone = api.submit(hold(cluster, "gone"), gpu_milli=600)
    index = int(api.wait_for(gone, "running")["allocated_gpus"][0].rpartition("-")[2])
    stays = api.submit(hold(cluster, "stays"), gpu_milli=400)
    api.wait_for(stays, "running")
    agent.set_gpus({index: {"processes": [4242], "memory_used_mb": 3000}})
    (cluster.folder / "gone").touch()
    api.wait_for(gone)
    wait_until("the GPU is quarantined", lambda: api.gpu("n1", index)["state"] == "quarantined")
    assert "4242" in api.gpu("n1", index)["detail"]
    assert api.job(stays)["state"] == "running"
    agent.set_gpus({})
    wait_until("it is back in the pool", lambda: api.gpu("n1", index)["state"] == "shared")
    (cluster.folder / "stays").touch()
    api.wait_for(stays)


@pytest.mark.own_world
def test_shares_outlive_a_restart_of_agent_and_scheduler(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    jobs = [api.submit(hold(cluster, "gate"), gpu_milli=300) for _ in range(3)]
    index = int(api.wait_for(jobs[0], "running")["allocated_gpus"][0].rpartition("-")[2])
    for job in jobs:
        api.wait_for(job, "running")
    agent.kill()
    cluster.scheduler.kill()
    cluster.scheduler.start()
    agent.start()
    api.wait_node("n1")
    assert [api.job(job)["state"] for job in jobs] == ["running"] * 3
    (cluster.folder / "gate").touch()
    for job in jobs:
        shown = api.wait_for(job)
        assert (shown["state"], shown["attempts"]) == ("completed", 1)
    wait_until("the GPU is whole again", lambda: api.gpu("n1", index)["state"] == "free")


def test_a_share_of_two_gpus_makes_no_sense(cluster):
    refused = cluster.api().post("/jobs", {"command": ["true"], "gpu_milli": 500, "gpu_count": 2}, 422)
    assert refused["field"] == "gpu_milli"
    cluster.api().post("/jobs", {"command": ["true"], "gpu_milli": 1000}, 400)


def test_gpu_cli_shares(cluster):
    out = cluster.cli("submit", "--gpu-share", "25%", "--wait", "--", "sh", "-c", "exit 0")
    assert out.returncode == 0, out.stderr
    bad = cluster.cli("submit", "--gpu-share", "1.5", "--", "true")
    assert bad.returncode != 0 and "--gpu-share" in bad.stderr
