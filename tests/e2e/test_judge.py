"""The judge of the kill rounds finds what it is there for: without that, a green round would say nothing."""

import types

import chaos
import pytest

RUN = ["start 5-1-0@x 1.00 G0", "end 5-1-0@x 2.00 3"]
AGAIN = [line.replace("5-1-0", "5-2-0") for line in RUN]


def record(**changes):
    job = {"name": "t0", "id": "job-5", "state": "failed", "exit_code": 3, "signal": 0, "attempts": 1,
           "started_at": "a", "completed_at": "b", "reason": "exit_code"}
    return {**job, **changes}


def judged(folder, books, jobs, seen=None, complaints=()):
    (folder / "book").mkdir(exist_ok=True)
    tasks = []
    for token, (job_id, lines) in books.items():
        (folder / "book" / token).write_text("".join(f"{line}\n" for line in lines))
        tasks.append(chaos.Task(token, "plain", 0, 3, 1, False, job_id=job_id))
    load = types.SimpleNamespace(folder=folder, complaints=list(complaints), tasks=tasks, final_seen=seen or {})
    return chaos.judge(load, jobs)


def test_a_job_that_did_what_it_should_passes(tmp_path):
    assert judged(tmp_path, {"t0": ("job-5", RUN)}, [record()]) == []


@pytest.mark.parametrize("lines, jobs, finding", [
    (RUN, [], "acknowledged, and there are []"),
    (RUN, [record(), record()], "acknowledged, and there are"),
    (RUN, [record(), record(name="stranger")], "nobody submitted stranger"),
    (RUN, [record(id="job-6")], "acknowledged, and there are"),
    (RUN, [record(state="running")], "did not end"),
    (RUN, [record(state="completed", exit_code=0, reason="succeeded")], "exited with 3"),
    (RUN, [record(exit_code=4)], "exited with 3"),
    (RUN + AGAIN, [record(attempts=2)], "ran 2 times"),
    (RUN + RUN, [record()], "ran twice"),
    (RUN[:1], [record()], "did not come to its end"),
    (AGAIN, [record(attempts=1)], "not counted"),
    (RUN, [record(attempts=2)], "not its last attempt"),
    (["start 5-1-0@x 1.00 G0,G1", RUN[1]], [record()], "another number of GPUs"),
    (RUN + ["conflict 5-1-0@x G0"], [record()], "conflict"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_it_finds(tmp_path, lines, jobs, finding):
    found = judged(tmp_path, {"t0": ("job-5", lines)}, jobs)
    assert any(finding in text for text in found), found


def test_it_finds_a_gpu_that_two_jobs_held_at_once(tmp_path):
    other = ["start 6-1-0@x 1.50 G0", "end 6-1-0@x 1.80 3"]
    found = judged(tmp_path, {"t0": ("job-5", RUN), "t1": ("job-6", other)}, [record(), record(name="t1", id="job-6")])
    assert [text for text in found if "held twice" in text]


def test_it_finds_a_job_that_ended_in_two_ways(tmp_path):
    seen = {"job-5": chaos.essence(record(exit_code=0, state="completed"))}
    found = judged(tmp_path, {"t0": ("job-5", RUN)}, [record()], seen)
    assert [text for text in found if "was {" in text]


def test_what_clients_and_onlookers_saw_counts(tmp_path):
    assert judged(tmp_path, {"t0": ("job-5", RUN)}, [record()], complaints=["job-5 reads 404"]) == ["job-5 reads 404"]
