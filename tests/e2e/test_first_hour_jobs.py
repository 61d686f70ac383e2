"""A researcher's first hour with jobs: what logs show, why a job waits, how it ended."""

import datetime
import os
import signal
import subprocess

import pytest
from harness import PATIENCE_S, noise, program, read_bytes, wait_until

pytestmark = pytest.mark.shared_world


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


@pytest.mark.own_world
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


# What can never run.


NEVER = "no registered node can ever run this job (node n1 is the closest match: it has 4 of the 99 GPUs)"


@pytest.mark.parametrize("words", [["submit"], ["submit", "--hold"], ["submit", "--array", "0-9"], ["submit", "--begin", "+1h"]])
def test_a_job_that_can_never_run_is_told_at_submission(world, words):
    done = world.cli(*words, "--gpus", "99", "--", "true", expected=0)
    job = done.stdout.strip()
    assert done.stderr == f"gpu-cli: warning: {job}: {NEVER}; it waits until one can; to end it: gpu-cli cancel {job}\n"
    assert world.cli("submit", "--gpus", "4", *words[1:], "--", "true", expected=0).stderr == ""
    refused = world.cli(*words, "--gpus", "99", "--require-feasible", "--", "true", expected=4)
    assert NEVER in refused.stderr and "warning" not in refused.stderr


def test_a_run_that_can_never_start_is_told(world):
    with world.cli_start("run", "--gpus", "99", "--", "true") as process:
        said = read_until(process.stderr, "warning")
        assert NEVER in said
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


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
        assert "it requests 4 GPUs" in said.splitlines()[-1], said
        world.api().cancel(first)
        _, err = waiter.communicate(timeout=PATIENCE_S)
        assert waiter.returncode == 127
    last = err.decode().splitlines()[-1]
    assert "no-such-command is not installed" in last and "exit code 127" in last, err


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


# gpu-cli run.


def newest(world):
    return max(world.api().jobs(), key=lambda job: int(job["id"].removeprefix("job-")))


def started_run(world, *words):
    """gpu-cli run with pipes, once its job is known: the process and the job's id."""
    process = world.cli_start("run", *words)
    said = read_until(process.stderr, "submitted")
    return process, said.split("gpu-cli: ")[1].split()[0]


def test_run_shows_the_output_and_passes_the_exit_code_on(world):
    done = world.cli("run", "--gpus", "1", "sh", "-c", "echo out; echo err >&2; exit 3", expected=3)
    assert done.stdout == "out\n" and "\nerr\n" in done.stderr
    job = world.api().job(newest(world)["id"])
    assert (job["state"], job["exit_code"], job["gpu_count"]) == ("failed", 3, 1)
    assert job["max_runtime_seconds"] == 12 * 3600
    assert world.cli("run", "--", "true", expected=0).stdout == ""
    for words, why in ((["--array", "1-3", "true"], "--array"), (["-i", "--nodes", "2", "true"], "--nodes"),
                       (["-it", "true"], "leave -t out"), ([], "a command is missing")):
        assert why in world.cli("run", *words, expected=2).stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("where", ["waits", "runs", "session"])
def test_leaving_a_run_ends_its_job(world, number, where):
    words = ["sh", "-c", "echo ready; exec sleep 1000"]
    if where == "waits":
        words = ["--gpus", "64", *words]
    if where == "session":
        words = ["-i", *words]
    process, job = started_run(world, *words)
    with process:
        if where == "waits":
            read_until(process.stderr, "waits:")
        else:
            assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        if where == "session" and number == signal.SIGINT:
            # It is the command's, which it ends.
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 130
            assert world.api().wait_for(job)["exit_code"] == 130
            return
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number, err
    assert f"{job} is cancelled" in err.decode()
    assert world.api().wait_for(job)["state"] == "cancelled"


def test_a_run_whose_output_nobody_reads_ends_its_job(world):
    process, job = started_run(world, "sh", "-c", "while :; do echo more; sleep 0.1; done")
    with process:
        assert process.stdout.readline() == b"more\n"
        process.stdout.close()
        process.wait(PATIENCE_S)
        process.stderr.read()
    assert world.api().wait_for(job)["state"] == "cancelled"


