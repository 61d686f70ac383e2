"""What a job that asks for nothing cannot take: the node's memory."""

import pathlib

import pytest
from test_box import EAT, NEEDS_CGROUPS, run, setting_of

MIB = 1 << 20


@pytest.fixture(name="limited")
def limited_fixture(new_world):
    def start(*arguments, **options):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1", arguments=arguments, **options).start()
        return world

    return start


def limit_of(world, **fields):
    """The memory limit in MiB of a job that runs with these fields; None: it has none."""
    job = world.api().submit("exec sleep 600", **fields)
    world.api().wait_for(job, "running")
    return end_and_read(world, job)


def end_and_read(world, job):
    setting = setting_of(world, "memory.max", "memory.limit_in_bytes")
    world.api().cancel(job)
    world.api().wait_for(job)
    world.wait_nothing_runs()
    # Without a limit there may be no group for it at all.
    return None if not setting or setting[1] == "max" or int(setting[1]) >= 1 << 60 else int(setting[1]) / MIB


@NEEDS_CGROUPS
def test_a_job_that_names_no_memory_cannot_take_the_nodes(limited):
    world = limited("--memory-mb", "128")
    api = world.api()
    job = api.wait_for(api.submit(EAT))
    assert (job["state"], job["cause"]) == ("failed", "out_of_memory"), job
    assert "more than its 128 MB of memory and was killed; ask for more with --mem" in job["message"]
    assert run(api, EAT, memory_mb=0) == ""  # Asked for: no limit.
    assert run(api, "echo fine") == "fine\n"


@NEEDS_CGROUPS
def test_the_default_is_the_larger_share_of_cores_and_gpus(limited):
    total = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 1024
    most = min(8192, total - min(max(1024, total // 20), total // 4))
    world = limited("--memory-mb", "8192", cpus=8)
    assert limit_of(world, cpu_cores=1, gpu_count=2) == pytest.approx(most / 2, abs=1)
    assert limit_of(world, cpu_cores=6, gpu_count=1) == pytest.approx(most * 6 / 8, abs=1)
    assert limit_of(world, cpu_cores=0) == 1024
    assert limit_of(world, cpu_cores=1, memory_mb=100) == 100
    assert limit_of(world, cpu_cores=1, memory_mb=0) is None


@NEEDS_CGROUPS
def test_an_operator_may_leave_jobs_without_a_limit(limited):
    assert limit_of(limited("--default-memory", "none")) is None


@NEEDS_CGROUPS
def test_no_limit_is_asked_for_with_a_word(limited):
    world = limited()
    for words in (["--mem", "unlimited"], ["--mem", "0"]):
        name = world.cli("submit", *words, "--", "sleep", "600").stdout.split()[-1]
        world.api().wait_for(name, "running")
        assert end_and_read(world, name) is None
