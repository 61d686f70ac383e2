"""gpu-cli as people use it: scripts, arrays, lists, changes of jobs and nodes, contexts, completion."""

import json
import os
import subprocess

import pytest
from harness import program, wait_until


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


def test_a_script_brings_its_options_and_the_command_line_wins(cluster):
    script = cluster.folder / "train.sh"
    script.write_text("#!/bin/bash\n"
                      "#GPU --gpus 2 --time 1h   # for the night\n"
                      "#GPU --label team=vision --name nightly\n"
                      "set -o pipefail\n"  # Not every sh knows this.
                      "echo \"$1 of $# for $GPU_SCHEDULER_GPU_COUNT\"\n")
    done = cluster.cli("submit", "--gpus", "1", "--wait", "--logs", str(script), "--first", "second", expected=0)
    assert done.stdout == "--first of 2 for 1\n"
    job = record(cluster, done.stderr.split()[0])
    assert (job["name"], job["labels"], job["max_runtime_seconds"]) == ("nightly", {"team": "vision"}, 3600)


def test_a_mistake_in_a_script_is_named_with_its_line(cluster):
    script = cluster.folder / "wrong.sh"
    script.write_text("#!/bin/sh\n\n#GPU --gpu 2\ntrue\n")
    done = cluster.cli("submit", str(script), expected=2)
    assert done.stderr == "gpu-cli: wrong.sh:3: there is no option --gpu; did you mean --gpus? (usage)\n"


def test_a_script_comes_by_standard_input(cluster):
    done = cluster.cli("submit", "--wait", "--logs", "-", "a", "b", text_in="#GPU --cpus 0.1\necho $#\n", expected=0)
    assert done.stdout == "2\n"


