"""MIG slices on a node: made for a job, seen by it alone, destroyed after it, and nobody else's ever touched."""

import pytest
from harness import wait_until

pytestmark = pytest.mark.shared_world
ONE = "1xA100-SXM4-80GB:mig"
SHOW = ("echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES $GPU_SCHEDULER_MIG_PROFILE $GPU_SCHEDULER_GPU_MILLI "
        "mps:$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    return make_cluster


@pytest.fixture(name="cluster")
def cluster_fixture(world):
    return world


def make_cluster(new_world, sim_gpus=ONE):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", sim_gpus=sim_gpus).start()
    world.api().wait_node("n1")
    return world


def hold(cluster, name, before="true"):
    return f"{before}; while [ ! -e {cluster.folder}/{name} ]; do sleep 0.05; done"


def running(cluster, name, profile="1g.10gb", before=SHOW):
    """A job that runs in a slice until the file `name` is there, and has printed its line."""
    api = cluster.api()
    job = api.submit(hold(cluster, name, before), mig_profile=profile)
    api.wait_for(job, "running")
    wait_until("it printed", lambda: api.output(job).count("\n"))
    return job


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


def instances(cluster):
    """Those of the simulated driver: (GPU, profile, first slot)."""
    words = [line.split() for line in lines_of(cluster.agents()[0].data_dir / "sim-mig")]
    return {(int(index), profile, int(start)) for index, profile, start in words}


def notes(cluster):
    """The agent's own record of its slices, without its first line."""
    return lines_of(cluster.agents()[0].data_dir / "mig-slices")[1:]


def slot_of(cluster, job):
    return int(cluster.api().output(job).split()[0].rpartition("-")[2])


def wait_empty(cluster):
    wait_until("no slice is left", lambda: not instances(cluster) and not notes(cluster))
    wait_until("the GPU is free", lambda: cluster.api().gpu("n1", 0)["state"] == "free")


def test_seven_slices_of_one_gpu_and_the_eighth_waits(cluster):
    api = cluster.api()
    jobs = [running(cluster, f"gate{i}") for i in range(7)]
    printed = [api.output(job).split() for job in jobs]
    starts = {slot_of(cluster, job) for job in jobs}
    assert starts == set(range(7))
    for words, start in zip(printed, (slot_of(cluster, job) for job in jobs)):
        assert words == [f"MIG-sim-n1-0-1g.10gb-{start}"] * 2 + ["1g.10gb", "142", "mps:"]
    assert instances(cluster) == {(0, "1g.10gb", start) for start in range(7)}
    eighth = api.submit(SHOW, mig_profile="1g.10gb")
    wait_until("it was looked at", lambda: api.explain(eighth)["reason"] == "gpus_busy")
    assert api.job(eighth)["state"] == "pending"
    (cluster.folder / "gate3").touch()
    assert api.wait_for(eighth)["state"] == "completed"
    assert slot_of(cluster, eighth) == slot_of(cluster, jobs[3])
    for i in range(7):
        (cluster.folder / f"gate{i}").touch()
    for job in jobs:
        assert api.wait_for(job)["state"] == "completed"
    wait_empty(cluster)


def test_wide_slices_beside_small_ones(cluster):
    api = cluster.api()
    wide = [running(cluster, f"wide{i}", "3g.40gb") for i in range(2)]
    assert sorted(slot_of(cluster, job) for job in wide) == [0, 4]
    small = api.submit(hold(cluster, "small", SHOW), mig_profile="1g.10gb")  # A seventh is left, and no slot.
    wait_until("it was looked at", lambda: api.explain(small)["reason"] == "gpus_busy")
    (cluster.folder / "wide0").touch()
    api.wait_for(small, "running")
    wait_until("it printed", lambda: api.output(small).count("\n"))
    beside = slot_of(cluster, wide[1])
    assert slot_of(cluster, small) not in range(beside, beside + 4)
    assert instances(cluster) == {(0, "3g.40gb", beside), (0, "1g.10gb", slot_of(cluster, small))}
    for name in ("wide1", "small"):
        (cluster.folder / name).touch()
    for job in (*wide, small):
        assert api.wait_for(job)["state"] == "completed"
    wait_empty(cluster)


def test_what_a_job_left_behind_keeps_its_slice_only(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    gone = running(cluster, "gone")
    stays = running(cluster, "stays")
    ends = running(cluster, "ends")
    kept = slot_of(cluster, gone)
    agent.set_gpus({0: {"processes": [[4242, 3000, kept]]}})
    (cluster.folder / "gone").touch()
    assert api.wait_for(gone)["state"] == "completed"
    wait_until("it is told", lambda: "4242" in api.gpu("n1", 0)["detail"])
    assert (0, "1g.10gb", kept) in instances(cluster)
    # Another one beside it is destroyed as ever, and what runs runs on.
    (cluster.folder / "ends").touch()
    api.wait_for(ends)
    wait_until("its slice is gone", lambda: len(instances(cluster)) == 2)
    assert api.job(stays)["state"] == "running"
    wait_until("the GPU is quarantined", lambda: api.gpu("n1", 0)["state"] == "quarantined")
    agent.set_gpus({})
    wait_until("its slice is gone", lambda: len(instances(cluster)) == 1)
    again = api.submit("true", mig_profile="1g.10gb")
    assert api.wait_for(again)["state"] == "completed"
    (cluster.folder / "stays").touch()
    api.wait_for(stays)
    wait_empty(cluster)


def test_a_slice_that_cannot_be_destroyed_drains_with_the_reason(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({0: {"mig_destroy_error": "In use by another client"}})
    job = api.submit("true", mig_profile="2g.20gb")
    assert api.wait_for(job)["state"] == "completed"
    wait_until("it is told", lambda: "In use by another client" in api.gpu("n1", 0)["detail"])
    assert len(instances(cluster)) == 1
    agent.set_gpus({})
    wait_empty(cluster)


@pytest.mark.own_world
def test_slices_outlive_agent_and_scheduler(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    jobs = [running(cluster, "gate") for _ in range(2)] + [running(cluster, "gate", "3g.40gb")]
    before = instances(cluster)
    agent.kill()
    cluster.scheduler.kill()
    cluster.scheduler.start()
    agent.start()
    api.wait_node("n1")
    assert [api.job(job)["state"] for job in jobs] == ["running"] * 3
    beside = running(cluster, "gate")
    assert instances(cluster) - before == {(0, "1g.10gb", slot_of(cluster, beside))}
    cluster.scheduler.restart()
    api.wait_node("n1")
    (cluster.folder / "gate").touch()
    for job in (*jobs, beside):
        shown = api.wait_for(job)
        assert (shown["state"], shown["attempts"]) == ("completed", 1)
    wait_empty(cluster)


@pytest.mark.own_world
def test_jobs_that_end_while_the_agent_is_away_leave_no_slice(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    jobs = [running(cluster, "gate") for _ in range(3)]
    agent.kill()
    (cluster.folder / "gate").touch()
    agent.start()
    for job in jobs:
        assert api.wait_for(job)["state"] == "completed"
    wait_empty(cluster)


@pytest.mark.own_world
@pytest.mark.parametrize("made", [False, True], ids=["before it is there", "when it is there"])
def test_an_agent_killed_while_a_slice_is_made(cluster, made):
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({0: {"mig_made_ms" if made else "mig_make_ms": 600_000}})
    job = api.submit(SHOW, mig_profile="1g.10gb")
    wait_until("it is noted", lambda: any(line.endswith(" -") for line in notes(cluster)))
    if made:
        wait_until("it is there", lambda: instances(cluster))
    assert api.job(job)["state"] != "running"
    agent.kill()
    agent.set_gpus({})
    agent.start()
    assert api.wait_for(job)["state"] == "completed"
    wait_empty(cluster)


def test_a_job_cancelled_while_its_slice_is_made_never_runs(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({0: {"mig_make_ms": 2_000}})
    job = api.submit(f"touch {cluster.folder}/ran", mig_profile="1g.10gb")
    wait_until("it is noted", lambda: notes(cluster))
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    wait_empty(cluster)
    assert not (cluster.folder / "ran").exists()


def test_a_gpu_that_makes_no_slice_is_left_alone_and_the_job_runs_elsewhere(new_world):
    cluster = make_cluster(new_world, "2xA100-SXM4-80GB:mig")
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({0: {"mig_make_error": "Unknown Error"}})
    jobs = [api.submit(SHOW, mig_profile="4g.40gb") for _ in range(2)]  # Two of them fit on no GPU.
    for job in jobs:
        assert api.wait_for(job)["state"] == "completed"
        assert api.output(job).startswith("MIG-sim-n1-1-")
    gpu = api.gpu("n1", 0)
    assert gpu["condition"] == "unhealthy" and "cannot be created: Unknown Error" in gpu["detail"]
    assert api.gpu("n1", 1)["condition"] == "ok"


def test_somebody_elses_instance_is_never_touched(new_world):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    agent = world.add_agent("n1", sim_gpus=ONE)
    agent.data_dir.mkdir(parents=True, exist_ok=True)
    theirs = agent.data_dir / "sim-mig"
    theirs.write_text("0 2g.20gb 2\n")
    agent.start()
    api = world.api()
    wait_until("it is told", lambda: "did not create: 2g.20gb at slot 2" in api.gpu("n1", 0)["detail"])
    job = api.submit("true", mig_profile="1g.10gb")
    wait_until("it was looked at", lambda: api.explain(job)["reason"] == "gpus_unhealthy")
    agent.restart()
    assert theirs.read_text() == "0 2g.20gb 2\n"
    theirs.write_text("")
    assert api.wait_for(job)["state"] == "completed"


@pytest.mark.own_world
def test_a_slice_that_nobody_has_is_destroyed(cluster):
    agent = cluster.agents()[0]
    job = running(cluster, "gate")
    agent.kill()
    ours = agent.data_dir / "mig-slices"
    ours.write_text(ours.read_text() + "GPU-sim-n1-0 2g.20gb 0 MIG-sim-n1-0-2g.20gb-0\n")
    table = agent.data_dir / "sim-mig"
    table.write_text(table.read_text() + "0 2g.20gb 0\n")
    agent.start()
    wait_until("it is gone", lambda: instances(cluster) == {(0, "1g.10gb", slot_of(cluster, job))})
    (cluster.folder / "gate").touch()
    assert cluster.api().wait_for(job)["state"] == "completed"
    wait_empty(cluster)


def test_gpu_cli_submits_slices(cluster):
    out = cluster.cli("submit", "--mig", "1g.10gb", "--wait", "--", "sh", "-c", "test -n \"$GPU_SCHEDULER_MIG_PROFILE\"")
    assert out.returncode == 0, out.stderr
    wait_empty(cluster)
