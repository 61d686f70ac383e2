"""The history and the present in PostgreSQL: existing SQL, exactly once, and a database that is away or slow."""

import json
import sqlite3
import subprocess
import time

import pytest
from harness import program, wait_until
from postgres import PASSWORD, Postgres
from test_history import metric

# As an existing scheduler has it: nothing in it is ours.
FOREIGN_FILE = """environment: development
scheduler: {scheduling_interval_ms: 1000, max_queue_size: 10000, enable_preemption: true, default_priority: 100,
  enable_gang_scheduling: true, enable_thermal_aware: true, thermal_threshold: 75.0}
database: {host: localhost, port: 5433, user: postgres, password: "gpu123", database: gpu_scheduler,
  sslmode: disable, max_open_conns: 25, max_idle_conns: 5, conn_max_lifetime_mins: 30}
redis: {host: localhost, port: 6379, password: "", db: 0, pool_size: 10, min_idle_conns: 2}
api: {grpc_port: 9090, http_port: 8080, enable_tls: false, tls_cert_path: "", tls_key_path: "",
  cors_enabled: true, cors_origins: "*", rate_limit_rps: 100}
metrics: {enabled: true, port: 9091, path: /metrics, namespace: gpu_scheduler}
"""


@pytest.fixture(name="servers")
def servers_fixture():
    """Makes servers that are ended behind the test."""
    made = []

    def make(**options):
        made.append(Postgres(**options))
        return made[-1]

    yield make
    for server in made:
        server.end()


@pytest.fixture(name="database")
def database_fixture(servers):
    return servers().make_database()


def concerns(api):
    return [c for c in api.call("GET", "/health")[1].get("concerns", []) if "database" in c]


def is_level(world):
    return metric(world, "gpu_scheduler_database_lag_seconds") == 0


def sums_of_sqlite(world):
    """What the history beside it says: jobs by state, and GPU time."""
    file = world.folder / f"copy-{time.monotonic_ns()}.db"
    made = subprocess.run([program("gpu-scheduler"), "history", "copy", str(file), "--api-url",
                           f"http://127.0.0.1:{world.scheduler.ports['http']}", "--token-file",
                           str(world.scheduler.data_dir / "token")], capture_output=True, text=True, timeout=60,
                          check=False)
    assert made.returncode == 0, made.stderr
    with sqlite3.connect(file) as copy:
        return [copy.execute(sql).fetchall() for sql in COMPARED]


COMPARED = ("SELECT state, COUNT(*), SUM(gpu_ms), SUM(attempts) FROM jobs WHERE ended_ms IS NOT NULL"
            " GROUP BY state ORDER BY state",
            "SELECT COUNT(*), SUM(gpu_us), SUM(ended_ms), SUM(device_mask) FROM attempts",
            "SELECT COUNT(*) FROM running", "SELECT COUNT(*) FROM job_nodes",
            "SELECT SUM(gpu_us), SUM(cpu_us), SUM(lost_us), SUM(attempts) FROM usage_hours",
            "SELECT SUM(gpu_us), SUM(memory_mb_s) FROM usage_days")


def sums_of(server):
    rows = [server.psql(sql).splitlines() for sql in COMPARED]
    return [[tuple(int(v) if v.lstrip("-").isdigit() else v for v in row.split("|")) for row in table] for table in rows]


def test_existing_sql_reads_the_present_at_most_a_second_late(new_world, database):
    world = new_world(**database.settings())
    world.scheduler.start()
    world.add_agent().start().wait_registered()
    api = world.api()
    tenant = api.post("/tenants", {"name": "vision", "max_gpus": 3}, expected=201)["id"]
    runs = api.submit("sleep 1000", gpu_count=2, name="runs", tenant_id=tenant, priority=7)
    waits = api.submit("true", gpu_count=2, name="waits", tenant_id=tenant)
    api.wait_for(runs, "running")

    def rows():
        return database.psql("SELECT id, name, state, priority, gpu_count FROM jobs ORDER BY submitted_at, id").splitlines()

    wait_until("both are there", lambda: len(rows()) == 2)
    expected = [f"{runs}|runs|running|7|2", f"{waits}|waits|pending|100|2"]
    wait_until("as they are", lambda: sorted(rows()) == sorted(expected))
    wait_until("the tenant's limit and use are there", lambda: database.psql(
        f"SELECT name, max_gp_us, current_gp_us FROM tenants WHERE id = '{tenant}'") == "vision|3|2")
    wait_until("it is level", lambda: is_level(world))
    # From the answer to a call to the row.
    before = time.monotonic()
    api.cancel(runs)
    wait_until("the row changes", lambda: f"{runs}|runs|cancelled|7|2" in rows())
    api.wait_for(waits)
    wait_until("the other ends, too", lambda: f"{waits}|waits|completed|100|2" in rows())
    assert time.monotonic() - before < 30
    lags = []
    for _ in range(9):
        api.submit("true", gpu_count=1)
        time.sleep(0.15)
        lags.append(metric(world, "gpu_scheduler_database_lag_seconds"))
    assert sorted(lags)[4] < 1, lags
    wait_until("nothing is in use", lambda: database.psql(
        f"SELECT current_gp_us FROM tenants WHERE id = '{tenant}'") == "0")
    assert database.psql(f"SELECT completed_at IS NOT NULL, tenant_id FROM jobs WHERE id = '{waits}'") == f"t|{tenant}"
    assert concerns(api) == []


