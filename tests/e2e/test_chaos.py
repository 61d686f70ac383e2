"""kill -9 of scheduler and agents at random moments under load, round after round; then every promise is checked."""

import os
import random
import time

import pytest
from chaos import Load, essence, judge
from harness import FINAL, PATIENCE_S, SEED, wait_until

ROUNDS = int(os.environ.get("GPUSCHED_KILL_ROUNDS", "20"))
TASKS_PER_ROUND = 16


def victims_of(rng, world):
    """Who is hit in a round, and how."""
    scheduler, (first, second) = world.scheduler, world.agents()
    return rng.choices(
        [("kill", [scheduler]), ("kill", [first]), ("kill", [second]), ("kill", [scheduler, first]),
         ("kill", [scheduler, first, second]), ("kill early", [scheduler]), ("kill early", [first]),
         ("stop", [scheduler]), ("stop", [second]), ("shims' server", [first])],
        [6, 3, 3, 3, 2, 3, 2, 1, 1, 2])[0]


def hit(rng, how, victims):
    for daemon in victims:
        if how == "stop":
            if hasattr(daemon, "wait_serving"):
                daemon.wait_serving()  # A signal during its recovery ends it at once, with another status.
            assert daemon.stop() == 0, f"{daemon.name} did not end cleanly"
        elif how == "shims' server":
            for child in daemon.children():
                os.kill(child, 9)
        else:
            daemon.kill()
    if how == "shims' server":
        return
    time.sleep(rng.choice([0, 0, rng.uniform(0, 0.4)]))
    rng.shuffle(victims)
    for daemon in victims:
        daemon.launch()
        if how == "kill early":  # Not up yet, perhaps in the middle of its recovery.
            time.sleep(rng.uniform(0, 0.15))
            daemon.kill()
            daemon.launch()


@pytest.fixture(name="cluster")
def cluster_fixture(new_world):
    """A short lease, so that killed agents are missed; small snapshots, so that restarts use them."""
    world = new_world(SCHEDULER_NODE_LEASE_MS=2000, SCHEDULER_SNAPSHOT_MB=1)
    world.scheduler.start()
    world.add_agent("n1", cpus=8).start()
    world.add_agent("n2", cpus=8, sim_gpus="2xH100-SXM5-80GB").start()
    return world


def run_rounds(world, load, rng):
    for number in range(ROUNDS):
        load.allow(TASKS_PER_ROUND)
        time.sleep(rng.uniform(0.05, 1.2))
        for daemon in world.daemons:
            assert daemon.alive(), f"round {number}: {daemon.name} ended by itself with {daemon.process.returncode}"
        how, victims = victims_of(rng, world)
        print(f"round {number}: {how} {', '.join(daemon.name for daemon in victims)}; "
              f"{sum(1 for task in load.tasks if task.job_id)} of {len(load.tasks)} acknowledged", flush=True)
        hit(rng, how, list(victims))
        assert not load.complaints, load.complaints


def wait_all_ended(world):
    api = world.api()
    wait_until("every job has ended", lambda: all(job["state"] in FINAL for job in api.jobs()), 3 * PATIENCE_S)


def check_nothing_is_held(world):
    world.wait_nothing_runs()
    api = world.api()
    for agent in world.agents():
        node = wait_until(f"everything of {agent.node} is free", lambda name=agent.node: free_node(api, name))
        assert node["cpu_cores_free"] == node["cpu_cores"]


def free_node(api, name):
    node = api.node(name)
    return node if node["attempts"] == 0 and all(gpu["state"] == "free" for gpu in node["gpus"]) else None


def check_outputs(world, load, rng):
    api = world.api()
    told = [task for task in load.tasks if task.job_id and "cancel" not in task.mode and "retry" not in task.mode]
    for task in rng.sample(told, min(40, len(told))):
        assert api.output(task.job_id) == f"out {task.token}\n"
        assert api.output(task.job_id, "stderr") == f"err {task.token}\n"


def test_nothing_acknowledged_is_lost_and_nothing_runs_twice_whoever_is_killed(cluster):
    print(f"seed {SEED}: repeat with GPUSCHED_SEED={SEED} GPUSCHED_KILL_ROUNDS={ROUNDS}", flush=True)
    rng = random.Random(SEED)
    load = Load(cluster, SEED)
    try:
        run_rounds(cluster, load, rng)
        cluster.scheduler.wait_serving()
        load.close()
    except BaseException:
        load.abandon()
        raise
    wait_all_ended(cluster)
    check_nothing_is_held(cluster)
    jobs = cluster.api().jobs()
    print(f"{len(jobs)} jobs, {sum(job['attempts'] for job in jobs)} attempts, "
          f"{sum(task.breaks for task in load.tasks)} broken answers")
    wrong = judge(load, jobs)
    assert not wrong, "\n".join(wrong[:20])
    check_outputs(cluster, load, rng)

    # A clean end seals the journal, and what comes back is the same.
    assert cluster.scheduler.stop() == 0
    done = cluster.scheduler.journal("verify", str(cluster.scheduler.data_dir))
    assert done.returncode == 0, done.stderr
    assert "sealed" in done.stdout and "not sealed" not in done.stdout
    cluster.scheduler.start()
    again = {job["id"]: essence(job) for job in cluster.api().jobs()}
    assert again == {job["id"]: essence(job) for job in jobs}
