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


def test_a_script_with_sbatch_lines_has_the_variables_of_slurm(cluster):
    text = ("#!/bin/bash\n#SBATCH --job-name=train -c 2 --gres=gpu:2 --ntasks=1\n"
            "touch \"$SLURM_TMPDIR/x\" && rm -rf $SLURM_TMPDIR/* && env | grep ^SLURM | sort\n"
            "echo \"$TMPDIR $GPU_SCHEDULER_JOB_ID\"\n")
    *lines, last = output_of(cluster, "slurm.sh", text).splitlines()
    tmp, job = last.split()
    number = job.removeprefix("job-")
    assert dict(line.split("=", 1) for line in lines) == {
        "SLURM_JOB_ID": number, "SLURM_JOBID": number, "SLURM_JOB_NAME": "train",
        "SLURM_SUBMIT_DIR": str(cluster.folder), "SLURM_CPUS_PER_TASK": "2", "SLURM_CPUS_ON_NODE": "2",
        "SLURM_GPUS": "2", "SLURM_GPUS_ON_NODE": "2", "SLURM_NNODES": "1", "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "n1", "SLURM_NODELIST": "n1", "SLURMD_NODENAME": "n1", "SLURM_TASKS_PER_NODE": "1",
        "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_TMPDIR": tmp}


def test_an_element_has_the_variables_of_slurms_arrays(cluster):
    script = cluster.folder / "array.sh"
    script.write_text("#!/bin/bash\n#SBATCH --array=2-8:3 -c 1\n"
                      "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN "
                      "$SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP $SLURM_JOB_ID\n")
    array = cluster.cli("submit", str(script), expected=0).stdout.strip()
    cluster.cli("wait", array, expected=0)
    number = int(array.removeprefix("job-"))
    assert cluster.cli("logs", f"{number}_5", expected=0).stdout == f"{number} 5 3 2 8 3 {number + 2}\n"


def test_what_only_slurm_has_is_told_at_submission(cluster):
    script = cluster.folder / "warned.sh"
    script.write_text("#!/bin/bash\n#SBATCH -c 1 --hint=nomultithread\nsrun -n 1 true\n"
                      "rm -rf /tmp/x$SLURM_SCRATCH/*\n")
    warned = cluster.cli("submit", "--hold", str(script), expected=0)
    assert warned.stderr.splitlines() == [
        "gpu-cli: warned.sh:2: #SBATCH --hint is left out: it only tunes how a job runs",
        "gpu-cli: warned.sh: no value is set here for SLURM_SCRATCH (line 4); an empty value can change what a command "
        "does",
        "gpu-cli: warned.sh:3: srun: write its command alone: the script runs once on each node (torchrun and mpirun "
        "start more)"], warned.stderr
    cluster.cli("cancel", "--yes", warned.stdout.strip(), expected=0)


def test_all_refused_lines_of_a_script_are_told_at_once(cluster):
    script = cluster.folder / "refused.sh"
    script.write_text("#!/bin/bash\n#SBATCH --qos=high\n#SBATCH --nice=5 --licenses=x\ntrue\n")
    refused = cluster.cli("submit", str(script), expected=2)
    assert [line.split(": ")[1:3] for line in refused.stderr.splitlines()] == [
        ["refused.sh:2", "#SBATCH --qos"], ["refused.sh:3", "#SBATCH --nice"], ["refused.sh:3", "#SBATCH --licenses"]]


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
