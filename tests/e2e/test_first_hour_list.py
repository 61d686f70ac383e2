"""The first hour with gpu-cli: lists of jobs, and ending many of them."""

import contextlib
import json

import pytest
from harness import wait_until
from test_cli_screen import ESCAPES, Terminal


@pytest.fixture(name="cluster", scope="module")
def cluster_fixture(new_module_world):
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    return world


@pytest.fixture(name="alone")
def alone_fixture(cluster):
    """The cluster with nothing in it that has not ended."""
    yield cluster
    cluster.cli("cancel", "--all", "--yes", expected=0)
    wait_until("nothing is left", lambda: not names(cluster, "--state", "active"))


def shown(world, *words):
    return world.cli(*words, expected=0).stdout


def names(world, *words):
    return shown(world, "list", *words, "-o", "name").split()


def submit(world, *words, command=("sleep", "600")):
    return shown(world, "submit", "--cpus", "0.1", *words, "--", *command).strip()


def state_of(world, job):
    return json.loads(shown(world, "get", job, "-o", "json"))["state"]


def many(world, count, *words):
    """Held jobs, so that nothing of them runs."""
    lines = json.dumps({"spec": {"command": ["true"], "name": "many"}, "held": True})
    done = world.cli("submit", "--stream", "-", *words, text_in=f"{lines}\n" * count, expected=0)
    return done.stdout.split()


def screen(world, *words, columns=80, rows=24, keys=""):
    with contextlib.closing(Terminal(world, *words, columns=columns, rows=rows)) as terminal:
        if keys:
            wait_until("it asks", lambda: "[y/N]" in terminal.read())
            terminal.press(keys)
        status = terminal.end()
        return status, [ESCAPES.sub("", line).rstrip("\r") for line in terminal.text.splitlines()]


def test_programs_get_all_jobs_that_match(alone):
    jobs = many(alone, 60)
    assert sorted(names(alone, "--name", "many")) == sorted(jobs)
    assert len(json.loads(shown(alone, "list", "--name", "many", "-o", "json"))["jobs"]) == 60
    assert shown(alone, "list", "--name", "many", "-o", "yaml").count("- id: ") == 60
    assert len(names(alone, "--name", "many", "--limit", "7")) == 7
    # What people write: nothing is left of them.
    shown(alone, "cancel", *names(alone, "--name", "many"))
    assert names(alone, "--name", "many", "--state", "active") == []


def test_the_table_has_what_has_not_ended_and_what_just_did(alone):
    ended = submit(alone, "--name", "short", command=("true",))
    alone.cli("wait", ended, expected=0)
    running = submit(alone, "--name", "runs", "--user", "-")
    waiting = submit(alone, "--gpus", "99", "--name", "waits")
    wait_until("it runs", lambda: state_of(alone, running) == "running")
    lines = shown(alone, "list").splitlines()
    assert lines[0].split() == ["ID", "NAME", "USER", "STATE", "GPUS", "RAN", "NODE/REASON"]
    ids = [line.split()[0] for line in lines[1:]]
    assert ids.index(waiting) < ids.index(running) < ids.index(ended)
    line = {line.split()[0]: line for line in lines[1:]}
    assert line[running].endswith("n1")
    assert "running" in line[running]
    assert "99" in line[waiting]
    assert not line[waiting].endswith(" ")
    assert "completed" in line[ended]
    assert max(map(len, lines)) <= 80


def test_a_terminal_gets_what_fits_and_is_told_what_does_not(alone):
    many(alone, 60)
    status, lines = screen(alone, "list", rows=24)
    assert status == 0
    assert len(lines) <= 23
    assert "further lines do not fit on the screen; gpu-cli list | less shows all" in lines[-1]
    _, lines = screen(alone, "list", "--all", rows=24)
    assert len(lines) > 60
    # A pipe has no height.
    assert len(shown(alone, "list").splitlines()) > 60


@pytest.mark.parametrize("columns", [40, 80, 120, 160])
def test_no_column_is_lost_however_narrow_the_terminal(alone, columns):
    submit(alone, "--hold", "--name", "x" * 60, "--label", "team=" + "v" * 50)
    _, lines = screen(alone, "list", "-o", "wide", "--state", "held", columns=columns, rows=60)
    titles = {line for line in " ".join(lines).split()}
    assert {"ID", "NAME", "STATE", "REASON", "MODEL", "TENANT", "NODE", "SUBMITTED", "TRIES", "LABELS"} <= titles
    assert max(map(len, lines)) <= columns
    _, lines = screen(alone, "list", "--state", "held", columns=columns, rows=60)
    assert {"ID", "NAME", "USER", "STATE", "GPUS", "RAN", "NODE/REASON"} <= set(" ".join(lines).split())
    assert columns != 80 or any("…" in line for line in lines)


