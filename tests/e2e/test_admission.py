"""Who may submit how much: buckets, days, long queues; each refusal says when to come again."""

import subprocess
import threading

import harness

from test_reload import hang_up, with_scheduler


def submit(api, user="", labels=None, key=None):
    """(status, body, seconds to wait) of one submission that can only wait: there is no node."""
    job = {"command": ["true"], "gpu_count": 1}
    if user:
        job["user"] = user
    if labels:
        job["labels"] = labels
    status, body, headers = api.call("POST", "/api/v1/jobs", job, {"Idempotency-Key": key} if key else None)
    return status, body, int(headers.get("Retry-After", 0))


def test_a_users_bucket_empties_and_fills(new_world):
    world = new_world()
    path = with_scheduler(world, "admission:\n  user_rate: 0.01\n  user_burst: 6\n  task_costs: [llm=5]\n")
    api = world.api()
    assert submit(api, "ux", key="k")[0] == 201
    assert submit(api, "ux", {"task_type": "llm"})[0] == 201
    status, body, wait = submit(api, "ux")
    assert (status, body["code"]) == (429, "rate_exceeded")
    assert 90 <= wait <= 100, wait
    assert "bucket" in body["error"]
    # Others go on, what was answered is answered again, and a restart forgets nothing.
    assert submit(api, "uy")[0] == 201
    assert submit(api, "ux", key="k")[0] == 201
    world.scheduler.restart()
    assert submit(api, "ux")[1]["code"] == "rate_exceeded"
    assert submit(api, "ux", key="k")[0] == 201
    # The rate changes while it runs.
    path.write_text("admission:\n  user_rate: 1000\n  user_burst: 6\n")
    assert hang_up(world.scheduler, "config_reloaded", 1)["changes"] == 2
    harness.wait_until("the bucket fills", lambda: submit(api, "uy")[0] == 201)


def test_a_day_and_a_long_queue_have_their_own_words(new_world):
    world = new_world()
    path = with_scheduler(world, "admission:\n  user_daily: 2\n")
    api = world.api()
    assert [submit(api, "ux")[0] for _ in range(3)] == [201, 201, 429]
    status, body, wait = submit(api, "ux")
    assert (status, body["code"]) == (429, "daily_exceeded") and 0 < wait <= 86_400
    assert "you have spent 2 of today's 2" in body["error"]
    path.write_text("admission:\n  soft_queue: 3\n  throttled_rate: 0.01\nscheduler:\n  max_queue_size: 10\n")
    hang_up(world.scheduler, "config_reloaded", 1)
    assert [submit(api, "uz")[0] for _ in range(2)] == [201, 201]
    status, body, wait = submit(api, "uz")
    assert (status, body["code"]) == (429, "throttled") and 90 <= wait <= 100
    assert submit(api, "ua")[0] == 201
    assert submit(api, "ub")[1]["code"] == "queue_full"


def waiting(api, tenant, user="", **fields):
    job = {"command": ["true"], "gpu_count": 1, "tenant_id": tenant, **fields}
    if user:
        job["user"] = user
    status, body, headers = api.call("POST", "/api/v1/jobs", job)
    return status, body.get("code", body.get("job_id")), int(headers.get("Retry-After", 0))


def test_a_tenant_has_a_queue_of_its_own(new_world):
    world = new_world()
    path = with_scheduler(world, "admission:\n  throttled_rate: 0.01\n")
    api = world.api()
    lab = api.post("/tenants", {"name": "lab", "max_waiting_jobs": 3, "soft_waiting_jobs": 1}, 201)
    assert (lab["max_waiting_jobs"], lab["soft_waiting_jobs"]) == (3, 1)
    first = waiting(api, "lab", "ux")[1]
    assert waiting(api, "lab", "ux")[0] == 201
    status, code, wait = waiting(api, "lab", "ux")
    assert (status, code) == (429, "tenant_throttled") and 90 <= wait <= 100
    assert waiting(api, "lab", "uy")[0] == 201
    assert waiting(api, "lab", "uz") == (429, "tenant_queue_full", 5)
    assert waiting(api, "lab", "uz", array="0-9") == (429, "tenant_queue_full", 0)
    # Neither is anybody else's business, a restart forgets nothing, and who leaves makes room.
    assert [waiting(api, "default", "ux")[0] for _ in range(5)] == [201] * 5
    world.scheduler.restart()
    assert waiting(api, "lab", "uz")[1] == "tenant_queue_full"
    api.cancel(first)
    assert waiting(api, "lab", "ux")[1] == "tenant_throttled"
    assert waiting(api, "lab", "uz")[0] == 201
    # Limits are lifted by null, and a rate of its own is read again.
    assert api.call("PUT", "/api/v1/tenants/lab", {"max_waiting_jobs": None})[1]["max_waiting_jobs"] is None
    assert waiting(api, "lab", "ua")[0] == 201
    assert waiting(api, "lab", "ua")[1] == "tenant_throttled"
    path.write_text("admission:\n  throttled_rate: 1000\n")
    hang_up(world.scheduler, "config_reloaded", 1)
    assert waiting(api, "lab", "ua")[0] == 201
    harness.wait_until("the user's turn comes", lambda: waiting(api, "lab", "ua")[0] == 201)


