"""Sessions and copies in containers, by a real podman."""

import os
import subprocess

import pytest
from harness import noise, processes, read_bytes, wait_until
from security import throw_away_users
from session_terminal import Screen
from test_containers import IMAGE, add_agent, podman_fixture

__all__ = ["IMAGE", "podman_fixture"]


@pytest.fixture(name="box")
def box_fixture(new_world, podman):
    """A scheduler and an agent that runs containers, of a user's own jobs. Afterwards none is left."""
    if os.geteuid() != 0:
        pytest.skip("only root starts containers of other users")
    with throw_away_users() as users:
        world = new_world()
        world.folder.chmod(0o755)
        world.user = users.add()
        world.scheduler.start()
        add_agent(world, podman).start()
        yield world
        world.end()
        assert podman.containers() == []


def running_job(world, script="while :; do sleep 1000; done", **fields):
    job = world.api().submit(script, **{"image": IMAGE, "user": world.user, **fields})
    world.api().wait_for(job, "running")
    return job


def in_job(world, job, script, *words, **options):
    return world.cli("exec", job, *words, "--", "/bin/sh", "-c", script, **options)


def test_a_command_is_in_the_container_as_its_user_with_the_jobs_environment(box):
    job = running_job(box, "cd /tmp; echo $$; id -u > uid; cat /proc/self/status | grep NoNewPrivs > rights; "
                           "exec sleep 1000", environment={"GREETING": "hello", "MANY": "a\nb"}, gpu_count=1)
    wait_until("it has said its number", lambda: box.api().output(job).strip())
    done = in_job(box, job, 'echo "$GREETING $COLOUR $MANY $CUDA_VISIBLE_DEVICES"; id -u; cat uid; pwd; '
                            'grep NoNewPrivs /proc/self/status; cat rights; hostname; readlink /proc/self/exe; '
                            'echo oh >&2; exit 7', expected=7)
    lines = done.stdout.splitlines()
    assert done.stderr == "oh\n"
    assert lines[0] == "hello blue a" and lines[1].startswith("b GPU-")
    uid, job_uid, where, rights, job_rights = lines[2:7]
    assert uid == job_uid and where == "/tmp" and rights == job_rights
    # Its own numbers of processes: the job's command is beside it, and /proc is that of the container.
    number = box.api().output(job).strip()
    assert in_job(box, job, f"cat /proc/{number}/cmdline").stdout.startswith("sleep")
    assert in_job(box, job, "readlink /proc/self/exe").stdout.strip().endswith(("busybox", "readlink", "sh"))
    assert in_job(box, job, "cat /proc/1/cmdline").stdout.split("\0")[1] == "--"
    assert in_job(box, job, "cat", "-i", text_in="through\n", expected=0).stdout == "through\n"
    assert box.cli("exec", job, "--", "/bin/absent", expected=127).stderr
    assert in_job(box, job, "kill -9 $$", expected=137)


def test_a_command_has_the_containers_rights_and_no_more(box):
    job = running_job(box, "grep ^Cap /proc/self/status; while :; do sleep 1000; done")
    wait_until("it has said its rights", lambda: len(box.api().output(job).splitlines()) == 5)
    theirs = box.api().output(job)
    assert in_job(box, job, "grep ^Cap /proc/self/status", expected=0).stdout == theirs
    command = in_job(box, job, "cat /proc/self/cgroup", expected=0).stdout
    assert command == in_job(box, job, "cat /proc/1/cgroup", expected=0).stdout


def test_a_terminal_is_led_and_signals_reach_it(box):
    job = running_job(box)
    screen = Screen(box, "shell", job)
    try:
        screen.type("PS1='rea''dy> '\r")
        screen.wait_for("ready> ")
        screen.type("echo be''gun; sleep 1000\r")
        screen.wait_for("begun")
        screen.forget()
        screen.type("\x03")
        screen.type("echo status $?\r")
        screen.wait_for("status 130")
        screen.type("exit 9\r")
        assert screen.wait_end() == 9 and screen.restored()
    finally:
        screen.close()