def test_elements_of_an_array_are_one_line(alone):
    array = shown(alone, "submit", "--array", "0-19%2", "--cpus", "0.1", "--name", "sweep", "--", "sleep", "600").strip()
    wait_until("two run", lambda: "2 run, 18 wait" in shown(alone, "list"))
    lines = [line for line in shown(alone, "list").splitlines() if "sweep" in line]
    assert len(lines) == 1
    assert lines[0].split()[0] == f"{array}[0-19]"
    assert "running" in lines[0]
    unfolded = shown(alone, "list", "--elements")
    assert f"{array}[0] " in unfolded
    assert f"{array}[1] " in unfolded
    # Those that are placed and have not begun yet count as running above.
    wait_until("they run", lambda: f"{array}[0-1] " in shown(alone, "list", "--state", "running"))


def test_every_state_that_is_shown_can_be_asked_for(alone):
    held = submit(alone, "--hold")
    waiting = submit(alone, "--gpus", "99")
    assert names(alone, "--state", "held") == [held]
    assert set(names(alone, "--state", "pending")) == {held, waiting}
    assert names(alone, "--state", "held,running") == [held]
    table = shown(alone, "list", "--state", "held").splitlines()
    assert [line.split()[0] for line in table[1:]] == [held]
    done = alone.cli("list", "--state", "hold", expected=2)
    assert "did you mean held?" in done.stderr


def test_what_can_never_run_is_pending_never(alone):
    never = submit(alone, "--gpus", "99", "--name", "large")
    labels = submit(alone, "--node-label", "zone=mars", "--name", "far")
    array = submit(alone, "--gpus", "99", "--array", "0-9", "--name", "sweep")
    busy = submit(alone, "--gpus", "4", "--user", "-")
    waits = submit(alone, "--gpus", "4", "--user", "-")
    wait_until("it runs", lambda: state_of(alone, busy) == "running")
    line = {line.split()[0]: line for line in shown(alone, "list").splitlines()}
    for job in (never, labels, f"{array}[0-9]"):
        assert " pending (never) " in line[job], line[job]
    assert " pending " in line[waits] and "never" not in line[waits]
    assert set(names(alone, "--state", "never")) >= {never, labels}
    assert not {busy, waits} & set(names(alone, "--state", "never"))
    assert "pending (never)" in shown(alone, "get", never)
    assert json.loads(shown(alone, "get", never, "-o", "json"))["state"] == "pending"
    cancelled = shown(alone, "cancel", "--state", "never", "--yes").splitlines()
    assert f"{never} cancelled" in cancelled and state_of(alone, waits) == "pending"


def test_a_running_job_that_was_cancelled_is_being_stopped(alone):
    stubborn = "trap '' TERM; touch trapped; while :; do sleep 0.1; done"
    job = submit(alone, "--chdir", str(alone.folder), command=("bash", "-c", stubborn))
    wait_until("it does not listen", (alone.folder / "trapped").exists)
    assert shown(alone, "cancel", job) == f"{job} is being stopped\n"
    assert names(alone, "--state", "stopping") == [job]
    assert "stopping" in shown(alone, "list")
    waiting = submit(alone, "--hold")
    assert shown(alone, "cancel", waiting) == f"{waiting} cancelled\n"
    (alone.folder / "trapped").unlink()
    wait_until("it has ended", lambda: state_of(alone, job) == "cancelled")


def test_jobs_are_cancelled_by_what_they_are(alone):
    mine = submit(alone, "--hold", "--user", "nobody", "--name", "mine", "--label", "team=a")
    other = submit(alone, "--hold", "--name", "other", "--label", "team=b")
    runs = submit(alone, "--name", "runs")
    wait_until("it runs", lambda: state_of(alone, runs) == "running")
    done = alone.cli("cancel", "--user", "nobody", expected=2)
    assert "this would cancel 1 job (1 wait, 0 run); repeat it with --yes to do so" in done.stderr
    assert shown(alone, "cancel", "--user", "nobody", "--yes") == f"{mine} cancelled\n"
    assert shown(alone, "cancel", "--label", "team=b", "--name", "o*", "--yes") == f"{other} cancelled\n"
    assert shown(alone, "cancel", "--state", "running", "-y") == f"{runs} is being stopped\n"
    assert "no job matches" in alone.cli("cancel", "--name", "nothing", "--yes", expected=0).stderr
    assert '"failed" is not known' in alone.cli("cancel", "--state", "failed", "--yes", expected=2).stderr
    assert "no job was named" in alone.cli("cancel", expected=2).stderr
    assert "not both" in alone.cli("cancel", "--all", mine, expected=2).stderr


