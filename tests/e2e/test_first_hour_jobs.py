"""A researcher's first hour with jobs: what logs show, why a job waits, how it ended."""

import signal

import pytest
from harness import PATIENCE_S, wait_until


def read_until(stream, text):
    """Reads lines of a pipe until one contains the text; all that was read."""
    seen = b""
    while text.encode() not in seen:
        line = stream.readline()
        assert line, (text, seen)
        seen += line
    return seen.decode()


# What logs show.


def test_logs_show_both_streams_each_in_its_place(world):
    job = world.api().submit("echo out; echo err >&2")
    world.api().wait_for(job)
    for words in ([], ["-f"]):
        done = world.cli("logs", *words, job, expected=0)
        assert (done.stdout, done.stderr) == ("out\n", "err\n")
    done = world.cli("logs", "--stdout", job, expected=0)
    assert (done.stdout, done.stderr) == ("out\n", "")
    done = world.cli("logs", "--stderr", job, expected=0)
    assert (done.stdout, done.stderr) == ("", "err\n")


def test_logs_of_a_job_that_could_not_start_say_why(world):
    waiting = world.api().submit("true", gpu_count=64)
    done = world.cli("logs", waiting, expected=4)
    assert f"gpu-cli: {waiting} waits: " in done.stderr and "64 GPUs" in done.stderr
    world.api().cancel(waiting)
    missing = world.cli("submit", "--chdir", "/no/such/folder", "--", "true", expected=0).stdout.strip()
    wait_until("its start has failed", lambda: "no/such/folder" in world.cli("get", missing).stdout)
    done = world.cli("logs", missing)
    assert done.stdout == "" and "/no/such/folder" in done.stderr, done.stderr


def test_logs_of_a_gang_are_marked_by_member(world):
    world.add_agent("n2").start()
    job = world.cli("submit", "--nodes", "2", "--", "sh", "-c", "echo rank $RANK; echo oh $RANK >&2", expected=0)
    job = job.stdout.strip()
    assert world.api().wait_for(job)["state"] == "completed"
    done = world.cli("logs", job, expected=0)
    assert done.stdout == "[0] rank 0\n[1] rank 1\n"
    assert done.stderr == "[0] oh 0\n[1] oh 1\n"
    followed = world.cli("logs", "-f", job, expected=0)
    assert sorted(followed.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"]
    assert world.cli("logs", "--member", "1", job, expected=0).stdout == "rank 1\n"


# Why a job waits, and how it ended.


@pytest.mark.parametrize("words", [["submit", "--gpus", "4", "--wait", "--logs", "--"], ["wait"], ["attach"]])
def test_waiting_says_why_and_that_it_started(world, words):
    first = world.api().submit("sleep 1000", gpu_count=4)
    world.api().wait_for(first, "running")
    if words[0] == "submit":
        command = [*words, "no-such-command"]
    else:
        command = [*words, world.api().submit(["no-such-command"], gpu_count=4)]
    with world.cli_start(*command) as waiter:
        said = read_until(waiter.stderr, "waits:")
        assert "it wants 4 GPUs" in said.splitlines()[-1], said
        world.api().cancel(first)
        _, err = waiter.communicate(timeout=PATIENCE_S)
        assert waiter.returncode == 127
    last = err.decode().splitlines()[-1]
    assert "exited with code 127" in last and "no-such-command" in last, err


@pytest.mark.parametrize("words", [["submit", "--gpus", "4", "--wait", "--", "true"], ["wait"], ["attach"]])
def test_ctrl_c_leaves_the_job_and_says_how_to_come_back(world, words):
    first = world.api().submit("sleep 1000", gpu_count=4)
    world.api().wait_for(first, "running")
    job = None if words[0] == "submit" else world.api().submit(["true"], gpu_count=4)
    with world.cli_start(*words, *([job] if job else [])) as waiter:
        read_until(waiter.stderr, "waits:")
        waiter.send_signal(signal.SIGINT)
        out, err = waiter.communicate(timeout=PATIENCE_S)
        assert waiter.returncode == (0 if words[0] == "attach" else 130)
    job = job or out.decode().strip()
    assert "continues" in err.decode()
    assert f"gpu-cli attach {job}" in err.decode() and f"gpu-cli cancel {job}" in err.decode()
    assert world.api().job(job)["state"] == "pending"
