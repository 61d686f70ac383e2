"""Jobs that are ended for others: the victim's grace, its way back, what it says of its work, and who is told."""

import http.server
import json
import threading

import pytest
from harness import program, wait_until

pytestmark = pytest.mark.shared_world
# It saves its work when it is told to end.
PATIENT = "trap 'echo saved; exit 143' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        """A world whose tenant batch may be preempted by tenant urgent, without protection."""
        world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0)
        world.scheduler.start()
        world.add_agent("n1").start()
        api = world.api()
        api.wait_node("n1")
        api.post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
        api.post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
        return world

    return start


@pytest.fixture(name="tenants")
def tenants_fixture(world):
    return world


def run(api, tenant, gpus, script, **fields):
    job = api.submit(None, tenant_id=tenant, gpu_count=gpus, script=script, **fields)
    api.wait_for(job, ("running",))
    return job


def test_a_victim_has_its_grace_and_comes_back_behind_its_preemptor(tenants):
    api = tenants.api()
    low = run(api, "batch", 4, PATIENT)
    wait_until("the job is up", lambda: "up" in api.output(low))
    high = api.submit(None, tenant_id="urgent", gpu_count=2, script="sleep 1")
    assert api.wait_for(high)["state"] == "completed"
    shown = api.wait_for(low, ("running",))
    assert (shown["preempted_count"], shown["attempts"]) == (1, 2)
    assert "saved" in api.output(low, attempt=1)
    api.cancel(low)
    assert api.wait_for(low)["state"] == "cancelled"


def test_a_victim_that_asks_for_it_is_cancelled(tenants):
    api = tenants.api()
    low = run(api, "batch", 4, "exec sleep 600", preemption_mode="cancel")
    high = api.submit(None, tenant_id="urgent", gpu_count=1, script="true")
    assert api.wait_for(low)["state"] == "cancelled"
    assert "higher priority" in api.explain(low)["message"]
    assert api.wait_for(high)["state"] == "completed"


def test_who_saved_its_work_loses_less(tenants):
    api = tenants.api()
    first = run(api, "batch", 2, "sleep 3; touch \"$GPU_CHECKPOINT_FILE\"; exec sleep 600")
    second = run(api, "batch", 2, "exec sleep 600")

    def saved():
        status, job, _ = api.call("GET", f"/v1/jobs/{first}")
        return status == 200 and job.get("checkpointed_at")

    wait_until("the scheduler knows what the job saved", saved)
    high = api.submit(None, tenant_id="urgent", gpu_count=2, script="true")
    assert api.wait_for(high)["state"] == "completed"
    assert api.job(first)["preempted_count"] == 1
    assert api.job(second)["preempted_count"] == 0
    for job in (first, second):
        api.cancel(job)
        api.wait_for(job)


def test_an_unknown_mode_is_refused(tenants):
    refused = tenants.api().post("/jobs", {"command": ["true"], "preemption_mode": "suspend"}, 400)
    assert refused["field"] == "preemption_mode"


# More than any test here waits for: whoever ends earlier did not sit it out.
LONG = 300


def handshake(on_asked):
    """A job that does `on_asked` when it gets SIGUSR1, and says when it gets SIGTERM."""
    return (f"trap 'echo asked; {on_asked}' USR1; trap 'echo terminated; exit 9' TERM; echo up; "
            "while :; do sleep 0.1; done")


def running_victim(api, script, **fields):
    low = run(api, "batch", 4, script, **fields)
    wait_until("the job is up", lambda: "up" in api.output(low))
    return low


def test_who_says_that_its_work_is_saved_need_not_sit_out_its_grace(tenants):
    api = tenants.api()
    low = running_victim(api, handshake(f"{program('gpu-agent')} checkpointed; echo told"),
                         preempt_signal="SIGUSR1", preempt_grace_seconds=LONG)
    assert (api.job(low)["preempt_signal"], api.job(low)["preempt_grace_seconds"]) == ("USR1", LONG)
    high = run(api, "urgent", 4, "exec sleep 600")
    lines = api.output(low, attempt=1).split()
    assert lines[:2] == ["up", "asked"] and "terminated" not in lines
    shown = api.get(f"/jobs/{low}")
    assert (shown["state"], shown["preempted_count"]) == ("pending", 1)
    # Its node told what it said before it told its end.
    assert api.call("GET", f"/v1/jobs/{low}")[1]["checkpointed_at"]
    api.cancel(high)
    api.wait_for(low, ("running",))
    api.cancel(low)
    api.wait_for(low)


def test_who_said_so_before_it_was_asked_is_asked_all_the_same(tenants):
    api = tenants.api()
    low = running_victim(api, "touch \"$GPU_CHECKPOINT_FILE\"; " + handshake("touch \"$GPU_CHECKPOINT_FILE\""),
                         preempt_signal="USR1", preempt_grace_seconds=LONG)
    high = api.submit(None, tenant_id="urgent", gpu_count=4, script="true")
    assert api.wait_for(high)["state"] == "completed"
    assert "asked" in api.output(low, attempt=1)
    api.cancel(low)
    api.wait_for(low)


def test_who_says_nothing_is_ended_after_the_grace_that_it_asked_for(tenants):
    api = tenants.api()
    low = running_victim(api, handshake("echo busy"), preempt_signal="USR1", preempt_grace_seconds=1)
    high = api.submit(None, tenant_id="urgent", gpu_count=4, script="true")
    assert api.wait_for(high)["state"] == "completed"
    assert api.output(low, attempt=1).split() == ["up", "asked", "busy"]
    assert api.job(low)["preempted_count"] == 1
    api.cancel(low)
    api.wait_for(low)


def test_who_is_cancelled_while_it_saves_is_told_so(tenants):
    api = tenants.api()
    low = running_victim(api, handshake("echo busy"), preempt_signal="USR1", preempt_grace_seconds=LONG)
    high = api.submit(None, tenant_id="urgent", gpu_count=4, script="true")
    wait_until("it was asked", lambda: "busy" in api.output(low))
    assert api.job(low)["state"] == "preempted"
    api.cancel(low)
    assert api.wait_for(low)["state"] == "cancelled"
    assert "terminated" in api.output(low)
    assert api.wait_for(high)["state"] == "completed"


@pytest.mark.own_world
def test_a_restarted_agent_goes_on_with_the_handshake(tenants):
    api = tenants.api()
    low = running_victim(api, handshake("while [ ! -e go ]; do sleep 0.1; done; touch \"$GPU_CHECKPOINT_FILE\""),
                         preempt_signal="USR1", preempt_grace_seconds=LONG,
                         working_directory=str(tenants.folder))
    high = api.submit(None, tenant_id="urgent", gpu_count=4, script="true")
    wait_until("it was asked", lambda: "asked" in api.output(low))
    tenants.agents()[0].restart()
    (tenants.folder / "go").touch()
    assert api.wait_for(high)["state"] == "completed"
    assert "terminated" not in api.output(low, attempt=1)
    api.cancel(low)
    api.wait_for(low)


def test_what_a_job_asks_for_has_bounds(tenants):
    api = tenants.api()
    for field, value in (("preempt_signal", "KILL"), ("preempt_signal", "5"), ("preempt_grace_seconds", 301),
                         ("preempt_grace_seconds", -1), ("preempt_webhook", "https://127.0.0.1/"),
                         ("preempt_webhook", "http://127.0.0.1/")):
        refused = api.post("/jobs", {"command": ["true"], field: value}, 400)
        assert refused["field"] == field, (value, refused)
    status, refused, _ = api.call("POST", "/v1/jobs", {"spec": {"command": ["true"], "preempt_signal": "STOP"}})
    assert (status, refused["code"]) == (400, "invalid_argument")
    done = tenants.cli("submit", "--preempt-grace", "1h", "--", "true")
    assert done.returncode != 0 and "--preempt-grace" in done.stderr


def test_the_command_line_asks_for_a_signal_and_a_grace(tenants):
    api = tenants.api()
    job = tenants.cli("submit", "--preempt-signal", "usr2", "--preempt-grace", "2m", "--hold", "--", "true",
                      expected=0).stdout.split()[-1]
    assert (api.job(job)["preempt_signal"], api.job(job)["preempt_grace_seconds"]) == ("USR2", 120)
    spec = api.call("GET", f"/v1/jobs/{job}")[1]["spec"]
    assert (spec["preempt_signal"], spec["preempt_grace_ms"]) == ("USR2", 120_000)


class Hook:
    """An HTTP server that remembers what it is told, and answers as it is told to."""

    def __init__(self):
        self.told, self.answers, self.location = [], [], ""
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.told.append((self.path, self.headers["Idempotency-Key"], json.loads(body)))
                self.send_response(hook.answers.pop(0) if hook.answers else 204)
                if hook.location:
                    self.send_header("Location", hook.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(name="hook")
def hook_fixture():
    hook = Hook()
    yield hook
    hook.close()


def hooked_world(new_world, **settings):
    world = new_world(SCHEDULER_PREEMPTION_PROTECTION_SECONDS=0, SCHEDULER_PREEMPTION_WAIT_SECONDS=0, **settings)
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    api.wait_node("n1")
    api.post("/tenants", {"name": "batch", "allow_preemption": True, "priority_tier": "low"}, 201)
    api.post("/tenants", {"name": "urgent", "can_preempt_others": True, "priority_tier": "critical"}, 201)
    return world


def preempt(api, **fields):
    low = running_victim(api, PATIENT, **fields)
    high = api.submit(None, tenant_id="urgent", gpu_count=4, script="true")
    assert api.wait_for(high)["state"] == "completed"
    api.cancel(low)
    api.wait_for(low)
    return low


def test_a_jobs_webhook_is_told_before_its_end_and_again_when_it_stumbles(new_world, hook):
    world = hooked_world(new_world, SCHEDULER_PREEMPT_WEBHOOK_HOSTS=f"127.0.0.1:{hook.port}")
    api = world.api()
    hook.answers = [503, 204]
    low = preempt(api, preempt_webhook=hook.url("/gone?who=me"), preempt_signal="TERM", preempt_grace_seconds=20,
                  name="victim")
    wait_until("it is told again", lambda: len(hook.told) == 2)
    (path, key, note), again = hook.told
    assert again == (path, key, note)
    assert (path, key) == ("/gone?who=me", f"preemption-{low}-1")
    assert {name: note[name] for name in ("event", "job_id", "name", "attempt", "tenant", "node_name", "signal", "mode",
                                          "grace_seconds")} == {
        "event": "preemption", "job_id": low, "name": "victim", "attempt": 1, "tenant": "batch", "node_name": "n1",
        "signal": "TERM", "mode": "requeue", "grace_seconds": 20}
    # Any other host, and the same one's other ports, are refused.
    for url in ("http://127.0.0.1:1/", "http://localhost/", "http://192.0.2.1/"):
        refused = api.post("/jobs", {"command": ["true"], "preempt_webhook": url}, 400)
        assert refused["field"] == "preempt_webhook"


def test_the_configured_webhook_is_told_of_each_and_no_redirection_is_followed(new_world, hook):
    world = hooked_world(new_world, SCHEDULER_PREEMPT_WEBHOOK_URL=hook.url("/all"))
    hook.answers, hook.location = [302], hook.url("/elsewhere")
    low = preempt(world.api())
    wait_until("it was told", lambda: "webhook_refused" in world.scheduler.log_text())
    assert [(path, note["job_id"]) for path, _, note in hook.told] == [("/all", low)]
    second = preempt(world.api())
    wait_until("it is told of the next", lambda: len(hook.told) == 2)
    assert (hook.told[1][0], hook.told[1][2]["job_id"]) == ("/all", second)


def test_a_webhook_that_does_not_answer_keeps_nobody_waiting(new_world, hook):
    """Its port is taken and nobody accepts there: the scheduler goes on, and says in its log that it gave up."""
    silent = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    try:
        world = hooked_world(new_world, SCHEDULER_PREEMPT_WEBHOOK_URL=f"http://127.0.0.1:{silent.server_address[1]}/")
        preempt(world.api())
        wait_until("it gives up", lambda: "webhook_failed" in world.scheduler.log_text())
    finally:
        silent.server_close()


def test_a_wrong_webhook_in_the_configuration_is_refused(new_world):
    for name, value in (("URL", "https://127.0.0.1/"), ("HOSTS", "http://127.0.0.1")):
        world = new_world(**{f"SCHEDULER_PREEMPT_WEBHOOK_{name}": value})
        world.scheduler.launch()
        assert world.scheduler.ended() != 0
        assert f"scheduler.preempt_webhook_{name.lower()}" in world.scheduler.log_text()