def test_a_run_can_be_left_running(world):
    process, job = started_run(world, "sh", "-c", "echo ready; exec sleep 1000")
    with process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGQUIT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and f"gpu-cli attach {job}" in err.decode()
    world.api().wait_for(job, "running")  # Output may be shown before its start is durable.


def test_run_passes_standard_input_on(world):
    done = world.cli("run", "-i", "sh", "-c", "cat; exit 5", text_in="one\ntwo\n", expected=5)
    assert done.stdout == "one\ntwo\n"
    job = world.api().wait_for(newest(world)["id"])
    assert (job["state"], job["exit_code"]) == ("failed", 5)


def test_a_killed_run_leaves_no_job_with_a_session(world):
    process, job = started_run(world, "-i", "sh", "-c", "echo ready; exec sleep 1000")
    with process:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.communicate()
    # The session is hung up, and two minutes after its start, which are cut short, the job has nobody to wait for.
    (clock,) = [pid for pid in world.attempts_left() if read_bytes(f"/proc/{pid}/cmdline") == b"sleep\x00120\x00"]
    os.kill(clock, signal.SIGKILL)
    assert world.api().wait_for(job)["exit_code"] == 129


def test_run_gives_a_terminal_and_ends_with_it(world, screen):
    shell = screen("run", "-it", "--gpus", "1", "--time", "1h", "sh", rows=31, columns=97)
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    shell.type("stty size; echo have $CUDA_VISIBLE_DEVICES\r")
    shell.wait_for("31 97")
    job = world.api().job(newest(world)["id"])
    assert job["name"] == "sh" and job["script"].startswith("# gpu-cli run: sh\n")
    # Ctrl-C is the command's, once that is there.
    shell.type("echo be''gun; sleep 1000\r")
    shell.wait_for("begun")
    shell.forget()
    shell.type("\x03")
    shell.type("echo status $?\r")
    shell.wait_for("status 130")
    shell.type("exit 9\r")
    assert shell.wait_end() == 9 and shell.restored()
    over = world.api().wait_for(job["job_id"])
    assert (over["state"], over["exit_code"]) == ("failed", 9)


def test_a_run_is_detached_and_resumed(world, screen):
    shell = screen("run", "-it", "sh")
    shell.type("PS1='rea''dy> '; COLOR=teal\r")
    shell.wait_for("ready> ")
    shell.type("\x10\x11")
    assert shell.wait_end() == 0
    text = shell.read()
    back = text.split("resume it with: ")[1].splitlines()[0].split()
    job = newest(world)["id"]
    assert back[:2] == ["gpu-cli", "exec"] and job in back
    world.api().wait_for(job, "running")
    again = screen(*back[1:])
    again.type("echo it is $COLOR; exit 4\r")
    again.wait_for("it is teal")
    assert again.wait_end() == 4
    assert world.api().wait_for(job)["exit_code"] == 4


@pytest.mark.parametrize("by", ["signal", "close"])
def test_a_lost_terminal_ends_the_run(world, screen, by):
    shell = screen("run", "-it", "sh")
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    job = newest(world)["id"]
    if by == "signal":
        shell.process.send_signal(signal.SIGHUP)
    else:
        # Nobody is told by a signal: it is no controlling terminal.
        os.close(shell.slave)
        os.close(shell.master)
        shell.master, shell.slave = (os.open("/dev/null", os.O_RDWR) for _ in range(2))
    assert shell.process.wait(PATIENCE_S) == 129
    assert world.api().wait_for(job)["state"] in ("cancelled", "failed")


def test_run_ends_with_the_time_limit(world):
    done = world.cli("run", "--time", "2s", "sleep", "1000")
    assert done.returncode == 124, done.stderr


# Submissions while the scheduler restarts.


