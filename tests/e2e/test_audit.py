"""The audit: one line for each write, refusal, session and read of a job's files, in a file that rotates."""

import contextlib
import json
import os
import re
import signal
import stat
import time
import uuid

import pytest
from harness import wait_until

pytestmark = pytest.mark.shared_world
ROW = {"request_id", "time", "door", "caller_kind", "caller", "key_id", "peer"}
ADMIN = "admin by shared token"


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        world.add_agent("n1").start()
        return world

    return start


@pytest.fixture(name="world")
def world_fixture(request, world):
    """With a new audit file, which has nothing of the tests before."""
    if request.node.get_closest_marker("own_world") is None:
        last = f"tenant-of-{uuid.uuid4().hex}"  # Behind all of theirs.
        world.api().call("DELETE", f"/api/v1/tenants/{last}")
        wait_until("all of theirs is written", lambda: lines(world, resource=last))
        file_of(world).unlink()
        os.kill(world.scheduler.pid(), signal.SIGHUP)
        wait_until("the file is there again", file_of(world).exists)
    return world


def file_of(world):
    return world.scheduler.data_dir / "audit.log"


def lines_in(path):
    """Whole lines; whoever reads passes over what a crash cut short."""
    found = []
    for text in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):
            found.append(json.loads(text))
    return found


def lines(world, **wanted):
    return [line for line in lines_in(file_of(world)) if all(line.get(name) == value for name, value in wanted.items())]


def one_line(world, **wanted):
    wait_until(f"a line with {wanted}", lambda: lines(world, **wanted))
    found = lines(world, **wanted)
    assert len(found) == 1, found
    assert ROW <= set(found[0]), found[0]
    return found[0]


def running_job(world, script="echo there > made; exec sleep 1000"):
    api = world.api()
    job = api.submit(script)
    api.wait_for(job, "running")
    return job


def test_a_job_from_its_submission_to_its_end(world):
    api = world.api()
    status, answer, headers = api.call("POST", "/api/v1/jobs", {"script": "exec sleep 1000", "name": "x"},
                                       {"X-Requested-By": "ana"})
    assert status == 201
    job = answer["job_id"]
    line = one_line(world, action="submit_job", resource=job)
    assert line["request_id"] == headers["X-Request-Id"]
    assert (line["door"], line["caller_kind"], line["caller"], line["key_id"]) == ("rest", "operator", ADMIN, "")
    assert (line["peer"], line["claimed_by"], line["outcome"]) == ("127.0.0.1", "ana", "applied")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
    assert stat.S_IMODE(file_of(world).stat().st_mode) == 0o600

    anonymous = world.scheduler.api(anonymous=True)
    assert anonymous.call("DELETE", f"/api/v1/jobs/{job}")[0] == 403
    line = one_line(world, action="cancel_job", outcome="forbidden")
    assert (line["resource"], line["caller_kind"], line["code"]) == (job, "anonymous", "permission_denied")

    guess = "zxqv-guessed-token"
    assert world.scheduler.api(token=guess).call("DELETE", f"/v1/jobs/{job}?tenant_id={guess}")[0] in (401, 405)
    assert world.scheduler.api(token=guess).call("POST", f"/v1/jobs/{job}/cancel?tenant_id={guess}")[0] == 401
    line = one_line(world, action="cancel_job", outcome="unauthenticated")
    assert (line["door"], line["resource"], line["caller_kind"]) == ("native_rest", job, "unknown")

    api.cancel(job)
    assert one_line(world, action="cancel_job", outcome="applied")["resource"] == job
    api.wait_for(job, "cancelled")
    api.cancel(job, expected=409)
    assert one_line(world, action="cancel_job", outcome="refused")["code"] == "job_finished"
    api.job(job)
    text = file_of(world).read_text()
    assert guess not in text and world.scheduler.token() not in text and "sleep 1000" not in text
    assert not lines(world, action="see_job")


def test_a_batch_is_one_line(world):
    api = world.api()
    jobs = [{"spec": {"command": ["true"]}} for _ in range(5)]
    status, answer, _ = api.call("POST", "/v1/jobs", {"jobs": jobs})
    assert status == 201
    ids = answer["job_ids"]
    line = one_line(world, action="submit_job")
    assert (line["resource"], line["count"], line["last"], line["door"]) == (ids[0], 5, ids[-1], "native_rest")
    for job in ids:
        api.wait_for(job)
    status, answer, _ = api.call("POST", "/v1/jobs:cancel", {"job_ids": [*ids, "job-99999"]})
    assert status == 200
    line = one_line(world, action="cancel_job", code="job_finished")
    assert (line["resource"], line["count"], line["last"], line["outcome"]) == (ids[0], 5, ids[-1], "refused")
    assert one_line(world, action="cancel_job", code="job_not_found")["resource"] == "job-99999"


