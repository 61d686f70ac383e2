"""Values of a job's secret variables reach the job and nobody else, whoever asks, before and after a restart."""

import contextlib
import hashlib
import json

from test_jobs_door import Watch, state_of

try:
    import grpc
except ImportError:
    grpc = None  # Debian's python3-grpcio is not installed: the other doors are looked at all the same.

SECRET = "correct-horse-battery-staple"
DIGEST = hashlib.sha256(SECRET.encode()).hexdigest()
SCRIPT = 'printf %s "$HUB_TOKEN" | sha256sum; echo "epochs $EPOCHS"'


def said_over_grpc(world, job_id):
    """The first answer of each call that shows a job, as its bytes: texts stand in them as they are."""
    named = b"\x0a" + bytes([len(job_id)]) + job_id.encode()
    metadata = (("authorization", f"Bearer {world.scheduler.token()}"),)
    with grpc.insecure_channel(f"127.0.0.1:{world.scheduler.ports['grpc']}") as channel:
        for service, method, request in (
                ("gpusched.v1.Scheduler", "GetJob", named), ("gpusched.v1.Scheduler", "ListJobs", b""),
                ("gpusched.v1.Scheduler", "WatchJob", named), ("gpusched.v1.Scheduler", "GetJobHistory", named),
                ("gpusched.v1.Scheduler", "ExplainJob", named), ("scheduler.SchedulerService", "GetJobStatus", named),
                ("scheduler.SchedulerService", "ListJobs", b"")):
            path = f"/{service}/{method}"
            answers = channel.unary_stream(path)(request, timeout=60, wait_for_ready=True, metadata=metadata)
            text = next(iter(answers)).decode("utf-8", "replace")
            assert job_id in text, path
            yield path, text


def everything_said(world, job_id):
    """All that the doors, the command line and the logs say of the job."""
    api = world.api()
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{job_id}", f"/api/v1/jobs/{job_id}/explain", f"/v1/jobs/{job_id}", "/v1/jobs",
                 "/v1/jobs?fields=job_id,spec", f"/v1/jobs/{job_id}/history"):
        status, body, _ = api.call("GET", path)
        assert status == 200, (path, status, body)
        yield path, json.dumps(body)
    for words in (("get", job_id), ("get", job_id, "--json"), ("history", job_id), ("list", "--json"), ("explain", job_id)):
        done = world.cli(*words)
        yield f"gpu-cli {' '.join(words)}", done.stdout + done.stderr
    if grpc:
        yield from said_over_grpc(world, job_id)
    yield "audit.log", (world.scheduler.data_dir / "audit.log").read_text()
    yield "journal", world.scheduler.journal("dump", str(world.scheduler.data_dir)).stdout
    for process in (world.scheduler, *world.agents()):
        yield f"log of {process.name}", process.log_text()
    for path in world.folder.rglob("*.jsonl"):
        yield str(path), path.read_text(errors="replace")


def check_kept_from_view(world, job_id):
    for where, text in everything_said(world, job_id):
        assert SECRET not in text, f"{where} tells the secret: {text[:2000]}"


def test_the_job_has_its_secret_and_nobody_is_shown_it(world):
    api = world.api()
    with contextlib.closing(Watch(world.scheduler)) as watch:
        job_id = api.submit(SCRIPT, environment={"HUB_TOKEN": SECRET, "EPOCHS": "3"}, secret_variables=["HUB_TOKEN"])
        seen = watch.until(lambda message: state_of(message, job_id) == "completed")
    assert SECRET not in json.dumps(seen), "the WebSocket tells the secret"
    assert api.wait_for(job_id)["state"] == "completed"
    assert DIGEST in api.output(job_id) and "epochs 3" in api.output(job_id)
    check_kept_from_view(world, job_id)
    status, body, _ = api.call("GET", f"/v1/jobs/{job_id}")
    assert status == 200
    assert body["spec"]["environment"] == {"EPOCHS": "3"}
    assert body["spec"]["secret_variables"] == ["HUB_TOKEN"]

    world.scheduler.kill()
    world.scheduler.restart()
    check_kept_from_view(world, job_id)


def test_the_command_line_takes_the_value_from_its_shell(world, monkeypatch):
    done = world.cli("submit", "--secret-env", "HUB_TOKEN", "--env", "EPOCHS=4", "--script", SCRIPT)
    assert done.returncode != 0 and "HUB_TOKEN has no value in this shell" in done.stderr
    monkeypatch.setenv("HUB_TOKEN", SECRET)
    submitted = world.cli_json("submit", "--secret-env", "HUB_TOKEN", "--env", "EPOCHS=4", "--script", SCRIPT)
    api = world.api()
    assert api.wait_for(submitted["job_id"])["state"] == "completed"
    assert DIGEST in api.output(submitted["job_id"])
    check_kept_from_view(world, submitted["job_id"])


def test_what_is_to_be_secret_has_to_be_there(world):
    status, body, _ = world.api().call(
        "POST", "/api/v1/jobs", {"script": "true", "environment": {"HUB_TOKEN": SECRET}, "secret_variables": ["HUBTOKEN"]})
    assert status == 400
    assert "'HUBTOKEN', which environment does not have" in json.dumps(body), body
    assert SECRET not in json.dumps(body)
    assert world.api().jobs() == []