@pytest.mark.own_world
@pytest.mark.parametrize("words", [["submit", "--"], ["submit", "--wait", "--"], ["run", "--"]])
def test_a_submission_survives_a_killed_scheduler(world, words):
    world.scheduler.kill()
    assert "no scheduler answers" in world.cli("submit", "--no-retry", "--", "true", expected=3).stderr
    with world.cli_start(*words, "true") as submitter:
        assert "repeating the submission" in submitter.stderr.readline().decode()
        world.scheduler.start()
        _, err = submitter.communicate(timeout=PATIENCE_S)
        assert submitter.returncode == 0, err
        assert b"repeating" not in err
    assert len(world.api().jobs()) == 1


@pytest.mark.own_world
def test_kill_9_amid_submissions_leaves_one_job_each(world):
    """Clients whose answers were lost with the scheduler find the job that they have submitted."""
    clients = [world.cli_start("submit", "--name", f"job{number}", "--", "true") for number in range(8)]
    world.scheduler.kill()
    world.scheduler.start()
    more = [world.cli_start("submit", "--name", f"more{number}", "--", "true") for number in range(8)]
    world.scheduler.restart()
    printed = []
    for client in clients + more:
        out, err = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0, err
        printed.append(out.decode().strip())
    jobs = world.api().jobs()
    assert sorted(job["id"] for job in jobs) == sorted(printed)
    assert len({job["name"] for job in jobs}) == len(jobs) == 16


@pytest.mark.own_world
def test_a_stream_of_submissions_survives_a_killed_scheduler(world):
    lines = world.folder / "jobs.ndjson"
    lines.write_text("".join('{"spec":{"command":["true"]}}\n' for _ in range(50)))
    world.scheduler.kill()
    with world.cli_start("submit", "--stream", str(lines)) as submitter:
        assert "repeating the submission" in submitter.stderr.readline().decode()
        world.scheduler.start()
        out, err = submitter.communicate(timeout=PATIENCE_S)
        assert submitter.returncode == 0, err
    assert len(out.split()) == 50 and len(world.api().jobs()) == 50


# Small things of every day.


def test_exec_needs_no_dashes(world):
    job = world.api().submit("sleep 1000")
    world.api().wait_for(job, "running")
    assert world.cli("exec", job, "echo", "-n", "--", "x", expected=0).stdout == "-- x"
    assert world.cli("exec", job, "--", "echo", "x", expected=0).stdout == "x\n"
    assert world.cli("exec", "-i", job, "cat", text_in="through", expected=0).stdout == "through"


def test_cp_brings_files_into_a_job(world, tmp_path):
    job = world.api().submit("sleep 1000")
    world.api().wait_for(job, "running")
    data = noise(3_000_000)
    (tmp_path / "in.bin").write_bytes(data)
    (tmp_path / "in.bin").chmod(0o750)
    world.cli("cp", str(tmp_path / "in.bin"), f"{job}:", expected=0)
    world.cli("exec", job, "mkdir", "sub", expected=0)
    world.cli("cp", str(tmp_path / "in.bin"), f"{job}:sub", expected=0)
    world.cli("cp", str(tmp_path / "in.bin"), f"{job}:sub/other.bin", expected=0)
    for name in ("in.bin", "sub/in.bin", "sub/other.bin"):
        world.cli("cp", f"{job}:{name}", str(tmp_path / "back"), expected=0)
        assert (tmp_path / "back").read_bytes() == data
    assert world.cli("exec", job, "stat", "-c", "%a", "in.bin", expected=0).stdout == "750\n"
    world.cli("cp", "-", f"{job}:text", text_in="typed\n", expected=0)
    assert world.cli("cp", f"{job}:text", "-", expected=0).stdout == "typed\n"
    # What cannot be written, read or named is one sentence, and leaves nothing behind.
    assert "no/such" in world.cli("cp", str(tmp_path / "in.bin"), f"{job}:no/such/folder", expected=4).stderr
    assert "is a folder" in world.cli("cp", "-", f"{job}:sub", text_in="x", expected=4).stderr
    assert "cannot read" in world.cli("cp", str(tmp_path / "missing"), f"{job}:", expected=2).stderr
    assert "tar -c" in world.cli("cp", str(tmp_path), f"{job}:", expected=2).stderr
    assert "one of the two" in world.cli("cp", str(tmp_path / "in.bin"), "x", expected=2).stderr
    assert ".part-" not in world.cli("exec", job, "ls", "-aR", expected=0).stdout
    world.api().cancel(job)
    world.api().wait_for(job, "cancelled")
    assert "has ended" in world.cli("cp", str(tmp_path / "in.bin"), f"{job}:", expected=4).stderr


