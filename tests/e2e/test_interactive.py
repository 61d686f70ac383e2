"""Interactive jobs: they start at once, or say that they cannot."""

import pytest


@pytest.fixture(scope="module", name="busy")
def busy_fixture(new_module_world):
    """A world with one node that a job has filled."""
    world = new_module_world(SCHEDULER_INTERACTIVE_WAIT_SECONDS=1, SCHEDULER_INTERACTIVE_GPUS_MAX=4)
    world.scheduler.start()
    world.add_agent("n1").start()
    world.api().wait_node("n1")
    job = world.cli("submit", "--now", "--time", "10m", "--gpus", "4", "--", "sleep", "600", expected=0).stdout.strip()
    assert world.api().wait_for(job, ("running",))["state"] == "running"
    return world


def test_what_cannot_start_at_once_ends_and_says_so(busy):
    done = busy.cli("submit", "--now", "--time", "10m", "--gpus", "1", "--", "true", expected=4)
    assert done.stdout == ""
    assert "were not free at once" in done.stderr
    job = busy.api().submit("true", interactive=True, gpu_count=1, max_runtime_seconds=60)
    assert busy.api().wait_for(job)["state"] == "failed"
    assert busy.api().job(job)["reason"] == "not_at_once"


def test_what_is_too_large_or_long_is_refused_with_what_to_do(busy):
    for fields in ({"gpu_count": 5, "max_runtime_seconds": 60}, {"gpu_count": 1}):
        refused = busy.api().post("/jobs", {"script": "true", "interactive": True, **fields}, 422)
        assert refused["code"] == "not_interactive"
        assert "submit it as an ordinary job" in refused["error"]