def test_kill_9_of_either_side_leaves_each_record_once(new_world, database):
    world = new_world(**database.settings(HISTORY_EVENTS_MAX=300))
    world.scheduler.start()
    world.add_agent().start().wait_registered()
    api = world.api()
    jobs = []
    for turn in range(6):
        jobs += [api.submit("true" if k % 3 else "exit 3", gpu_count=1) for k in range(8)]
        time.sleep(0.1 * turn / 2)
        if turn % 2:
            database.stop_at_once()
            jobs += [api.submit("true", gpu_count=1) for _ in range(4)]
            database.start()
        else:
            world.scheduler.kill()
            world.scheduler.restart()
            api = world.api()
    for job in jobs:
        api.wait_for(job)
    wait_until("both are level", lambda: is_level(world) and metric(world, "gpu_scheduler_history_lag_seconds") == 0)
    assert metric(world, "gpu_scheduler_database_gaps") == 0
    ours = sums_of_sqlite(world)
    assert sum(row[1] for row in ours[0]) == len(jobs)
    assert sums_of(database) == ours
    assert database.psql("SELECT COUNT(*) FROM jobs WHERE ended_ms IS NULL") == "0"


def test_the_file_of_an_existing_scheduler_starts_with_and_without_a_database(new_world, servers):
    world = new_world()
    file = world.folder / "config.yaml"
    file.write_text(FOREIGN_FILE)
    scheduler = world.scheduler
    words = scheduler.command
    scheduler.command = lambda: [*words(), "--config", str(file)]
    server = servers().make_database()
    scheduler.settings["DATABASE_PORT"] = server.port  # Side by side with other tests, 5433 may be taken.
    server.stop_at_once()
    before = time.monotonic()
    scheduler.start()
    assert time.monotonic() - before < 20
    world.add_agent().start().wait_registered()
    api = world.api()
    job = api.submit("true", gpu_count=1)
    api.wait_for(job)
    (concern,) = wait_until("it says so", lambda: concerns(api))
    assert "refused" in concern and "catches up" in concern
    scheduler.wait_event("database_not_written")
    assert metric(world, "gpu_scheduler_database_errors_total") > 0
    wait_until("the lag is told", lambda: metric(world, "gpu_scheduler_database_lag_seconds") > 1)
    report = json.loads(subprocess.run(
        [words()[0], "doctor", *scheduler.command()[1:], "--json"], capture_output=True, text=True, check=False, timeout=60,
        env=world.environment(scheduler.environment)).stdout)
    (check,) = [c for c in report["checks"] if c["check"] == "database"]
    assert check["verdict"] == "warn" and "takes no connection" in check["detail"]
    server.start()
    wait_until("it catches up by itself", lambda: server.psql(
        f"SELECT state FROM jobs WHERE id = '{job}'", check=False) == "completed")
    wait_until("the concern is gone", lambda: not concerns(api))
    text = scheduler.log_text() + json.dumps(api.call("GET", "/health")[1]) + json.dumps(report)
    assert PASSWORD not in text


def test_a_locked_table_holds_no_job_up(new_world, database):
    world = new_world(**database.settings())
    world.scheduler.start()
    world.add_agent().start().wait_registered()
    api = world.api()
    wait_until("the tables are there", lambda: database.psql("SELECT to_regclass('tenants') IS NOT NULL") == "t")
    blocker = subprocess.Popen(
        ["psql", "-h", "127.0.0.1", "-p", str(database.port), "-U", "postgres", "-d", "gpu_scheduler", "-Xq"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**world.environment(), "PGPASSWORD": PASSWORD})
    try:
        blocker.stdin.write("BEGIN; LOCK TABLE position IN ACCESS EXCLUSIVE MODE;\n\\echo locked\n")
        blocker.stdin.flush()
        assert blocker.stdout.readline() == "locked\n"
        jobs = [api.submit("true", gpu_count=1) for _ in range(10)]
        for job in jobs:
            api.wait_for(job)
        assert wait_until("the lag is told", lambda: metric(world, "gpu_scheduler_database_lag_seconds") > 1)
    finally:
        blocker.stdin.close()
        blocker.wait()
    wait_until("it is level", lambda: is_level(world))
    assert database.psql("SELECT COUNT(*) FROM jobs WHERE state = 'completed'") == str(len(jobs))
    blocked = world.scheduler.stop()
    assert blocked == 0


def test_a_wrong_password_is_told_and_never_written_down(new_world, database):
    secret = "not-the-password-9f3c"
    world = new_world(**database.settings(DATABASE_PASSWORD=secret))
    world.scheduler.start()
    api = world.api()
    (concern,) = wait_until("it says so", lambda: concerns(api))
    assert "password authentication failed" in concern
    shown = world.cli("status", expected=0).stdout
    assert secret not in world.scheduler.log_text() + concern + shown


def test_the_connection_is_encrypted_as_sslmode_says(new_world, servers):
    server = servers(tls=True).make_database()
    world = new_world(**server.settings(DATABASE_SSLMODE="require", API_ENABLE_TLS="false"))
    world.scheduler.start()
    wait_until("it is written with TLS", lambda: server.psql(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
        " WHERE application_name = 'gpu-scheduler'") == "t")
    wait_until("the tables are there", lambda: server.psql("SELECT to_regclass('tenants') IS NOT NULL") == "t")
    world.scheduler.stop()
    world.scheduler.settings["DATABASE_SSLMODE"] = "verify-full"
    world.scheduler.start()
    (concern,) = wait_until("nobody knows the certificate", lambda: concerns(world.api()))
    assert "root certificate" in concern or "certificate verify failed" in concern


def test_without_a_database_there_is_no_word_of_one(world):
    assert concerns(world.api()) == []
    with pytest.raises(StopIteration):
        metric(world, "gpu_scheduler_database_lag_seconds")
