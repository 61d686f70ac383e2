"""What becomes of one job: its exit code, output, limits, place in line, quotas, cancels and retries."""

import json
import re

import pytest
from harness import FINAL, is_alive, wait_until


@pytest.fixture(scope="module", name="cluster")
def cluster_fixture(new_module_world):
    """One scheduler and one agent with four GPUs for all tests here: each leaves it as it found it."""
    world = new_module_world()
    world.scheduler.start()
    world.add_agent("n1", cpus=16).start()
    return world


@pytest.fixture(name="api")
def api_fixture(cluster):
    yield cluster.api()
    cluster.cancel_everything()
    cluster.wait_nothing_runs()


@pytest.mark.parametrize("code", [0, 1, 7, 42, 255])
def test_the_command_line_exits_as_the_job_does(cluster, api, code):
    done = cluster.cli("submit", "--wait", "--logs", "--", "sh", "-c", f"echo told; echo cried >&2; exit {code}")
    assert done.returncode == code, done.stderr
    assert done.stdout == "told\n"
    assert "cried\n" in done.stderr
    job = api.jobs()[0]
    assert job["exit_code"] == code
    assert job["state"] == ("completed" if code == 0 else "failed")
    assert job["attempts"] == 1


def test_a_signal_is_told_from_an_exit_code(cluster, api):
    assert cluster.cli("submit", "--wait", "--", "sh", "-c", "kill -SEGV $$").returncode == 128 + 11
    job = api.jobs()[0]
    assert (job["state"], job["reason"], job["signal"]) == ("failed", "signal", 11)


def test_what_cannot_be_started_ends_as_in_a_shell_and_says_why(cluster, api):
    job_id = api.submit(["/does/not/exist"])
    job = api.wait_for(job_id)
    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 127, 1)
    done = cluster.cli("logs", "--stderr", job_id)
    assert "cannot start '/does/not/exist': No such file or directory" in done.stdout + done.stderr


def test_a_script_gets_its_arguments_environment_and_folder(api):
    job_id = api.submit("echo $1-$2 $COLOUR; pwd; echo $GPU_SCHEDULER_JOB_ID", args=["a b", "c"],
                        environment={"COLOUR": "blue"}, working_directory="/usr")
    assert api.wait_for(job_id)["state"] == "completed"
    assert api.output(job_id) == f"a b-c blue\n/usr\n{job_id}\n"