def test_a_tenants_queue_is_set_by_the_command_line_and_by_a_file(new_world):
    world = new_world()
    with_scheduler(world, "")
    api = world.api()
    world.cli("tenant", "create", "--name", "lab", "--max-waiting", "2", "--soft-waiting", "1", expected=0)
    assert "0/2, throttled from 1 on" in world.cli("tenant", "get", "lab", expected=0).stdout
    world.cli("tenant", "update", "lab", "--max-waiting", "none", "--soft-waiting", "none", expected=0)
    assert api.get("/tenants/lab")["max_waiting_jobs"] is None
    file = world.folder / "cluster.yaml"
    file.write_text("tenants:\n- {name: lab, max_waiting_jobs: 1}\n- {name: child, parent: lab}\n")
    subprocess.run([harness.program("gpu-scheduler"), "admin", "apply", "-f", str(file)], check=True,
                   env=world.cli_environment(), timeout=harness.PATIENCE_S, stdout=subprocess.DEVNULL)
    assert waiting(api, "child")[0] == 201
    assert waiting(api, "lab")[1] == "tenant_queue_full"
    status, tenant, _ = api.call("PATCH", "/v1/tenants/lab", {"soft_waiting_jobs": 7, "max_waiting_jobs": None})
    assert (status, tenant["soft_waiting_jobs"], tenant.get("max_waiting_jobs")) == (200, 7, None)


def test_a_wrong_cost_is_refused_at_the_start_and_at_a_reload(new_world):
    world = new_world()
    path = with_scheduler(world, "admission:\n  user_rate: 1\n")
    path.write_text("admission:\n  task_costs: [llm=none]\n")
    assert "type=tokens" in hang_up(world.scheduler, "config_not_reloaded", 1)["why"]
    world.scheduler.stop()
    world.scheduler.launch()
    assert world.scheduler.ended() != 0
    assert "admission.task_costs" in world.scheduler.log_text()


def test_a_storm_of_one_user_leaves_the_work_of_another_unharmed(new_world):
    world = new_world()
    with_scheduler(
        world, "admission:\n  user_rate: 20\n  user_burst: 40\nscheduler:\n  max_queue_size: 100000\n"
    )
    api = world.api()
    rss = []

    def size():
        with open(f"/proc/{world.scheduler.pid()}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    stop, stormed = threading.Event(), {201: 0, 429: 0}
    lock = threading.Lock()

    def storm():
        mine = world.api()
        while not stop.is_set():
            status = submit(mine, "storm")[0]
            with lock:
                stormed[status] += 1  # Nothing but these two may be answered.

    threads = [threading.Thread(target=storm) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        # Many times what the storm's bucket allows is offered, and every job of the steady user is taken.
        harness.wait_until("the storm is refused", lambda: stormed[429] >= 100)
        accepted = []
        for turn in range(30):
            status, body, _ = submit(api, "steady")
            assert status == 201, body
            accepted.append(body["job_id"])
            if turn % 10 == 0:
                rss.append(size())
        harness.wait_until("ten times as many are refused", lambda: stormed[429] >= 10 * stormed[201])
        rss.append(size())
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {api.job(job)["state"] for job in accepted} == {"pending"}
    assert rss[-1] - rss[0] < 32 * 1024, rss
    world.scheduler.restart()
    assert {api.job(job)["state"] for job in accepted} == {"pending"}
