"""Sessions in running jobs and files out of them: gpu-cli exec, shell, attach and cp, on a real terminal."""

import errno
import os
import pathlib
import select
import signal
import subprocess
import time

import harness
import pytest
from harness import IS_ROOT, PATIENCE_S, is_alive, program, read_bytes, wait_until

pytestmark = pytest.mark.shared_world
BIG = 100 * 1024 * 1024


def running_job(world, script="sleep 1000", **fields):
    job = world.api().submit(script, **fields)
    world.api().wait_for(job, "running")
    return job


def rss_kb(pid):
    for line in read_bytes(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def attempt_folder(world, job, attempt=1):
    return world.agents()[0].data_dir / "attempts" / f"{job.removeprefix('job-')}-{attempt}-0"


def sessions_left(world):
    """Keepers of sessions that still run for this world."""
    return [pid for pid in harness.processes_of(world.folder)
            if read_bytes(f"/proc/{pid}/cmdline").split(b"\0")[:2] == [b"gpu-shim", b"--session"]]


# Commands, with pipes.


def test_exec_runs_in_the_jobs_place_and_gives_its_code(world):
    job = running_job(world, 'echo "$$" > pid; exec sleep 1000', environment={"COLOR": "teal"}, gpu_count=1)
    done = world.cli("exec", job, "--", "sh", "-c",
                     'echo out; echo err >&2; pwd; echo "$COLOR $CUDA_VISIBLE_DEVICES"; cat pid; exit 7', expected=7)
    lines = done.stdout.splitlines()
    assert lines[0] == "out" and done.stderr == "err\n"
    # The very place and surroundings of the job's own process.
    pid = int(lines[3])
    assert os.path.samefile(lines[1], f"/proc/{pid}/cwd")
    environ = dict(entry.split(b"=", 1) for entry in read_bytes(f"/proc/{pid}/environ").split(b"\0") if b"=" in entry)
    assert lines[2] == f"teal {environ[b'CUDA_VISIBLE_DEVICES'].decode()}"
    assert world.api().job(job)["state"] == "running"


def test_exec_lives_in_the_jobs_groups_and_namespaces_as_its_user(world):
    job = running_job(world, "echo $$ > pid; exec sleep 1000")
    look = "cat /proc/self/cgroup; for n in mnt pid net ipc uts; do readlink /proc/self/ns/$n; done; id"
    pid = int(world.cli("exec", job, "--", "cat", "pid", expected=0).stdout)
    seen = world.cli("exec", job, "--", "sh", "-c", look, expected=0).stdout
    groups = read_bytes(f"/proc/{pid}/cgroup").decode()
    names = [os.readlink(f"/proc/{pid}/ns/{name}") for name in ("mnt", "pid", "net", "ipc", "uts")]
    assert seen.startswith(groups + "\n".join(names) + "\n")
    uid = os.stat(f"/proc/{pid}").st_uid
    assert f"uid={uid}(" in seen or f"uid={uid} " in seen


def test_exec_is_binary_safe_and_passes_the_end_of_input(world):
    job = running_job(world)
    data = harness.noise(3 * 1024 * 1024) + b"\0\xff\r\n\x04"
    done = subprocess.run([program("gpu-cli"), "exec", job, "-i", "--", "cat"], input=data, capture_output=True,
                          timeout=PATIENCE_S, env=world.cli_environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == data
    # Without -i nothing is read, and the command sees an end at once.
    assert world.cli("exec", job, "--", "wc", "-c", text_in="not for it", expected=0).stdout.strip() == "0"


def test_a_missing_command_ends_as_in_a_shell(world):
    job = running_job(world)
    done = world.cli("exec", job, "--", "no-such-command", expected=127)
    assert "no-such-command" in done.stderr
    world.cli("exec", job, "--", "/", expected=126)
    assert world.cli("exec", job, "--", "sh", "-c", "kill -9 $$", expected=137).stdout == ""
    world.cli("exec", job, expected=2)


def test_sessions_are_for_running_jobs_and_ones_own(world):
    api = world.api()
    waiting = api.submit("sleep 1", gpu_count=4, gpu_model="H100")
    done = world.cli("exec", waiting, "--", "true", expected=4)
    assert "has not started" in done.stderr
    over = api.submit("true")
    api.wait_for(over, "completed")
    done = world.cli("exec", over, "--", "true", expected=4)
    assert "the job has ended" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "no such job" in world.cli("exec", "job-99999", "--", "true", expected=4).stderr
    # Another tenant sees none of it.
    mine = running_job(world)
    other = api.post("/tenants", {"name": "others"}, 201)["id"]
    assert "no such job" in world.cli("--tenant-id", other, "exec", mine, "--", "true", expected=4).stderr
    assert "no such job" in world.cli("--tenant-id", other, "cp", f"{mine}:stdout", "-", expected=4).stderr
    status, body, _ = api.call("GET", f"/api/v1/jobs/{mine}/session")
    assert status == 400 and "WebSocket" in body["error"]


def test_signals_reach_the_command(world):
    job = running_job(world)
    with world.cli_start("exec", job, "--", "sh", "-c", "trap 'echo heard; exit 3' INT; echo ready; while :; do sleep 0.1; done") as shell:
        assert shell.stdout.readline() == b"ready\n"
        shell.send_signal(signal.SIGINT)
        out, err = shell.communicate(timeout=PATIENCE_S)
        assert (out, shell.returncode) == (b"heard\n", 3), err


def test_there_are_only_so_many_sessions(world):
    job = running_job(world)
    held = [world.cli_start("exec", job, "--", "sh", "-c", "echo up; sleep 1000") for _ in range(8)]
    try:
        for one in held:
            assert one.stdout.readline() == b"up\n"
        done = world.cli("exec", job, "--", "true", expected=4)
        assert "8 sessions" in done.stderr
    finally:
        for one in held:
            one.kill()
            one.communicate()
    # What they ran is gone with them, and there is room again.
    wait_until("the sessions end", lambda: not sessions_left(world))
    world.cli("exec", job, "--", "true", expected=0)


# On a terminal.


def test_a_shell_has_a_real_terminal_that_follows_ours(world, screen):
    job = running_job(world)
    shell = screen("shell", job, rows=31, columns=97)
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    assert not shell.restored()  # Raw: keys go through as they are.
    shell.type("stty size; tty; echo $TERM\r")
    shell.wait_for("31 97")
    shell.wait_for("/dev/pts/")
    shell.wait_for("xterm-256color")
    shell.resize(40, 120)
    os.kill(shell.process.pid, signal.SIGWINCH)
    shell.forget()

    def resized():
        shell.type("stty size\r")
        return "40 120" in shell.read(0.3)

    wait_until("the new size arrives", resized)
    # Ctrl-C is the command's, not ours.
    shell.type("sleep 4714\r")
    wait_until("it sleeps", lambda: any(
        read_bytes(f"/proc/{pid}/cmdline") == b"sleep\x004714\x00" for pid in world.attempts_left()))
    shell.type("\x03")
    shell.type("echo status $?\r")
    shell.wait_for("status 130")
    shell.type("exit 9\r")
    assert shell.wait_end() == 9
    assert shell.restored()


def test_a_terminal_that_is_none_is_refused(world):
    job = running_job(world)
    done = world.cli("exec", job, "-it", "--", "true", expected=2)
    assert "leave -t out" in done.stderr
    assert world.cli("shell", job, expected=2).stderr.count("\n") == 1


@pytest.mark.parametrize("keys", ["\x10\x11", "\r~."])
def test_one_can_leave_a_session_and_come_back(world, screen, keys):
    job = running_job(world)
    shell = screen("exec", job, "-it", "--", "sh")
    shell.type("PS1='rea''dy> '; COLOR=teal\r")
    shell.wait_for("ready> ")
    shell.forget()
    shell.type(keys)
    assert shell.wait_end() == 0
    assert shell.restored()
    text = shell.read()
    number = text.split("--session ")[1].split()[0]
    assert len(sessions_left(world)) == 1
    again = screen("exec", job, "--session", number, "-it")
    again.type("echo it is $COLOR\r")
    again.wait_for("it is teal")
    # Nobody else can take it from us.
    assert "the session is in use" in world.cli("exec", job, "--session", number, "-i", expected=4).stderr
    again.type("exit 4\r")
    assert again.wait_end() == 4
    assert "no session with this number" in world.cli("exec", job, "--session", number, expected=4).stderr


def test_a_left_session_waits_with_its_output(world, screen):
    job = running_job(world)
    shell = screen("exec", job, "-it", "--", "sh", "-c", "read go; seq 1 200000; echo the end; read go")
    wait_until("the session runs", lambda: len(sessions_left(world)) == 1)
    shell.type("\r")
    shell.wait_for("1\r\n2\r\n")
    shell.type("\x10\x11")
    assert shell.wait_end() == 0
    number = shell.read().split("--session ")[1].split()[0]
    before = rss_kb(world.scheduler.pid())
    again = screen("exec", job, "--session", number, "-it")
    again.wait_for("the end")
    assert rss_kb(world.scheduler.pid()) - before < 16 * 1024
    again.type("\r")
    assert again.wait_end() == 0


@pytest.mark.own_world
@pytest.mark.parametrize("victim", ["agent", "scheduler"])
def test_a_killed_daemon_ends_the_session_and_not_the_job(world, screen, victim):
    job = running_job(world, "while :; do date >> ticks; sleep 0.1; done")
    agent = world.agents()[0]
    shell = screen("shell", job)
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    shell.type("sleep 4711 & cat\r")
    shell.forget()
    (world.scheduler if victim == "scheduler" else agent).kill()
    assert shell.wait_end() == 5
    assert shell.restored()
    lines = [line for line in shell.read().splitlines() if line.startswith("gpu-cli: ")]
    assert len(lines) == 1 and "job" in lines[0] and "(session_lost)" in lines[0], shell.read()
    if victim == "scheduler":
        world.scheduler.start()
    else:
        agent.start()
    wait_until("what the session ran is gone", lambda: not sessions_left(world) and not any(
        b"4711" in read_bytes(f"/proc/{pid}/cmdline") for pid in world.attempts_left()))
    world.api().wait_node("n1")
    assert world.api().job(job)["state"] == "running"
    ticks = attempt_ticks(world, job)
    wait_until("the job goes on", lambda: attempt_ticks(world, job) > ticks)
    wait_until("a new session works", lambda: world.cli("exec", job, "--", "true").returncode == 0)


def attempt_ticks(world, job):
    folder = attempt_folder(world, job)
    return sum(read_bytes(path).count(b"\n") for path in folder.rglob("ticks"))


def test_a_session_ends_with_the_job(world, screen):
    job = running_job(world)
    shell = screen("shell", job)
    shell.type("PS1='rea''dy> '; trap '' HUP TERM\r")
    shell.wait_for("ready> ")
    world.api().cancel(job)
    assert shell.wait_end() == 4
    assert shell.restored()
    assert "the job's attempt has ended" in shell.read()
    world.api().wait_for(job, "cancelled")
    wait_until("nothing of the session is left", lambda: not sessions_left(world))


def test_a_killed_client_takes_its_command_with_it(world, screen):
    job = running_job(world)
    shell = screen("shell", job)
    shell.type("PS1='rea''dy> '; sleep 4712 &\r")
    shell.wait_for("ready> ")
    shell.process.kill()
    wait_until("the session is hung up", lambda: not sessions_left(world))
    assert not any(b"4712" in read_bytes(f"/proc/{pid}/cmdline") for pid in world.attempts_left())
    assert world.api().job(job)["state"] == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_ended_client_restores_its_terminal(world, screen, number):
    job = running_job(world)
    shell = screen("shell", job)
    shell.type("PS1='rea''dy> '\r")
    shell.wait_for("ready> ")
    shell.process.send_signal(number)
    assert shell.wait_end() == 128 + number
    assert shell.restored()
    wait_until("the session is hung up", lambda: not sessions_left(world))


def test_a_slow_reader_costs_no_memory(world):
    """100 MB to a reader that stops for a while, while another one is served and heartbeats go on."""
    job = running_job(world)
    agent = world.agents()[0]
    world.cli("exec", job, "--", "true", expected=0)
    before = {pid: rss_kb(pid) for pid in (world.scheduler.pid(), agent.pid())}
    command = f"head -c {BIG} /dev/zero"
    reader = subprocess.Popen([program("gpu-cli"), "exec", job, "--", "sh", "-c", command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=world.cli_environment())
    try:
        os.set_blocking(reader.stdout.fileno(), False)
        total, peak = 0, 0
        paused = False
        deadline = time.monotonic() + PATIENCE_S * 4
        while True:
            assert time.monotonic() < deadline, total
            peak = max(peak, *(rss_kb(pid) - kb for pid, kb in before.items()))
            if not paused and total > BIG // 10:
                # It stops reading; everything on the way fills up, and nothing grows.
                paused = True
                assert world.cli("exec", job, "--", "echo", "still served", expected=0).stdout == "still served\n"
                time.sleep(1)
                peak = max(peak, *(rss_kb(pid) - kb for pid, kb in before.items()))
                assert world.api().node("n1")["state"] == "ready"
            try:
                piece = os.read(reader.stdout.fileno(), 1 << 20)
            except OSError as error:
                assert error.errno == errno.EAGAIN
                select.select([reader.stdout], [], [], 1)
                continue
            if not piece:
                break
            assert not piece.strip(b"\0")
            total += len(piece)
        assert reader.wait(PATIENCE_S) == 0, reader.stderr.read()
        assert total == BIG and paused
        assert peak < 32 * 1024, f"{peak} KiB more"
    finally:
        reader.kill()
        reader.communicate()


# Following.


def test_attach_follows_and_ends_as_the_job_does(world):
    job = running_job(world, "echo begin; while [ ! -e go ]; do sleep 0.05; done; echo late >&2; exit 6")
    with world.cli_start("attach", job) as attached:
        assert attached.stdout.readline() == b"begin\n"
        world.cli("exec", job, "--", "touch", "go")  # The end of the job may be first.
        out, err = attached.communicate(timeout=PATIENCE_S)
        assert attached.returncode == 6 and out == b""
        assert err.startswith(b"late\n") and b"exited with code 6" in err
    done = world.cli("attach", job, expected=6)
    assert "exited with code 6" in done.stderr


def test_attach_can_be_left_and_said_again(world):
    job = running_job(world, "echo begin; while [ ! -e go ]; do sleep 0.05; done; echo done")
    with world.cli_start("attach", job) as attached:
        assert attached.stdout.readline() == b"begin\n"
        attached.send_signal(signal.SIGINT)
        _, err = attached.communicate(timeout=PATIENCE_S)
        assert attached.returncode == 0 and b"the job continues" in err
    assert world.api().job(job)["state"] == "running"
    with world.cli_start("attach", job) as attached:
        world.cli("exec", job, "--", "touch", "go")  # The end of the job may be first.
        out, err = attached.communicate(timeout=PATIENCE_S)
        assert (attached.returncode, out) == (0, b"begin\ndone\n"), err


# Files.


def test_cp_brings_files_of_running_and_ended_jobs(world, tmp_path):
    data = harness.noise(300_000)
    workdir = tmp_path / "work"
    workdir.mkdir()
    tmp_path.chmod(0o755)
    workdir.chmod(0o777)
    (workdir / "sub").mkdir()
    (workdir / "sub" / "result.bin").write_bytes(data)
    (workdir / "empty").write_bytes(b"")
    job = running_job(world, "while [ ! -e go ]; do sleep 0.05; done", working_directory=str(workdir))
    for _ in ("running", "ended"):
        target = tmp_path / "out"
        target.mkdir(exist_ok=True)
        world.cli("cp", f"{job}:sub/result.bin", str(target), expected=0)
        assert (target / "result.bin").read_bytes() == data
        world.cli("cp", f"{job}:empty", str(target / "nothing"), expected=0)
        assert (target / "nothing").read_bytes() == b""
        done = subprocess.run([program("gpu-cli"), "cp", f"{job}:sub/result.bin", "-"], capture_output=True,
                              timeout=PATIENCE_S, env=world.cli_environment(), check=True)
        assert done.stdout == data
        assert sorted(path.name for path in target.iterdir()) == ["nothing", "result.bin"]
        (workdir / "go").touch()
        world.api().wait_for(job, "completed")
    done = world.cli("cp", f"{job}:gone.bin", str(tmp_path / "gone"), expected=4)
    assert "there is no file gone.bin" in done.stderr and not (tmp_path / "gone").exists()
    assert "JOB:PATH" in world.cli("cp", "results.csv", ".", expected=2).stderr


def test_cp_refuses_what_is_no_small_file(new_world, tmp_path):
    world = new_world(API_COPY_BYTES_MAX=1_000_000)
    world.scheduler.start()
    world.add_agent("n1").start()
    workdir = tmp_path / "work"
    workdir.mkdir()
    tmp_path.chmod(0o755)
    workdir.chmod(0o777)
    (tmp_path / "secret").write_text("not below the working directory")
    (workdir / "inside").write_text("inside")
    (workdir / "folder").mkdir()
    (workdir / "out-link").symlink_to("../secret")
    (workdir / "absolute-link").symlink_to(tmp_path / "secret")
    (workdir / "in-link").symlink_to("folder/../inside")
    (workdir / "loop").symlink_to("loop")
    (workdir / "proc-link").symlink_to("/proc/self/environ")
    (workdir / "device-link").symlink_to("/dev/zero")
    os.mkfifo(workdir / "fifo")
    with open(workdir / "huge", "wb") as file:
        file.truncate(10 << 40)
    with open(workdir / "just-too-large", "wb") as file:
        file.truncate(1_000_001)
    with open(workdir / "just-fits", "wb") as file:
        file.truncate(1_000_000)
    if IS_ROOT:
        os.mknod(workdir / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    job = running_job(world, working_directory=str(workdir))

    def refused(path, words):
        target = tmp_path / "taken"
        done = world.cli("cp", f"{job}:{path}", str(target), expected=4)
        assert words in done.stderr and len(done.stderr.splitlines()) == 1, (path, done.stderr)
        assert not target.exists()

    for path in ("../secret", "out-link", "absolute-link", "folder/../../secret", "proc-link", "device-link"):
        refused(path, "leads outside the job's working directory")
    refused("loop", "link")
    refused("folder", "is a folder")
    refused(".", "is a folder")
    refused("fifo", "only regular files")
    refused("inside/", "there is no file")
    refused("a" * 5_000, "4096")
    for path in ("huge", "just-too-large"):
        refused(path, "at most 1000000")
    if IS_ROOT:
        refused("zero", "only regular files")
    refused("/proc/self/environ", "root" if runs_as_root(world, job) else "/proc/self/environ")
    assert world.cli("cp", f"{job}:in-link", "-", expected=0).stdout == "inside"
    world.cli("cp", f"{job}:just-fits", str(tmp_path / "taken"), expected=0)
    assert (tmp_path / "taken").stat().st_size == 1_000_000


def runs_as_root(world, job):
    return world.cli("exec", job, "--", "id", "-u", expected=0).stdout.strip() == "0"


def test_cp_of_a_growing_file_takes_what_it_was(world, tmp_path):
    workdir = tmp_path / "work"
    workdir.mkdir()
    tmp_path.chmod(0o755)
    workdir.chmod(0o777)
    job = running_job(world, "while :; do head -c 100000 /dev/zero >> growing; done",
                      working_directory=str(workdir), name="grows")
    wait_until("there is something", lambda: (workdir / "growing").exists() and
               (workdir / "growing").stat().st_size > 1_000_000)
    world.cli("cp", f"{job}:growing", str(tmp_path / "taken"), expected=0)
    world.api().cancel(job)
    world.api().wait_for(job, "cancelled")
    taken = (tmp_path / "taken").stat().st_size
    assert 1_000_000 < taken <= (workdir / "growing").stat().st_size


def test_cp_of_a_shrinking_file_fails_in_one_sentence(world, tmp_path):
    workdir = tmp_path / "work"
    workdir.mkdir()
    tmp_path.chmod(0o755)
    (workdir / "shrinking").write_bytes(b"x" * 50_000_000)
    job = running_job(world, working_directory=str(workdir))
    with subprocess.Popen([program("gpu-cli"), "cp", f"{job}:shrinking", "-"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=world.cli_environment()) as copy:
        assert len(copy.stdout.read(1 << 20)) == 1 << 20
        os.truncate(workdir / "shrinking", 10)
        rest, err = copy.communicate(timeout=PATIENCE_S)
        assert copy.returncode != 0 and len(rest) < 49_000_000
        assert len(err.decode().splitlines()) == 1


def test_older_attempts_on_other_nodes_are_found(new_world):
    """A job that was retried elsewhere: the first attempt's output and files are still where it ran."""
    world = new_world()
    world.scheduler.start()
    first = world.add_agent("n1", cpus=2)
    first.start()
    job = world.api().submit("echo attempt on $(hostname) in $PWD; echo kept > note; "
                             "while [ ! -e end ]; do sleep 0.05; done; exit 1",
                             retries=1, cpu_cores=2)
    world.api().wait_for(job, "running")
    second = world.add_agent("n2", cpus=2)
    second.start()
    world.cli("exec", job, "--", "true", expected=0)
    # The first node has no room when the job comes back: something else took it.
    filler = world.api().submit("sleep 1000", cpu_cores=2)
    world.api().wait_for(filler, "running")
    assert world.api().job(filler)["node_name"] == "n2"
    third = world.api().submit("sleep 1000", cpu_cores=2, priority=1_000)
    world.cli("exec", job, "--", "touch", "end")  # The end of the job may be first.
    world.api().wait_for(third, "running")
    world.api().cancel(filler)
    job_now = wait_until("the second attempt runs", lambda: running_attempt(world, job, 2))
    assert job_now["node_name"] == "n2" and world.api().job(third)["node_name"] == "n1"
    assert str(first.data_dir) in world.cli("logs", job, "--attempt", "1", expected=0).stdout
    assert str(second.data_dir) in world.cli("logs", job, expected=0).stdout
    assert "attempt 1 has ended" in world.cli("exec", job, "--attempt", "1", "--", "true", expected=4).stderr
    # The scheduler remembers it over a restart.
    world.scheduler.restart()
    for agent in world.agents():
        agent.wait_registered()
    world.api().wait_node("n1")
    assert str(first.data_dir) in wait_until(
        "the output is there again", lambda: world.cli("logs", job, "--attempt", "1").stdout)


def running_attempt(world, job, number):
    found = world.api().job(job)
    return found if found["state"] == "running" and found["attempts"] == number else None


def test_nothing_of_a_session_is_left_in_the_way(world):
    """A command that starts a daemon and ends: the session ends at once, and the daemon with it."""
    job = running_job(world)
    done = world.cli("exec", job, "--", "sh", "-c", "setsid sleep 4713 > /dev/null 2>&1 & echo begun", expected=0)
    assert done.stdout == "begun\n"
    wait_until("the keeper is gone", lambda: not sessions_left(world))
    left = [pid for pid in world.attempts_left() if b"4713" in read_bytes(f"/proc/{pid}/cmdline")]
    assert not [pid for pid in left if is_alive(pid)]
    assert pathlib.Path(f"/proc/{world.agents()[0].pid()}").exists()
