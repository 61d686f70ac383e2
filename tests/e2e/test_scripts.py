"""Scripts as files of the node: run by the interpreter that their first line names, with a path of their own."""

import os
import pathlib

import pytest
from harness import wait_until
from security import NEEDS_ROOT, throw_away_users


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


@pytest.fixture(name="users")
def users_fixture():
    with throw_away_users() as users:
        yield users


def output_of(world, name, text, *arguments):
    script = world.folder / name
    script.write_bytes(text.encode())
    return world.cli("submit", "--wait", "--logs", str(script), *arguments, expected=0).stdout


def test_a_shell_script_knows_its_file_and_the_folder_it_came_from(cluster):
    lines = output_of(
        cluster, "paths.sh", "#!/bin/bash\n"
        "echo \"$0\"; echo \"${BASH_SOURCE[0]}\"; stat -c '%a %U' \"$0\"; id -un; echo \"$1\"\n"
        "echo \"$GPU_SCHEDULER_SCRIPT_DIR\"\n", "first").splitlines()
    assert lines[0] == lines[1] and lines[0].startswith("/") and lines[0].endswith("/script"), lines
    assert lines[2:] == [f"700 {lines[3]}", lines[3], "first", str(cluster.folder)]
    wait_until("the script is gone with its job", lambda: not os.path.exists(lines[0]))


def test_python_processes_that_are_spawned_find_the_script(cluster):
    text = ("#!/usr/bin/env -S python3 -u\n"
            "import multiprocessing\n"
            "def square(n):\n"
            "    return n * n\n"
            "if __name__ == '__main__':\n"
            "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
            "        print(pool.map(square, range(4)), __file__.endswith('/script'))\n")
    assert output_of(cluster, "spawn.py", text) == "[0, 1, 4, 9] True\n"


def test_perl_reads_the_data_behind_its_end(cluster):
    assert output_of(cluster, "data.pl", "#!/usr/bin/perl\nprint while <DATA>;\n__DATA__\nread\n") == "read\n"


def test_any_interpreter_runs_a_script(cluster):
    assert output_of(cluster, "sum.awk", "#!/usr/bin/awk -f\nBEGIN { print 2 + ARGV[1] }\n", "3") == "5\n"


def test_a_script_of_200_kib_runs(cluster):
    text = "#!/bin/sh\n" + ("# " + "x" * 97 + "\n") * 2048 + "echo end\n"
    assert len(text) > 200_000
    assert output_of(cluster, "large.sh", text) == "end\n"


def test_a_script_without_an_interpreter_is_text_of_sh(cluster):
    assert output_of(cluster, "plain.sh", "echo \"$0\"\n") == "/bin/sh\n"


def test_an_interpreter_that_is_not_there_is_named(cluster):
    script = cluster.folder / "strange"
    script.write_text("#!/no/such/interpreter\n")
    job = cluster.cli("submit", str(script), expected=0).stdout.strip()
    ended = cluster.api().wait_for(job)
    assert ended["exit_code"] == 127, ended
    assert "cannot start '/no/such/interpreter'" in cluster.api().output(job, "stderr")


@NEEDS_ROOT
@pytest.mark.parametrize("arguments", [[], ["--private-tmp"]], ids=["shared tmp", "own tmp"])
def test_nobody_else_reads_or_replaces_a_script(new_world, users, arguments):
    owner, other = users.add(), users.add()
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", allow_root_jobs=False, arguments=arguments).start()
    text = "#!/bin/sh\n# secret\necho \"$0\"; stat -c '%a %U' \"$0\"; until [ -e go ]; do sleep 0.1; done; echo end\n"
    job = world.api().submit(text, user=owner)
    wait_until("the script runs", lambda: world.api().job(job)["state"] == "running")
    wait_until("the script says where it is", lambda: len(world.api().output(job).split()) == 3)
    path, mode, user = world.api().output(job).split()
    assert (mode, user) == ("700", owner)
    folder = world.folder / "n1"
    found = [entry for entry in folder.rglob("script") if entry.is_file()]
    assert len(found) == 1, found
    if not arguments:
        assert pathlib.Path(path) == found[0]
    real = found[0]
    assert os.stat(real).st_uid != 0
    attack = (f"cat {real} && echo read; echo evil > {real} && echo written; rm {real} && echo removed; "
              f"mv {real} {real}.old && echo moved; ln -s /etc/passwd {real.parent}/link && echo linked; "
              f"{real} && echo run; true")
    attacker = world.api().submit(attack, user=other)
    assert world.api().wait_for(attacker)["state"] == "completed"
    assert world.api().output(attacker) == ""
    assert real.read_text() == text
    attempt = real.parent.parent if arguments else real.parent
    (attempt / "work" / "go").touch()
    assert world.api().wait_for(job)["state"] == "completed"
    assert world.api().output(job).split()[-1] == "end"
    wait_until("the script is gone with its job", lambda: not real.exists())


@NEEDS_ROOT
def test_a_link_that_waits_where_the_script_goes_is_not_followed(new_world, users):
    """A job's own TMPDIR is the only place where a script stands that a user can write to."""
    owner = users.add()
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", allow_root_jobs=False, arguments=["--private-tmp"]).start()
    victim = world.folder / "victim"
    victim.write_text("kept")
    plant = world.api().submit(f"ln -s {victim} /tmp/script; ln -s {victim} script; true", user=owner)
    assert world.api().wait_for(plant)["state"] == "completed"
    for _ in range(3):  # Folders of jobs before may be used again.
        job = world.api().submit("#!/bin/sh\necho \"$0\"\n", user=owner)
        assert world.api().wait_for(job)["state"] == "completed"
        assert world.api().output(job) == "/tmp/script\n"
    assert victim.read_text() == "kept" and os.stat(victim).st_uid == 0
