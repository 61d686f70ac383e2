"""The history over all time: what is in it, who sees it, kill -9 between journal and history, and the copy."""

import csv
import io
import sqlite3
import subprocess
import time
import urllib.request

from harness import program, wait_until


def native(world, path, expected=200, **options):
    status, body, _ = world.api().call("GET", f"/v1{path}", **options)
    assert status == expected, body
    return body


def past(world, **filters):
    query = "&".join(f"{key}={value}" for key, value in filters.items())
    return native(world, f"/history/jobs?{query}")["jobs"]


def wait_past(world, job_id, **filters):
    return wait_until(
        f"{job_id} is in the history", lambda: next((j for j in past(world, **filters) if j["job_id"] == job_id), None)
    )


def metric(world, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


def test_a_finished_job_is_found_by_every_filter_and_its_use_is_counted(world):
    api = world.api()
    good = api.submit("sleep 1", gpu_count=2, name="good")
    bad = api.submit("exit 3", gpu_count=1, name="bad")
    api.wait_for(good)
    api.wait_for(bad)
    found = wait_past(world, good)
    wait_past(world, bad)
    assert (found["name"], found["state"], found["gpu_count"], found["node_name"]) == ("good", "completed", 2, "n1")
    assert found["exit_code"] == 0 and found["attempts"] == 1
    assert [j["job_id"] for j in past(world, state="failed")] == [bad]
    assert past(world, state="failed")[0]["exit_code"] == 3
    assert [j["job_id"] for j in past(world, node="n1")] == [bad, good]
    assert past(world, node="elsewhere") == []
    assert past(world, user="nobody") == []
    assert past(world, until="1h") == []
    page = native(world, "/history/jobs?page_size=1")
    assert [j["job_id"] for j in page["jobs"]] == [bad]
    rest = native(world, f"/history/jobs?page_size=1&page_token={page['next_page_token']}")
    assert [j["job_id"] for j in rest["jobs"]] == [good]

    def used():
        rows = native(world, "/usage?by=model")["rows"]
        return rows if rows and rows[0]["attempts"] == 2 else None

    (row,) = wait_until("both are counted", used)
    assert row["gpu_seconds"] > 2
    # The engine counts the same by itself: what the jobs say they have held.
    held = sum(j["gpu_seconds"] for j in past(world))
    assert abs(row["gpu_seconds"] - held) < 0.1
    assert 0 < row["lost_gpu_seconds"] < row["gpu_seconds"]
    text = world.cli("history", "--state", "failed", expected=0).stdout
    assert bad in text and good not in text
    table = list(csv.DictReader(io.StringIO(world.cli("usage", "--by", "model,node", "--csv", expected=0).stdout)))
    assert [(r["node"], r["attempts"]) for r in table] == [("n1", "2")]
    refused = world.cli("sacct", expected=2)
    assert "gpu-cli history" in refused.stderr
    assert native(world, "/usage?by=colour", expected=400)["error"]


def test_what_runs_counts_up_to_now(world):
    api = world.api()
    runs = api.submit("sleep 1000", gpu_count=1)
    api.wait_for(runs, "running")
    before = wait_until("it counts", lambda: (native(world, "/usage")["rows"] or [{}])[0].get("gpu_seconds"))
    time.sleep(1.1)
    assert native(world, "/usage")["rows"][0]["gpu_seconds"] - before >= 1
    api.cancel(runs)


def test_killed_again_and_again_it_has_each_job_once(world):
    api = world.api()
    jobs = []
    for _ in range(5):
        jobs += [api.submit("true", gpu_count=1) for _ in range(8)]
        time.sleep(0.15)
        world.scheduler.kill()
        world.scheduler.restart()
        api = world.api()
    for job in jobs:
        api.wait_for(job)
    for job in jobs:
        wait_past(world, job, page_size=1000)
    assert sorted(j["job_id"] for j in past(world, page_size=1000)) == sorted(jobs)
    wait_until("it has caught up", lambda: metric(world, "gpu_scheduler_history_lag_seconds") == 0)
    assert metric(world, "gpu_scheduler_history_gaps") == 0
    held = sum(j["gpu_seconds"] for j in past(world, page_size=1000))
    (row,) = native(world, "/usage")["rows"]
    assert abs(row["gpu_seconds"] - held) < 1


def test_the_copy_is_a_database_that_is_never_written_over(world):
    api = world.api()
    job = api.submit("true", gpu_count=1, name="copied")
    api.wait_for(job)
    wait_past(world, job)
    file = world.folder / "copy.db"
    command = [program("gpu-scheduler"), "history", "copy", str(file), "--api-url",
               f"http://127.0.0.1:{world.scheduler.ports['http']}", "--token-file",
               str(world.scheduler.data_dir / "token")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert made.returncode == 0, made.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    with sqlite3.connect(file) as database:
        rows = database.execute("SELECT name, state, gpu_count FROM jobs").fetchall()
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert rows == [("copied", "completed", 1)]
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 2 and "is there already" in again.stderr


def test_callers_without_a_credential_see_no_use_and_copy_nothing(world):
    anonymous = world.scheduler.api(anonymous=True)
    assert anonymous.call("GET", "/v1/usage")[0] == 403
    assert anonymous.call("POST", "/v1/history:copy")[0] == 403
    assert anonymous.call("GET", "/v1/history/jobs")[0] == 200


def test_a_history_that_cannot_be_written_says_so_and_scheduling_goes_on(world):
    world.scheduler.stop()
    database = world.scheduler.data_dir / "history" / "history.db"
    database.rename(database.with_name("kept.db"))
    database.mkdir()  # A folder cannot be opened as a database.
    world.scheduler.restart()
    api = world.api()
    job = api.submit("true", gpu_count=1)
    api.wait_for(job)
    health = wait_until(
        "it says so",
        lambda: (h := api.call("GET", "/health")[1]) and any("history" in c for c in h.get("concerns", [])) and h,
    )
    assert health["status"]
    assert metric(world, "gpu_scheduler_history_errors_total") > 0
    database.rmdir()
    database.with_name("kept.db").rename(database)
    wait_until("it is open", lambda: api.call("GET", "/v1/history/jobs")[0] == 200)
    wait_past(world, job)


def test_without_a_history_the_answer_says_how_to_have_one(world):
    world.scheduler.stop()
    world.scheduler.settings["HISTORY_ENABLED"] = "false"
    world.scheduler.start()
    body = native(world, "/usage", expected=503)
    assert "history.enabled" in body["error"]