def test_sessions_and_files(world):
    job = running_job(world)
    world.cli("exec", job, "--", "sh", "-c", "echo secret-word-of-the-session", expected=0)
    line = one_line(world, action="enter_job")
    assert (line["door"], line["resource"], line["outcome"], line["caller"]) == ("websocket", job, "allowed", ADMIN)
    world.cli("cp", f"{job}:made", str(world.folder / "copy"), expected=0)
    line = one_line(world, action="read_job_file")
    assert (line["resource"], line["outcome"]) == (job, "allowed")
    world.cli("logs", job, expected=0)
    wait_until("a line", lambda: lines(world, action="read_job_output", resource=job, outcome="allowed"))
    anonymous = world.scheduler.api(anonymous=True)
    assert anonymous.call("GET", f"/v1/jobs/{job}/files?path=made")[0] == 403
    one_line(world, action="read_job_file", outcome="forbidden", caller_kind="anonymous")
    assert world.cli("exec", "job-99999", "--", "true").returncode != 0
    one_line(world, action="enter_job", outcome="refused", code="job_not_found")
    assert "secret-word" not in file_of(world).read_text()


@pytest.mark.own_world
def test_agents(world):
    line = one_line(world, action="speak_for_node")
    assert (line["caller_kind"], line["caller"], line["resource"], line["outcome"]) == ("node", "n1", "n1", "allowed")


def test_it_goes_on_in_a_new_file_after_a_rotation(world):
    api = world.api()
    first = api.submit("true")
    one_line(world, action="submit_job", resource=first)
    old = world.scheduler.data_dir / "audit.log.old"
    file_of(world).rename(old)
    os.kill(world.scheduler.pid(), signal.SIGHUP)
    wait_until("the file is there again", file_of(world).exists)
    second = api.submit("true")
    one_line(world, action="submit_job", resource=second)
    assert not lines(world, resource=first)
    assert [line["resource"] for line in lines_in(old) if line["action"] == "submit_job"] == [first]


@pytest.mark.own_world
def test_nothing_is_misread_after_a_crash(world):
    api = world.api()
    before = api.submit("true")
    one_line(world, resource=before)
    world.scheduler.kill()
    with open(file_of(world), "a", encoding="utf-8") as file:
        file.write('{"time":"2026-01-01T00:00:00.000Z","action":"cancel_jo')  # As a crash of the machine may leave it.
    world.scheduler.start()
    after = world.api().submit("true")
    one_line(world, resource=after)
    texts = file_of(world).read_text().splitlines()
    broken = []
    for text in texts:
        try:
            json.loads(text)
        except ValueError:
            broken.append(text)
    assert len(broken) == 1 and broken[0].endswith("cancel_jo")
    runs = {line["request_id"].split("-")[0] for line in lines_in(file_of(world))}
    assert len(runs) == 2


def test_hostile_labels_stay_in_their_line(world):
    api = world.api()
    label = 'a"b\\c'
    status, answer, _ = api.call("POST", "/api/v1/jobs", {"script": "true"}, {"X-Requested-By": label})
    assert status == 201
    assert one_line(world, resource=answer["job_id"])["claimed_by"] == label
    api.call("DELETE", "/api/v1/tenants/x%22%7D%0A%7B%22outcome%22:%22applied")
    assert one_line(world, action="delete_tenant")["resource"] == 'x"}\n{"outcome":"applied'


