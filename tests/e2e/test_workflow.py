"""Jobs that wait for a time or for each other, and arrays, with real processes and a scheduler that is killed between."""

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


def submit(world, *words):
    return shown(world, "submit", "--cpus", "0.1", *words).strip()


def test_a_chain_runs_in_its_order_and_a_failure_ends_it(cluster):
    out = cluster.folder / "order.txt"
    first = submit(cluster, "--hold", "--", "sh", "-c", f"echo first >> {out}")
    second = submit(cluster, "--after", first, "--", "sh", "-c", f"echo second >> {out}; exit 3")
    third = submit(cluster, "--after", f"ok:{second}", "--", "sh", "-c", f"echo third >> {out}")
    last = submit(cluster, "--after", f"any:{second}", "--", "sh", "-c", f"echo last >> {out}")
    assert record(cluster, second)["reason"] == "dependency"
    assert f"waits for {first} to complete" in shown(cluster, "explain", second)
    cluster.scheduler.kill()
    cluster.scheduler.start()
    shown(cluster, "release", first)
    cluster.cli("wait", last, expected=0)
    assert out.read_text().split() == ["first", "second", "last"]
    ended = record(cluster, third)
    assert (ended["state"], ended["reason"]) == ("cancelled", "dependency")
    assert second in ended["message"]


def test_an_unknown_parent_is_refused_with_its_field(cluster):
    done = cluster.cli("submit", "--after", "job-999999", "--", "true")
    assert done.returncode != 0
    assert "job-999999" in done.stderr and "dependency_not_found" in done.stderr


def test_a_job_begins_at_its_time_and_fails_at_its_deadline(cluster):
    late = submit(cluster, "--hold", "--deadline", "+1s", "--", "true")
    soon = submit(cluster, "--begin", "+1h", "--", "true")
    assert record(cluster, soon)["reason"] == "begin"
    shown(cluster, "update", soon, "--begin", "none")
    cluster.cli("wait", soon, expected=0)
    wait_until("the deadline has passed", lambda: record(cluster, late)["state"] == "failed")
    assert record(cluster, late)["reason"] == "deadline"


def test_an_array_runs_its_elements_and_each_knows_its_index(cluster):
    folder = cluster.folder / "elements"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    array = submit(cluster, "--array", "0-8:2%2", "--name", "sweep", "-o", f"{folder}/%a.txt", "--", "sh", "-c",
                   "echo $GPU_SCHEDULER_ARRAY_ID $GPU_SCHEDULER_ARRAY_INDEX of $GPU_SCHEDULER_ARRAY_COUNT")
    cluster.cli("wait", array, expected=0)
    assert sorted(path.read_text().strip() for path in folder.iterdir()) == [f"{array} {i} of 5" for i in (0, 2, 4, 6, 8)]
    done = record(cluster, array)
    assert (done["state"], done["array"]["completed"]) == ("completed", 5)
    element = record(cluster, f"{array}[4]")
    assert (element["array_id"], element["array_index"], element["name"]) == (array, 4, "sweep-4")


def test_an_array_is_held_shown_and_cancelled_whole(cluster):
    array = submit(cluster, "--hold", "--array", "0-99999%3", "--", "sleep", "600")
    assert f"{array}[0-99999]" in shown(cluster, "list", "--columns", "id,state")
    assert record(cluster, f"{array}[5000]")["state"] == "pending"
    shown(cluster, "release", array)
    wait_until("three run", lambda: record(cluster, array)["array"]["running"] == 3)
    assert record(cluster, array)["array"]["unexpanded"] == "3-99999"
    shown(cluster, "cancel", f"{array}[77]")
    assert record(cluster, f"{array}[77]")["state"] == "cancelled"
    shown(cluster, "cancel", array)
    wait_until("it is over", lambda: record(cluster, array)["state"] == "cancelled")
    assert record(cluster, array)["array"]["cancelled"] == 100_000


def test_a_job_waits_for_elements_of_an_array(cluster):
    array = submit(cluster, "--hold", "--array", "3-6", "--", "true")
    child = submit(cluster, "--after", f"any:{array}[4-5]", "--", "true")
    number = int(array.removeprefix("job-"))
    assert f"waits for job-{number + 2} to end and job-{number + 3} to end" in shown(cluster, "explain", child)
    refused = cluster.cli("submit", "--after", f"{array}[7]", "--", "true", expected=4)
    assert f"there is no job {array}[7] to depend on" in refused.stderr and "dependency_not_found" in refused.stderr
    shown(cluster, "release", array)
    cluster.cli("wait", child, expected=0)


def test_a_job_whose_parent_is_held_says_so(cluster):
    held = submit(cluster, "--hold", "--", "true")
    child = submit(cluster, "--after", f"any:{held}", "--", "true")
    assert f"{held} is held, to release it: gpu-cli release {held}" in shown(cluster, "explain", child)
    shown(cluster, "release", held)
    cluster.cli("wait", child, expected=0)


def test_whoever_waits_for_a_held_job_is_told(cluster):
    held = submit(cluster, "--hold", "--", "true")
    child = submit(cluster, "--after", f"any:{held}", "--", "true")
    sentence = f"{held} is held; to release it: gpu-cli release {held} (held)"
    for words in (["wait", held], ["attach", held], ["logs", "-f", held]):
        assert sentence in cluster.cli(*words, expected=8).stderr, words
    for more in ([], ["--logs"], ["--timeout", "20s"]):
        done = cluster.cli("submit", "--hold", "--wait", *more, "--", "true", expected=8)
        assert "is held; to release it: gpu-cli release" in done.stderr, more
    assert f"{held} is held, to release it: gpu-cli release {held}" in shown(cluster, "explain", child)


def test_output_is_followed_until_the_time_to_wait_is_over(cluster):
    done = cluster.cli("submit", "--wait", "--logs", "--timeout", "4s", "--", "sh", "-c", "echo begun; exec sleep 600",
                       expected=6)
    assert done.stdout == "begun\n"
    assert done.stderr.splitlines()[-1].endswith("has not ended after 4s; it continues (timeout)")
    cluster.cli("cancel", "--yes", done.stderr.splitlines()[0], expected=0)