def test_short_ids_are_understood_wherever_a_job_is_named(world, tmp_path):
    job = world.cli("submit", "--name", "short", "--", "sh", "-c", "echo out; echo x > made; sleep 1000", expected=0).stdout.strip()
    number = job.removeprefix("job-")
    world.api().wait_for(job, "running")
    wait_until("it has written", lambda: world.cli("logs", number).stdout == "out\n")
    for words in (["get", number], ["explain", number], ["history", number], ["logs", number]):
        assert world.cli(*words, expected=0).stderr == ""
    wait_until("the file is there", lambda: world.cli("cp", f"{number}:made", str(tmp_path / "made")).returncode == 0)
    assert (tmp_path / "made").read_text() == "x\n"
    world.cli("cp", str(tmp_path / "made"), f"{number}:back", expected=0)
    assert world.cli("exec", number, "cat", "back", expected=0).stdout == "x\n"
    child = world.cli("submit", "--after", f"any:{number}", "--hold", "--", "true", expected=0).stdout.strip()
    world.cli("moves", "--for", child.removeprefix("job-"), expected=0)
    world.cli("update", child.removeprefix("job-"), "--name", "other", expected=0)
    world.cli("release", child.removeprefix("job-"), expected=0)
    world.cli("cancel", child.removeprefix("job-"), number, expected=0)
    assert world.cli("wait", number, expected=1).returncode == 1
    array = world.cli("submit", "--array", "3-4", "--", "sh", "-c", "echo $GPU_SCHEDULER_ARRAY_INDEX > made$GPU_SCHEDULER_ARRAY_INDEX; sleep 1000", expected=0).stdout.strip()
    element = f"{array.removeprefix('job-')}_3"
    wait_until("the file is there", lambda: world.cli("cp", f"{element}:made3", str(tmp_path / "made")).returncode == 0)
    assert (tmp_path / "made").read_text() == "3\n"
    wait_until("its start is known", lambda: world.cli("exec", element, "cat", "made3").stdout == "3\n")
    world.cli("cancel", element, expected=0)
    assert world.cli("attach", element, expected=1).returncode == 1


def test_logs_are_read_from_a_time_as_people_write_it(world):
    job = world.api().submit("echo out")
    world.api().wait_for(job)
    for since in ("10m", "1:00:00", "yesterday", "yesterday 00:01", "2020-01-31", "2020-01-31 10:00"):
        assert world.cli("logs", "--since", since, job, expected=0).stdout == "out\n", since
    assert world.cli("logs", "--since", "tomorrow 10:00", job, expected=0).stdout == ""
    assert "yesterday" in world.cli("logs", "--since", "soon", job, expected=2).stderr


def test_times_are_local_for_people_and_utc_in_json(world):
    job = world.api().submit("true", begin_after_seconds=7200)
    began = world.api().job(job)["begin_at"]
    environment = {**world.cli_environment(), "TZ": "Asia/Kolkata"}

    def shown(*words):
        return subprocess.run([program("gpu-cli"), *words], env=environment, capture_output=True, text=True,
                              timeout=PATIENCE_S, check=True).stdout

    then = datetime.datetime.fromisoformat(began[:19] + "+00:00")
    local = then.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30))).isoformat()
    assert local in shown("get", job)
    assert local in shown("explain", job)
    assert began in shown("get", job, "-o", "json")
    assert not any(line.rstrip(")").endswith("Z") for line in shown("get", job).splitlines())
