"""The first hour of hands used to Slurm: their scripts, commands, options, ids and times."""

import datetime
import json

import pytest
from harness import wait_until


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


def shown(world, *words):
    return world.cli(*words, expected=0).stdout


def record(world, job):
    return json.loads(shown(world, "get", job, "-o", "json"))


def script(world, *lines):
    path = world.folder / "job.sh"
    path.write_text("#!/bin/bash\n" + "".join(f"{line}\n" for line in lines) + "echo $GPU_SCHEDULER_GPU_COUNT\n")
    return str(path)


def test_a_script_for_sbatch_runs_with_what_it_asks_for(cluster):
    path = script(cluster, "#SBATCH --job-name=theirs -t 1-12:30:00", "#SBATCH --gres=gpu:a100:2  # two", "#SBATCH -c 2 --mem=1G",
                  "#SBATCH -o out-%j.txt", "#SBATCH --comment='two words' -N 1 -n 1 --mail-type=NONE")
    job = shown(cluster, "submit", path).strip()
    cluster.cli("wait", job, expected=0)
    got = record(cluster, job)
    assert (got["name"], got["gpu_count"], got["gpu_model"], got["cpu_cores"], got["memory_mb"]) == ("theirs", 2, "a100", 2, 1024)
    assert (got["max_runtime_seconds"], got["comment"]) == (131_400, "two words")
    assert (cluster.folder / f"out-{job}.txt").read_text() == "2\n"


def test_nothing_that_has_no_equal_is_lost_in_silence(cluster):
    for line, instead in (("--qos=high", "--priority"), ("--ntasks=8", "torchrun"), ("--mem-per-gpu=4G", "the amount of the job"),
                          ("-C a100", "--gpu-model"), ("--mail-type=END", "gpu-cli wait"), ("--frobnicate=1", "gpu-cli submit --help")):
        done = cluster.cli("submit", script(cluster, "#SBATCH -t 60", f"#SBATCH {line}"), expected=2)
        assert done.stderr.startswith("gpu-cli: job.sh:3: #SBATCH --" if line.startswith("--") else "gpu-cli: job.sh:3: #SBATCH -C")
        assert instead in done.stderr
        assert done.stdout == ""


def test_our_lines_win_over_theirs_and_the_command_line_over_both(cluster):
    path = script(cluster, "#SBATCH --gres=gpu:64 -J theirs --time=60", "#GPU --gpus 1 --name ours")
    got = record(cluster, shown(cluster, "submit", "--hold", "--name", "mine", path).strip())
    assert (got["name"], got["gpu_count"], got["max_runtime_seconds"]) == ("mine", 1, 3600)
    assert record(cluster, shown(cluster, "submit", "--hold", path).strip())["name"] == "ours"


def test_an_account_is_a_tenant_and_a_partition_a_label(cluster):
    tenant = shown(cluster, "tenant", "create", "--name", "vision").strip()
    path = script(cluster, "#SBATCH --account=vision -p gpu")
    job = shown(cluster, "submit", path).strip()
    assert record(cluster, job)["tenant_id"] == tenant
    assert record(cluster, job)["state"] == "pending"
    shown(cluster, "node", "label", "n1", "partition=gpu")
    cluster.cli("wait", job, expected=0)
    assert cluster.cli("submit", script(cluster, "#SBATCH -A nobodys"), expected=4).stdout == ""


def test_a_script_that_uses_slurms_variables_is_told(cluster):
    done = cluster.cli("submit", "--hold", script(cluster, "#SBATCH -c 1", "echo $SLURM_JOB_ID $SLURM_RESTART_COUNT"),
                       expected=0)
    assert done.stderr == ("gpu-cli: job.sh: no value is set here for SLURM_RESTART_COUNT (line 3); an empty value can "
                           "change what a command does\n")


@pytest.mark.parametrize("words, ours", [
    (["squeue"], "gpu-cli list"), (["ps"], "gpu-cli list"), (["scancel", "5_3"], "gpu-cli cancel 5_3"), (["kill", "5"], "gpu-cli cancel 5"),
    (["sacct"], "gpu-cli history"), (["sinfo"], "gpu-cli node list"), (["sbatch", "job.sh"], "gpu-cli submit job.sh"),
    (["srun", "hostname"], "hostname"), (["submit", "--gres=gpu:2", "--", "true"], "--gpus 2"),
    (["submit", "--partition", "gpu", "--", "true"], "--node-label partition=gpu"),
    (["submit", "--dependency=afterany:5", "--", "true"], "--after any:job-5")])
def test_foreign_commands_and_options_are_answered_with_ours(cluster, words, ours):
    done = cluster.cli(*words, expected=2)
    assert "there is no " in done.stderr
    assert "; write: " in done.stderr
    assert ours in done.stderr


def test_what_is_exactly_equal_is_taken(cluster):
    job = shown(cluster, "submit", "--hold", "-J", "equal", "-c", "2", "-G", "1", "-t", "2:00:00", "--mem", "8Gi", "--", "true").strip()
    got = record(cluster, job)
    assert (got["name"], got["cpu_cores"], got["gpu_count"], got["max_runtime_seconds"], got["memory_mb"]) == ("equal", 2, 1, 7200, 8192)


def test_ids_are_understood_as_numbers(cluster):
    job = shown(cluster, "submit", "--hold", "--", "true").strip()
    number = job.removeprefix("job-")
    assert shown(cluster, "get", number, "-o", "name") == f"{job}\n"
    shown(cluster, "update", number, "--name", "other")
    assert "held" in shown(cluster, "explain", number)
    child = shown(cluster, "submit", "--after", number, "--", "true").strip()
    assert record(cluster, child)["dependencies"] == [f"after_ok:{job}"]
    shown(cluster, "release", number)
    cluster.cli("wait", number, child, expected=0)
    shown(cluster, "logs", number)
    array = shown(cluster, "submit", "--hold", "--array", "0-9", "--", "true").strip().removeprefix("job-")
    assert record(cluster, f"{array}_3")["array_index"] == 3
    assert shown(cluster, "cancel", f"{array}_[5-6]") == f"job-{array}[5] cancelled\njob-{array}[6] cancelled\n"
    shown(cluster, "cancel", array)


def test_times_are_understood_as_people_write_them(cluster):
    job = shown(cluster, "submit", "--begin", "tomorrow 10:00", "--", "true").strip()
    begins = datetime.datetime.fromisoformat(record(cluster, job)["begin_at"].replace("Z", "+00:00")).astimezone()
    tomorrow = datetime.datetime.now().astimezone() + datetime.timedelta(days=1)
    assert (begins.date(), begins.hour, begins.minute) == (tomorrow.date(), 10, 0)
    assert job in shown(cluster, "list", "--since", "yesterday", "-o", "name").split()
    refused = cluster.cli("submit", "-t", "2:00", "--", "true", expected=2)
    assert "could be hours and minutes, or minutes and seconds" in refused.stderr
    wait_until("it waits for its time", lambda: record(cluster, job)["reason"] == "begin")
    shown(cluster, "cancel", job)