def test_it_asks_on_a_terminal(alone):
    jobs = many(alone, 3)
    status, lines = screen(alone, "cancel", "--name", "many", keys="n\n")
    assert status == 0
    assert any("Cancel 3 jobs (3 wait, 0 run)? [y/N]" in line for line in lines)
    assert any("nothing was cancelled" in line for line in lines)
    assert len(names(alone, "--name", "many", "--state", "active")) == 3
    status, lines = screen(alone, "cancel", "--name", "many", keys="y\n")
    assert status == 0
    assert all(f"{job} cancelled" in lines for job in jobs)


def test_elements_are_cancelled_by_their_indexes(alone):
    array = shown(alone, "submit", "--hold", "--array", "0-29", "--", "true").strip()
    assert shown(alone, "cancel", f"{array}[10-12,20]").splitlines() == [
        f"{array}[{index}] cancelled" for index in (10, 11, 12, 20)]
    assert f"{array}[0-29]  26 wait, 4 cancelled" in shown(alone, "list", "--columns", "id,where")
    assert "is not a list of element indexes" in alone.cli("cancel", f"{array}[a-b]", expected=2).stderr


def test_each_refusal_names_its_job(alone):
    done = submit(alone, command=("true",))
    alone.cli("wait", done, expected=0)
    refused = alone.cli("cancel", done, "job-999999", expected=4)
    assert done in refused.stderr.splitlines()[0]
    assert "job-999999" in refused.stderr.splitlines()[1]
    held = alone.cli("hold", done, "job-999999", expected=4)
    assert done in held.stderr.splitlines()[0]
    assert "job-999999" in held.stderr.splitlines()[1]


def test_an_array_and_its_elements_are_cancelled_together_without_a_refusal(alone):
    array = shown(alone, "submit", "--array", "0-3", "--cpus", "0.1", "--", "sleep", "600").strip()
    wait_until("they run", lambda: "4 run" in shown(alone, "list"))
    ids = names(alone, "--state", "active")
    assert len(ids) == 5
    done = alone.cli("cancel", array, *[job for job in ids if job != array], expected=0)
    assert done.stderr == ""


def test_tenants_are_named_and_not_numbered(alone):
    tenant = shown(alone, "tenant", "create", "--name", "research").strip()
    job = shown(alone, "--tenant-id", "research", "submit", "--hold", "--", "true").strip()
    assert f"research ({tenant})" in shown(alone, "get", job)
    wide = shown(alone, "list", "-o", "wide")
    assert "research" in wide
    assert tenant not in wide
    assert json.loads(shown(alone, "get", job, "-o", "json"))["tenant_id"] == tenant
    shown(alone, "tenant", "update", "research", "--max-gpus", "1")
    refused = alone.cli("--tenant-id", "research", "submit", "--gpus", "2", "--", "true", expected=4)
    assert "tenant research" in refused.stderr
    assert tenant not in refused.stderr
    first = shown(alone, "--tenant-id", "research", "submit", "--gpus", "1", "--cpus", "0.1", "--", "sleep", "600").strip()
    wait_until("it runs", lambda: state_of(alone, first) == "running")
    waits = shown(alone, "--tenant-id", "research", "submit", "--gpus", "1", "--cpus", "0.1", "--", "true").strip()
    for words in (("explain", waits), ("list",), ("get", waits)):
        text = shown(alone, *words).replace(f"({tenant})", "")
        assert tenant not in text, words


def test_mistakes_are_told_in_the_words_of_the_command_line(alone):
    for words, said in ((("--gpus", "1000000"), "--gpus must be from 0 to 100000"), (("--time", "9999999d"), "--time (in seconds) must be at most"),
                        (("--gpus", "2", "--gpu-share", "0.5"), "remove --gpus or --gpu-share"),
                        (("--require-feasible", "--gpus", "99"), "drop --require-feasible"),
                        (("--name", "x" * 300), "--name is longer than 253 bytes")):
        done = alone.cli("submit", *words, "--", "true", expected=4)
        assert said in done.stderr, done.stderr


def test_the_help_of_submit_begins_with_what_is_common(alone):
    text = shown(alone, "submit", "--help")
    common = text.partition("\nCommon options\n")[2].partition("\n\n")[0]
    options = [line.split()[0].rstrip(",") for line in common.splitlines() if line.startswith("  -")]
    assert sorted(options) == sorted(["--name", "--gpus", "--cpus", "--mem", "-t", "-o", "-a", "--after", "--wait", "--logs"])
    assert text.index("Common options") < text.index("GPUs and nodes") < text.index("Containers") < text.index("Global options")