def test_a_call_is_found_by_the_names_that_its_client_gave_it(world):
    api = world.api()
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    names = {"X-Request-Id": "req-7f3c", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    status, answer, headers = api.call("POST", "/api/v1/jobs", {"script": "true"}, names)
    assert (status, headers["X-Request-Id"]) == (201, "req-7f3c")
    line = one_line(world, resource=answer["job_id"])
    assert (line["client_request_id"], line["trace_id"]) == ("req-7f3c", trace)
    assert line["request_id"] != "req-7f3c"
    # What is not sane is as if there were nothing.
    names = {"X-Request-Id": "two words", "traceparent": f"00-{trace}-0000000000000000-01"}
    status, answer, headers = api.call("POST", "/api/v1/jobs", {"script": "true"}, names)
    line = one_line(world, resource=answer["job_id"])
    assert headers["X-Request-Id"] == line["request_id"]
    assert "client_request_id" not in line and "trace_id" not in line


def test_a_job_and_its_agent_know_the_trace_of_its_submission(world):
    api = world.api()
    first, later = (f"00-{trace}-00f067aa0ba902b7-01" for trace in ("4bf92f3577b34da6a3ce929d0e0e4736",
                                                                    "0af7651916cd43dd8448eb211c80319c"))
    say = "echo ${TRACEPARENT-none}"

    def said(path, body, traceparent, key=None):
        headers = {"traceparent": traceparent} | ({"Idempotency-Key": key} if key else {})
        status, answer, _ = api.call("POST", path, body, headers)
        assert status in (200, 201), answer
        if isinstance(answer, bytes):  # A line for each job.
            answer = json.loads(answer)
        job = answer.get("job_id") or answer.get("task_id") or answer["job_ids"][0]
        assert api.wait_for(job)["state"] == "completed"
        return job, api.output(job).strip()

    job, text = said("/api/v1/jobs", {"script": say}, first, "try")
    assert text == first
    # Another try of the same request has another trace, and is about the same job.
    assert said("/api/v1/jobs", {"script": say}, later, "try") == (job, first)
    wait_until("the agent logs the trace", lambda: [
        line for line in world.agents()[0].log_text().splitlines()
        if '"task_starting"' in line and f'"{job}"' in line and first.split("-")[1] in line])
    assert said("/v1/jobs", {"spec": {"script": say}}, later)[1] == later
    assert said("/v1/jobs:stream", {"spec": {"script": say}}, later)[1] == later
    assert said("/api/v1/tasks", {"priority": "high", "gpu_count": 1, "command": f"sh -c '{say}'"}, later)[1] == later
    # The job's own variable stays; what is not valid is as if there were nothing.
    own = {"script": say, "environment": {"TRACEPARENT": "mine"}}
    assert said("/api/v1/jobs", own, first)[1] == "mine"
    assert said("/api/v1/jobs", {"script": say}, "00-1-2-01")[1] == "none"


def test_a_job_and_its_agent_know_what_its_client_called_its_submission(world):
    api = world.api()
    say = {"script": "echo ${GPU_SCHEDULER_REQUEST_ID-none}"}

    def said(body, **headers):
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        status, answer, _ = api.call("POST", "/api/v1/jobs", body, names)
        assert status == 201, answer
        job = answer["job_id"]
        assert api.wait_for(job)["state"] == "completed"
        return job, api.output(job).strip()

    job, text = said(say, X_Request_Id="run-7.3", Idempotency_Key="try-again")
    assert text == "run-7.3"
    # Another try has another id, and is about the same job.
    assert said(say, X_Request_Id="run-7.4", Idempotency_Key="try-again") == (job, "run-7.3")
    wait_until("the agent logs the id", lambda: [
        line for line in world.agents()[0].log_text().splitlines()
        if '"task_starting"' in line and f'"{job}"' in line and '"request_id":"run-7.3"' in line])
    # With a trace, both; one that is not sane, or none, is as if there were nothing; the job's own stays.
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    both = {"script": "echo $GPU_SCHEDULER_REQUEST_ID $TRACEPARENT"}
    assert said(both, X_Request_Id="run-8", traceparent=trace)[1] == f"run-8 {trace}"
    assert said(say, X_Request_Id="a b")[1] == "none"
    assert said(say)[1] == "none"
    assert said(say | {"environment": {"GPU_SCHEDULER_REQUEST_ID": "mine"}}, X_Request_Id="run-9")[1] == "mine"


def test_a_full_disk_loses_lines_and_stops_nothing(new_world):
    world = new_world(AUDIT_FILE="/dev/full")
    world.scheduler.start()
    api = world.api()
    api.submit("true")

    def lost():
        text = metrics(world)
        return int(re.search(r"^gpu_scheduler_audit_lines_lost_total (\d+)$", text, re.MULTILINE)[1])

    wait_until("the loss is counted", lost)
    wait_until("the loss is said", lambda: '"audit_lines_lost"' in world.scheduler.log_text())
    api.submit("true")


def metrics(world):
    import urllib.request  # pylint: disable=import-outside-toplevel
    url = f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_a_wrong_path_is_told_at_the_start_and_it_can_be_off(new_world):
    world = new_world(AUDIT_FILE="/no/such/folder/audit.log")
    world.scheduler.launch()
    wait_until("it ends", lambda: not world.scheduler.alive())
    assert "audit.file" in world.scheduler.log_text()
    quiet = new_world(AUDIT_ENABLED="false")
    quiet.scheduler.start()
    quiet.api().submit("true")
    time.sleep(0.1)
    assert not file_of(quiet).exists()


@pytest.mark.own_world
def test_the_journal_gives_the_same_writes_in_the_same_order(world):
    api = world.api()
    world.add_agent("n2").start()

    def call(method, path, body=None, by="ana"):
        status, answer, _ = api.call(method, path, body, {"X-Requested-By": by} if by else None)
        assert status in (200, 201), (method, path, status, answer)
        return answer

    tenant = call("POST", "/v1/tenants", {"name": "chemistry"})["tenant_id"]
    call("PATCH", f"/v1/tenants/{tenant}", {"max_gpus": 3}, by="ben")
    jobs = call("POST", "/v1/jobs", {"tenant_id": tenant, "jobs": [{"spec": {"command": ["sleep", "1000"]}, "held": True}
                                                                  for _ in range(3)]})["job_ids"]
    single = call("POST", "/api/v1/jobs", {"command": ["sleep", "1000"], "gpu_count": 1}, by=None)["job_id"]
    api.wait_for(single, "running")
    call("PATCH", f"/v1/jobs/{jobs[0]}", {"priority": 7})
    call("POST", f"/v1/jobs/{jobs[1]}/release")
    call("POST", f"/v1/jobs/{jobs[0]}/cancel", by="cleo")
    call("POST", f"/v1/jobs/{single}/requeue")
    call("POST", "/v1/nodes/n2/drain", {"by": "dora", "reason": "fans"})
    call("POST", "/v1/nodes/n2/label", {"set": {"rack": "r1"}})
    call("POST", "/v1/nodes/n1/devices/3/condition", {"condition": "unhealthy", "by": "dora"})
    call("POST", "/v1/cluster/pause", {"reason": "a look"}, by="emil")
    call("POST", "/v1/cluster/resume", by="emil")
    call("POST", "/v1/nodes/n2/resume", by="emil")
    call("DELETE", f"/api/v1/jobs/{single}", by="x" * 101)  # No name for people: its address is shown.

    def told(line):
        return (line["action"], line["resource_kind"], line["resource"], line.get("count"), line.get("last"),
                line.get("unix_user"))

    without_by = {"label_node"}  # Whose commands bear nobody's name.
    wait_until("the last line", lambda: lines(world, action="cancel_job", resource=single))
    written = [line for line in lines(world, outcome="applied") if line["caller_kind"] == "operator"]
    done = world.scheduler.journal("audit", "--json", str(world.scheduler.data_dir))
    assert done.returncode == 0, done.stderr
    assert "It has no" not in done.stdout and "does not know the address" in done.stderr
    proven = [json.loads(text) for text in done.stdout.splitlines()]
    proven = [line for line in proven if line["outcome"] == "applied"]
    assert [told(line) for line in proven] == [told(line) for line in written]
    assert len(written) == 15
    for line, proof in zip(written, proven):
        if line["action"] in without_by:
            assert "claimed_by" not in proof
        elif len(line.get("claimed_by", "")) <= 100:
            assert proof["claimed_by"] == line.get("claimed_by", line["peer"]), (line, proof)
        else:
            assert proof["claimed_by"] == line["peer"]
        for name in ("caller_kind", "caller", "key_id"):
            assert proof[name] == line[name], (line, proof)
        assert not {"peer", "request_id", "door"} & set(proof)
        assert proof["time"] <= line["time"]


@pytest.mark.own_world
def test_the_journal_has_what_a_crash_took_from_the_file(world):
    api = world.api()
    jobs = [api.submit("true") for _ in range(20)]
    world.scheduler.kill()
    text = world.scheduler.journal("audit", str(world.scheduler.data_dir)).stdout
    for job in jobs:
        assert f"submit_job {job}, by operator \"admin by shared token\", in its words \"127.0.0.1\": applied" in text
    file_of(world).unlink()
    assert world.scheduler.journal("audit", str(world.scheduler.data_dir)).stdout == text
    assert world.scheduler.journal("audit", str(world.folder / "nowhere")).returncode == 1
    world.scheduler.start()
