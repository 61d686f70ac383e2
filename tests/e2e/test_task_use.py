"""Tasks of agents get the GPU memory that those before them used, and so share a GPU."""

import pytest
from harness import wait_until

pytest.importorskip("grpc", reason="python3-grpcio is not installed")
pytest.importorskip("google.protobuf", reason="python3-protobuf is not installed")

from agent_client import COMPLETED, RUNNING  # noqa: E402

DEFAULT_MB = 60_000  # Two of them are more than the GPU has.
USED_MB = 8_000
LEARNED_MB = 9_216  # With the margin, and rounded up.


@pytest.fixture(name="make")
def make_fixture(new_world):
    """A node with one GPU. Tasks say their process's number, and end when their file is there."""

    def make(**settings):
        world = new_world(TASKS_GPU_MEMORY_MB=DEFAULT_MB, **settings)
        world.scheduler.settings["TASKS_OTHER_COMMAND"] = (
            f'exec sh -c \'echo $$; while [ ! -e "{world.folder}/$TASK_ID" ]; do sleep 0.1; done\'')
        world.scheduler.start()
        world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB").start()
        return world

    return make


def used_on_n1(world):
    """MB in use on the node's GPU. The tasks' own door counts what is reserved, too."""
    return int(world.api().call("GET", "/v1/nodes/n1")[1]["devices"][0]["memory_used_mb"])


def run_measured(world, client, task):
    """Runs a task that uses USED_MB, as its agent sees; its job."""
    job = client.submit(task)
    client.wait_for(task, RUNNING)
    pid = int(wait_until("it says its number", lambda: world.api().output(job).strip() or None))
    # The second figure is told when a look has seen the first.
    for used_mb in (USED_MB + 1, USED_MB + 2):
        world.agents()[0].set_gpus({0: {"memory_used_mb": used_mb, "processes": [[pid, USED_MB]]}})
        wait_until("its memory is told", lambda mb=used_mb: used_on_n1(world) == mb)
    world.agents()[0].set_gpus({})
    (world.folder / task).touch()
    client.wait_for(task, COMPLETED)
    return job


def shown(world, job):
    status, body, _ = world.api().call("GET", f"/api/v1/jobs/{job}")
    assert status == 200, body
    return body


def test_tasks_are_packed_by_what_those_before_them_used(make, connect):
    world = make()
    client = connect(world)
    for task in ("first-1", "first-2", "first-3"):
        job = run_measured(world, client, task)
        assert shown(world, job)["gpu_memory_mb"] == DEFAULT_MB
        assert shown(world, job)["usage"]["peak_gpu_memory_mb"] == USED_MB
    jobs = [client.submit(task) for task in ("second-1", "second-2")]
    for task in ("second-1", "second-2"):  # Both at once: none ends by itself.
        client.wait_for(task, RUNNING)
    assert sorted(client.GetGPUStatus().gpus[0].running_tasks) == ["second-1", "second-2"]
    for job in jobs:
        assert shown(world, job)["gpu_memory_mb"] == LEARNED_MB
        assert shown(world, job)["labels"]["agent_task_memory"] == "learned"
    # Who asks for memory gets that.
    asked = client.submit("third", gpu_memory_required=2_000)
    assert shown(world, asked)["gpu_memory_mb"] == 2_000
    for task in ("second-1", "second-2", "third"):
        (world.folder / task).touch()
        client.wait_for(task, COMPLETED)


def test_what_was_learned_outlives_the_scheduler_and_is_scored(make, connect):
    world = make()
    client = connect(world)
    for task in ("first-1", "first-2", "first-3"):
        run_measured(world, client, task)
    world.scheduler.restart()
    client = connect(world)
    assert shown(world, run_measured(world, client, "second"))["gpu_memory_mb"] == LEARNED_MB
    scores = world.api().call("GET", "/v1/quality")[1]["task_memory"]
    assert [score["tenant_id"] for score in scores] == ["", "default"]
    assert all((score["count"], score["within"]) == (1, 1) for score in scores)
    assert (scores[0]["mean_given_mb"], scores[0]["mean_peak_mb"]) == (LEARNED_MB, USED_MB)
    assert str(LEARNED_MB) in world.cli("quality", expected=0).stdout


def test_learning_can_be_switched_off(make, connect):
    world = make(TASKS_LEARN_USE="false")
    client = connect(world)
    for task in ("first-1", "first-2", "first-3", "second"):
        assert shown(world, run_measured(world, client, task))["gpu_memory_mb"] == DEFAULT_MB
    assert not world.api().call("GET", "/v1/quality")[1].get("task_memory")