def test_what_a_session_leaves_behind_in_a_container_ends_with_it(box):
    job = running_job(box)

    def left():
        return [pid for pid in processes() if b"4713" in read_bytes(f"/proc/{pid}/cmdline")]

    in_job(box, job, "(setsid sleep 4713 < /dev/null > /dev/null 2>&1 &)", expected=0)
    wait_until("nothing is left", lambda: not left())
    with box.cli_start("exec", job, "--", "/bin/sh", "-c",
                       "(setsid sleep 4713 < /dev/null > /dev/null 2>&1 &) ; echo on; sleep 4713") as session:
        assert session.stdout.readline() == b"on\n"
        session.kill()
        session.communicate()
    wait_until("nothing is left of a killed one", lambda: not left())
    box.api().wait_for(job, "running")


def test_what_starts_itself_again_and_again_keeps_no_session(box):
    job = running_job(box)
    again = "echo 'setsid sh /tmp/again < /dev/null > /dev/null 2>&1 &' > /tmp/again; sh /tmp/again"
    in_job(box, job, again, expected=0)
    box.api().wait_for(job, "running")
    box.api().cancel(job)
    assert box.api().wait_for(job)["state"] == "cancelled"
    wait_until("nothing is left", lambda: not [pid for pid in processes()
                                               if b"/tmp/again" in read_bytes(f"/proc/{pid}/cmdline")])


def test_a_session_ends_with_the_jobs_container(box):
    job = running_job(box)
    with box.cli_start("exec", job, "--", "/bin/sh", "-c", "echo on; sleep 1000") as session:
        assert session.stdout.readline() == b"on\n"
        box.api().cancel(job)
        session.communicate()
        assert session.returncode != 0
    assert box.api().wait_for(job)["state"] == "cancelled"


def test_files_are_copied_into_a_container_and_out_of_it(box):
    job = running_job(box, "cd /tmp; echo inside > made; exec sleep 1000")
    wait_until("it is there", lambda: box.cli("cp", f"{job}:made", "-").stdout == "inside\n")
    data = noise(3_000_000)
    (box.folder / "data").write_bytes(data)
    box.cli("cp", box.folder / "data", f"{job}:", expected=0)
    box.cli("cp", f"{job}:/tmp/data", box.folder / "back", expected=0)
    assert (box.folder / "back").read_bytes() == data


def test_a_restarted_agent_enters_containers_that_it_finds(box):
    job = running_job(box)
    box.agents()[0].restart()
    box.api().wait_node("n1")
    wait_until("a session works", lambda: in_job(box, job, "true").returncode == 0)


def test_run_gives_a_terminal_in_a_container_and_ends_with_it(box):
    screen = Screen(box, "run", "-it", "--image", IMAGE, "--user", box.user, "sh")
    try:
        screen.wait_for("$")
        screen.type("PS1='rea''dy> '\r")
        screen.wait_for("ready> ")
        screen.type("echo it is $COLOUR, $(cat /proc/1/cmdline | tr '\\0' ' ' | cut -d' ' -f2)\r")
        screen.wait_for("it is blue, --")
        screen.type("exit 9\r")
        assert screen.wait_end() == 9 and screen.restored()
    finally:
        screen.close()
    job = box.api().jobs()[0]["id"]
    assert box.api().wait_for(job)["exit_code"] == 9


def test_a_session_is_refused_that_would_be_root_on_the_machine(box):
    job = running_job(box, user="root")
    refused = in_job(box, job, "true")
    assert refused.returncode != 0 and "runs as root in its container" in refused.stderr


def test_a_job_that_calls_itself_a_containers_runner_is_none(box):
    program = box.folder / "words"
    source = box.folder / "words.c"
    source.write_text("#include <unistd.h>\nint main(void) { return (int)sleep(1000); }\n")
    subprocess.run(["cc", "-o", program, source], check=True)
    program.chmod(0o755)
    job = box.api().submit([str(program), "--container", "folder", str(box.folder)], user=box.user)
    box.api().wait_for(job, "running")
    done = box.cli("exec", job, "--", "/bin/sh", "-c", "echo $GPU_SCHEDULER_JOB_ID", expected=0)
    assert done.stdout.strip() == job