def test_only_what_is_asked_for_goes_along(cluster):
    environment = {**cluster.cli_environment(), "SECRET": "1", "CHOSEN": "2"}
    for words, expected in ((), ["", ""]), (("--export", "CHOSEN"), ["", "2"]), (("--export", "ALL"), ["1", "2"]):
        done = subprocess.run([program("gpu-cli"), "submit", *words, "--wait", "--logs", "--", "sh", "-c",
                               "echo \"$SECRET\"; echo \"$CHOSEN\""], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout.splitlines() == expected, words


def test_what_failed_of_an_array_is_read_and_run_again(cluster):
    repaired = cluster.folder / "repaired"
    repaired.parent.chmod(0o755)
    script = f"echo element $GPU_SCHEDULER_ARRAY_INDEX with $SECRET; test $GPU_SCHEDULER_ARRAY_INDEX != 2 || test -e {repaired}"
    environment = {**cluster.cli_environment(), "SECRET": "salt"}
    array = subprocess.run([program("gpu-cli"), "submit", "--cpus", "0.1", "--array", "1-3", "--export", "SECRET", "--", "sh", "-c", script],
                           capture_output=True, text=True, env=environment, check=True).stdout.strip()
    assert cluster.cli("wait", array).returncode != 0
    lines = [f"[{index}] element {index} with salt" for index in (1, 2, 3)]
    assert shown(cluster, "logs", array).splitlines() == lines
    assert sorted(shown(cluster, "logs", "-f", array).splitlines()) == lines
    repaired.touch()
    again = shown(cluster, "rerun", "--failed", array).strip()
    assert shown(cluster, "wait", "last") == f"{again} completed\n"
    assert shown(cluster, "logs", again) == "[2] element 2 with salt\n"
    assert record(cluster, again)["array"]["indexes"] == "2"
    refused = cluster.cli("rerun", "--failed", again)
    assert refused.stderr == f"gpu-cli: no element of {again} failed (conflict)\n"
    assert [line.split()[0] for line in shown(cluster, "list", "--me", "--limit", "1", "--no-header").splitlines()] == [f"{again}[2]"]


def test_an_array_is_submitted_waited_for_and_found(cluster):
    done = cluster.cli("submit", "--array", "1-6:2", "--name", "sweep", "--cpus", "0.1", "--wait", "--", "sh", "-c",
                       "test $GPU_SCHEDULER_ARRAY_INDEX -ne 5 || exit 5")
    assert done.returncode == 1
    array = done.stdout.split()[0]
    assert "1 of its 3 elements failed" in done.stderr
    assert "2 completed, 1 failed" in shown(cluster, "get", array)
    assert shown(cluster, "get", f"{array}[5]", "-o", "name").split() != [array]
    names = shown(cluster, "list", "--name", "sweep-*", "--elements", "--sort", "name", "--columns", "name,exit", "--no-header")
    assert [line.split() for line in names.splitlines()] == [["sweep-1", "0"], ["sweep-3", "0"], ["sweep-5", "5"]]


def test_a_list_is_filtered_sorted_and_printed_as_asked(cluster):
    jobs = [cluster.cli("submit", "--hold", "--name", f"listed-{i}", "--gpus", str(gpus), "--label", f"kind={i % 2}", "--", "true",
                        expected=0).stdout.strip() for i, gpus in enumerate((1, 4, 2))]
    listed = ("list", "--name", "listed-*")
    assert shown(cluster, *listed, "-o", "name").split() == jobs[::-1]
    assert shown(cluster, *listed, "--sort", "gpus", "-o", "name").split() == [jobs[1], jobs[2], jobs[0]]
    assert shown(cluster, *listed, "--sort", "-gpus", "-o", "name").split() == [jobs[0], jobs[2], jobs[1]]
    assert shown(cluster, *listed, "-l", "kind=0", "-o", "name").split() == [jobs[2], jobs[0]]
    assert shown(cluster, *listed, "--state", "running", "-o", "name") == ""
    assert shown(cluster, *listed, "--since", "1d", "--limit", "1", "-o", "name").split() == jobs[2:]
    table = shown(cluster, *listed, "--columns", "id,gpus,state", "--sort", "id").splitlines()
    assert [line.split() for line in table] == [["ID", "GPUS", "STATE"], [jobs[2], "2", "held"], [jobs[1], "4", "held"],
                                                [jobs[0], "1", "held"]]
    as_json = json.loads(shown(cluster, *listed, "-o", "json"))
    assert [job["id"] for job in as_json["jobs"]] == jobs[::-1]
    assert f"- id: {jobs[2]}\n" in shown(cluster, *listed, "-o", "yaml")
    cluster.cli("cancel", *jobs, expected=0)


def test_the_jobs_of_a_user_are_found_in_every_format(cluster):
    job = shown(cluster, "submit", "--hold", "--user", "nobody", "--", "true").strip()
    shown(cluster, "submit", "--hold", "--", "true")
    assert shown(cluster, "list", "--user", "nobody", "-o", "name").split() == [job]
    assert [found["id"] for found in json.loads(shown(cluster, "list", "--user", "nobody", "-o", "json"))["jobs"]] == [job]
    assert "nobody" in shown(cluster, "get", job)


def test_a_job_is_held_updated_released_and_requeued(cluster):
    job = shown(cluster, "submit", "--hold", "--", "sleep", "600").strip()
    assert record(cluster, job)["state"] == "pending"
    shown(cluster, "update", job, "--priority", "7", "--name", "other", "--time", "2h")
    changed = record(cluster, job)
    assert (changed["priority"], changed["name"], changed["max_runtime_seconds"]) == (7, "other", 7200)
    shown(cluster, "release", job)
    wait_until("it runs", lambda: record(cluster, job)["state"] == "running")
    assert cluster.cli("hold", job).returncode == 4
    shown(cluster, "requeue", job)
    wait_until("it runs again", lambda: record(cluster, job)["attempts"] == 2 and record(cluster, job)["state"] == "running")
    shown(cluster, "cancel", job)


def test_waiting_gives_up_when_told_to_and_ends_with_the_first(cluster):
    long = shown(cluster, "submit", "--cpus", "0.1", "--", "sleep", "600").strip()
    done = cluster.cli("wait", long, "--timeout", "1s", expected=6)
    assert done.stderr.endswith("(timeout)\n")
    short = shown(cluster, "submit", "--cpus", "0.1", "--", "sh", "-c", "exit 9").strip()
    done = cluster.cli("wait", "--any", long, short, expected=9)
    assert done.stdout == f"{short} failed\n"
    shown(cluster, "cancel", long)


def test_a_node_is_drained_resumed_and_labelled(cluster):
    gate = cluster.folder / "gate"
    job = shown(cluster, "submit", "--cpus", "0.1", "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done").strip()
    wait_until("it runs", lambda: record(cluster, job)["state"] == "running")
    assert "n1 draining" in shown(cluster, "node", "drain", "n1", "--reason", "new fans")
    assert "new fans" in shown(cluster, "node", "list")
    waiting = shown(cluster, "submit", "--cpus", "0.1", "--", "true").strip()
    draining = cluster.cli_start("node", "drain", "n1", "--reason", "new fans", "--wait")
    assert record(cluster, waiting)["state"] == "pending"
    gate.touch()
    assert draining.communicate(timeout=60)[0] == b"n1 drained\n"
    shown(cluster, "node", "resume", "n1")
    assert cluster.cli("wait", waiting).returncode == 0
    assert shown(cluster, "node", "label", "n1", "zone=a", "rack=7") == "n1: rack=7, zone=a\n"
    assert "zone=a" in shown(cluster, "node", "show", "n1")
    shown(cluster, "node", "label", "n1", "zone-", "rack-")
    assert cluster.cli("node", "show", "n9").returncode == 4


def test_contexts_name_schedulers(cluster):
    home = cluster.folder / "home"
    home.mkdir()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    url = cluster.cli_environment()["GPU_SCHEDULER_URL"]

    def cli(*words):
        return subprocess.run([program("gpu-cli"), *words], capture_output=True, text=True, env=environment, check=False)

    assert cli("context", "set", "lab", "--api-url", url, "--token-file", str(cluster.scheduler.data_dir / "token")).returncode == 0
    assert (home / ".config/gpu-scheduler/contexts.json").stat().st_mode & 0o777 == 0o600
    assert "n1" in cli("node", "list", "-o", "name").stdout
    cli("context", "set", "nowhere", "--api-url", "http://127.0.0.1:1")
    assert cli("cluster", "--context", "nowhere").returncode == 3
    assert cli("context", "use", "nowhere").returncode == 0
    assert cli("cluster").returncode == 3


def test_bash_completes_ids_and_options(cluster):
    job = shown(cluster, "submit", "--hold", "--name", "completed", "--", "true").strip()
    script = ("source <(gpu-cli completion bash)\n"
              "try() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _gpu_cli 2>/dev/null; echo \"${COMPREPLY[@]}\"; }\n"
              f"try gpu-cli cancel {job}\n"
              "try gpu-cli node drain n\n"
              "try gpu-cli list --state = run\n"
              "try gpu-cli submit --gpu-mem\n")
    environment = cluster.cli_environment()
    environment["PATH"] = os.path.dirname(program("gpu-cli")) + ":" + environment.get("PATH", "")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == [job, "n1", "running", "--gpu-memory --gpu-memory-each"]
    shown(cluster, "cancel", job)


def test_manual_pages_are_written(cluster):
    folder = cluster.folder / "man"
    shown(cluster, "man", str(folder))
    pages = sorted(page.name for page in folder.iterdir())
    assert "gpu-cli.1" in pages and "gpu-cli-node-drain.1" in pages
    assert (folder / "gpu-cli-submit.1").read_text().startswith(".TH GPU\\-CLI\\-SUBMIT 1 ")


def test_without_a_scheduler_it_says_what_to_do(cluster):
    done = cluster.cli("--api-url", "http://127.0.0.1:1", "list", expected=3)
    assert "gpu-scheduler dev" in done.stderr and "--api-url" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_job_runs_where_it_is_submitted(cluster, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    done = cluster.cli("submit", "--wait", "--logs", "--", "pwd", expected=0, cwd=here)
    assert os.path.samefile(done.stdout.strip(), here)
    done = cluster.cli("submit", "--wait", "--logs", "--chdir", "..", "--", "pwd", expected=0, cwd=here)
    assert os.path.samefile(done.stdout.strip(), tmp_path)
    done = cluster.cli("submit", "--wait", "--logs", "--chdir", "-", "--", "pwd", expected=0, cwd=here)
    assert "/attempts/" in done.stdout
    script = here / "job.sh"
    script.write_text("pwd\n")
    done = cluster.cli("submit", "--wait", "--logs", "job.sh", expected=0, cwd=here)
    assert os.path.samefile(done.stdout.strip(), here)


def test_a_folder_that_the_node_does_not_have_is_told_once_and_is_no_failure(cluster, tmp_path):
    here = tmp_path / "gone"
    here.mkdir()
    job = cluster.cli("submit", "--hold", "--", "sh", "-c", "pwd; echo end >&2", expected=0, cwd=here).stdout.strip()
    asked = cluster.cli("submit", "--hold", "--chdir", ".", "--", "pwd", expected=0, cwd=here).stdout.strip()
    here.rmdir()
    cluster.cli("release", job, asked, expected=0)
    api = cluster.api()
    assert api.wait_for(job)["exit_code"] == 0
    assert "/attempts/" in api.output(job)
    told, end, rest = api.output(job, "stderr").split("\n")
    assert f"cannot enter the folder '{here}'" in told and "--chdir" in told
    assert (end, rest) == ("end", "")
    wait_until("it says why", lambda: f"cannot enter the working directory '{here}'" in api.job(asked)["message"])
    api.cancel(asked)


def test_the_node_names_the_files_of_jobs(cluster, tmp_path):
    job = cluster.cli("submit", "--name", "a/b", "-o", "%x-%j@%N.%%", "--wait", "--", "echo", "one",
                      expected=0, cwd=tmp_path).stdout.split()[0]
    assert (tmp_path / f"a_b-{job}@n1.%").read_text() == "one\n"
    jobs = cluster.cli("submit", "--array", "3,7", "-o", "%A_%a.out", "-e", "%%a", "--wait", "--",
                       "sh", "-c", "echo $GPU_SCHEDULER_ARRAY_INDEX", expected=0, cwd=tmp_path).stdout
    assert "job-" in jobs
    files = sorted(tmp_path.glob("*_*.out"))
    assert [path.read_text() for path in files] == ["3\n", "7\n"]
    assert len({path.name.split("_")[0] for path in files}) == 1
    assert (tmp_path / "%a").exists()
    refused = cluster.cli("submit", "-o", "%q.out", "--", "true", cwd=tmp_path)
    assert refused.returncode != 0
    assert '--output has "%q", which is not a known placeholder' in refused.stderr


def into_a_full_disk(world, *words):
    """gpu-cli whose standard output takes nothing."""
    with open("/dev/full", "w", encoding="ascii") as full:
        return subprocess.run([program("gpu-cli"), *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
                              env=world.cli_environment(), cwd=world.folder, timeout=60, stdin=subprocess.DEVNULL)


def test_output_that_cannot_be_written_is_an_exit_code_and_a_sentence(cluster):
    job = shown(cluster, "submit", "--", "sh", "-c", "echo here; sleep 1000").split()[0]
    wait_until("it runs", lambda: record(cluster, job)["state"] == "running")
    for words in (["list"], ["list", "--json"], ["get", job], ["get", job, "-o", "yaml"], ["explain", job], ["status"],
                  ["node", "list"], ["node", "show", "n1"], ["tenant", "list"], ["moves"], ["logs", job], ["attach", job],
                  ["quality"], ["plan", "--", "true"], ["submit", "--", "true"], ["hold", "job-9999999"], ["top", "--once"],
                  ["cancel", job], ["--help"], ["--version"], ["list", "--help"], ["completion", "bash"]):
        done = into_a_full_disk(cluster, *words)
        if done.returncode in (2, 4) and done.stderr:
            continue  # There was nothing to say but the refusal.
        assert done.returncode == 7, (words, done)
        assert "gpu-cli: cannot write the output: No space left on device" in done.stderr, (words, done)