def test_output_can_be_read_while_the_job_runs(cluster, api):
    gate = cluster.folder / "gate-output"
    job_id = api.submit(f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo last")
    wait_until("the first line is there", lambda: output_so_far(api, job_id) == "first\n")
    gate.touch()
    api.wait_for(job_id)
    assert api.output(job_id) == "first\nlast\n"


def output_so_far(api, job_id):
    status, text, _ = api.call("GET", f"/api/v1/jobs/{job_id}/logs")
    return text.decode() if status == 200 else None


def test_logs_are_followed_to_the_end_of_the_job(cluster, api):
    gate = cluster.folder / "gate-follow"
    job_id = api.submit(f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two")
    follower = cluster.cli_start("logs", "-f", job_id)
    assert follower.stdout.readline() == b"one\n"
    gate.touch()
    out, err = follower.communicate(timeout=60)
    assert out == b"two\n", err
    assert follower.returncode == 0


def test_a_job_over_its_time_ends_as_timeout_and_ignoring_sigterm_does_not_help(cluster, api):
    # The two wait for their grace of 10 s side by side.
    stubborn = api.submit("trap '' TERM; echo $$; while :; do sleep 0.1; done", max_runtime_seconds=1)
    cancelled = api.submit("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    wait_until("the trap is set", lambda: output_so_far(api, cancelled) == "ready\n")
    api.cancel(cancelled)
    polite = cluster.cli("submit", "--wait", "--time", "1s", "--", "sleep", "600")
    assert polite.returncode == 124, polite.stderr

    job = api.wait_for(stubborn)
    assert (job["state"], job["reason"], job["attempts"]) == ("failed", "timeout", 1)
    assert not is_alive(int(api.output(stubborn)))
    assert api.wait_for(cancelled)["state"] == "cancelled"


def test_sigterm_comes_first_and_gives_a_job_time_to_save(api):
    job_id = api.submit("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    wait_until("the trap is set", lambda: output_so_far(api, job_id) == "ready\n")
    api.cancel(job_id)
    assert api.wait_for(job_id)["state"] in ("cancelled", "completed")
    assert api.output(job_id) == "ready\nsaved\n"


def test_cancel_ends_a_running_job_with_all_its_processes(cluster, api):
    pids = cluster.folder / "cancel-pids"
    job_id = api.submit(f"(setsid sh -c 'echo $$ >> {pids}; exec sleep 600' &); echo $$ >> {pids}; sleep 600")
    wait_until("both run", lambda: pids.exists() and len(pids.read_text().split()) == 2)
    cluster.cli("cancel", job_id, expected=0)
    job = api.wait_for(job_id)
    assert (job["state"], job["reason"]) == ("cancelled", "cancelled")
    assert not [pid for pid in pids.read_text().split() if is_alive(int(pid))]
    assert api.cancel(job_id, expected=409)["code"] == "job_finished"


def test_a_daemon_does_not_outlive_its_job(cluster, api):
    pid_file = cluster.folder / "daemon-pid"
    job_id = api.submit(f"(env -i setsid sh -c 'echo $$ > {pid_file}; exec sleep 600' &); "
                        f"while [ ! -s {pid_file} ]; do sleep 0.02; done; exit 5")
    job = api.wait_for(job_id)
    assert job["exit_code"] == 5
    assert not is_alive(int(pid_file.read_text()))


def test_a_waiting_job_says_why_and_can_be_cancelled(cluster, api):
    holder = api.submit(["sleep", "600"], gpu_count=4)
    api.wait_for(holder, "running")
    waiting = api.submit(["true"], gpu_count=1)
    impossible = api.submit(["true"], gpu_count=5)
    foreign = api.submit(["true"], gpu_count=1, gpu_model="H100")
    reasons = {waiting: "gpus_busy", impossible: "no_matching_gpu", foreign: "no_matching_gpu"}
    for job_id, reason in reasons.items():
        wait_until(f"{job_id} waits for {reason}", lambda i=job_id, r=reason: api.explain(i)["reason"] == r)
    assert "JobEnded" in api.explain(waiting)["lifted_by"]
    assert api.explain(waiting)["queue_position"] >= 1
    assert "NodeAdded" in api.explain(impossible)["lifted_by"]
    text = cluster.cli("explain", waiting, expected=0).stdout
    assert "GPU" in text and "free" in text
    for job_id in reasons:
        api.cancel(job_id)
        job = api.job(job_id)
        assert (job["state"], job["attempts"]) == ("cancelled", 0)
    refused = api.post("/jobs", {"command": ["true"], "gpu_count": 5, "require_feasible": True}, 422)
    assert refused["code"] == "infeasible"


def test_higher_priority_starts_first_and_equal_ones_in_their_order(cluster, api):
    order = cluster.folder / "order"
    holder = api.submit(["sleep", "600"], gpu_count=4)
    api.wait_for(holder, "running")
    jobs = [api.submit(f"echo {name} >> {order}", gpu_count=4, priority=priority)
            for name, priority in [("low", -5), ("first", 100), ("second", 100), ("high", 900)]]
    api.cancel(holder)
    for job_id in jobs:
        assert api.wait_for(job_id)["state"] == "completed"
    assert order.read_text().split() == ["high", "first", "second", "low"]


def test_a_quota_refuses_what_can_never_run_and_holds_back_what_must_wait(cluster, api):
    tenant = cluster.cli("tenant", "create", "--name", "quota-team", "--max-gpus", "2", expected=0).stdout.split()[0]
    refused = api.post("/jobs", {"tenant_id": tenant, "command": ["true"], "gpu_count": 3}, 403)
    assert refused["code"] == "quota_exceeded"
    assert re.search(rf"quota exceeded for tenant {tenant}: GPUs requested=3, quota=2, current=0", refused["error"])
    done = cluster.cli("submit", "--tenant-id", tenant, "--gpus", "3", "--", "true")
    assert done.returncode == 4 and "quota_exceeded" in done.stderr

    first = api.submit(["sleep", "600"], tenant_id=tenant, gpu_count=2)
    api.wait_for(first, "running")
    second = api.submit(["true"], tenant_id=tenant, gpu_count=1)
    wait_until("the quota holds it back", lambda: api.explain(second)["reason"] == "quota")
    assert "2 of its 2" in api.explain(second)["message"]
    # Others are not held back by it.
    assert cluster.cli("submit", "--gpus", "2", "--wait", "--", "true").returncode == 0
    api.cancel(first)
    assert api.wait_for(second)["state"] == "completed"


def test_retries_repeat_a_failure_as_often_as_asked(cluster, api):
    count = cluster.folder / "retry-count"
    script = f"echo x >> {count}; [ $(wc -l < {count}) -ge 3 ]"
    job_id = api.submit(script, retries=3)
    job = api.wait_for(job_id)
    assert (job["state"], job["exit_code"], job["attempts"]) == ("completed", 0, 3)
    assert count.read_text() == "x\n" * 3
    failing = api.submit("exit 9", retries=1)
    job = api.wait_for(failing)
    assert (job["state"], job["exit_code"], job["attempts"]) == ("failed", 9, 2)
    # Without a word of the user, an exit code is final.
    job = api.wait_for(api.submit("exit 9"))
    assert (job["state"], job["attempts"]) == ("failed", 1)


def test_the_same_key_is_the_same_job_and_another_body_a_conflict(api):
    body = {"name": "keyed", "command": ["true"]}
    first = api.post("/jobs", body, 201, key="one-key")["job_id"]
    assert api.post("/jobs", body, 201, key="one-key")["job_id"] == first
    refused = api.post("/jobs", {**body, "name": "other"}, 409, key="one-key")
    assert refused["code"] == "request_key_conflict"
    assert [job["id"] for job in api.jobs() if job["name"] in ("keyed", "other")] == [first]
    api.wait_for(first)


def test_a_finished_jobs_figures_add_up(cluster, api):
    before = api.get("/cluster/status")
    job_id = api.submit("exit 0", gpu_count=1)
    api.wait_for(job_id)
    job = api.job(job_id)
    assert job["submitted_at"] <= job["scheduled_at"] <= job["started_at"] <= job["completed_at"]
    assert job["node_name"] == "n1"
    after = api.get("/cluster/status")
    assert after["total_jobs"] == before["total_jobs"] + 1
    assert (after["total_gpus"], after["total_nodes"], after["online_nodes"]) == (4, 1, 1)
    listed = json.loads(cluster.cli("--json", "list", "--all", expected=0).stdout)
    assert job_id in json.dumps(listed)
    assert all(entry["state"] in FINAL for entry in api.jobs())
