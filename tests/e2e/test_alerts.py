"""The alert rules that are shipped: their metrics exist, and each has its section in the runbook."""

import re
import signal
import time
import urllib.request

from harness import ROOT, wait_until

RULES = ROOT / "deploy" / "monitoring" / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "operate" / "alerts.md"


def rules():
    """(name, text) of each rule; the file is simple enough to be read without a parser."""
    _, *texts = RULES.read_text().split("- alert: ")
    return [(text.split("\n", 1)[0], text) for text in texts]


def metrics_of(world, token=None):
    url = f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def value_of(text, sample):
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.M)
    assert found, f"{sample} is not among:\n{text}"
    return float(found[1])


def test_every_rule_asks_for_metrics_that_are_there_and_has_a_section(world):
    api = world.api()
    api.wait_for(api.submit("true", gpu_count=1))
    metrics = metrics_of(world)
    page = (ROOT / "docs/reference/metrics.md").read_text()
    families = re.findall(r"^# TYPE (\S+)", metrics, re.M)
    assert [name for name in families if not re.search(f"`{name}[`{{]", page)] == [], "families without a line in metrics.md"
    told = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if not line.startswith("#")}
    told.add("gpu_scheduler_snapshot_age_seconds")  # After the first snapshot.
    told.add("gpu_scheduler_config_last_reload_successful")  # After the first SIGHUP.
    told.add("gpu_scheduler_database_lag_seconds")  # Where a database is configured: test_database.py.
    told |= {"gpu_scheduler_replica_healthy", "gpu_scheduler_replica_peer_reachable"}  # Of several schedulers.
    titles = set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.M))
    names = set()
    for name, text in rules():
        names.add(name)
        asked = set(re.findall(r"gpu_scheduler_\w+", text))
        assert asked or name == "SchedulerDown"
        assert asked <= told, f"{name} asks for {asked - told}"
        assert f'runbook: "docs/operate/alerts.md#{name.lower()}"' in text
    assert names == titles


def test_sums_are_what_the_cluster_is(world):
    api = world.api()
    runs = api.submit("sleep 1000", gpu_count=3)
    api.wait_for(runs, "running")
    waits = api.submit("true", gpu_count=4)
    world.cli("pause", expected=0)
    text = metrics_of(world)
    assert value_of(text, 'gpu_scheduler_nodes{state="ready"}') == 1
    assert value_of(text, 'gpu_scheduler_jobs{state="running"}') == 1
    assert value_of(text, 'gpu_scheduler_jobs{state="pending"}') == 1
    assert value_of(text, "gpu_scheduler_starts_paused") == 1
    assert value_of(text, "gpu_scheduler_storage_full") == 0
    assert value_of(text, 'gpu_scheduler_tenant_gpus_used{tenant="default"}') == 3
    assert value_of(text, "gpu_scheduler_journal_sync_seconds_count") > 0
    held = re.search(r'^gpu_scheduler_gpus\{state="held",model="[^"]+"\} 3$', text, re.M)
    assert held, text
    world.cli("resume", expected=0)
    api.cancel(runs)
    api.wait_for(waits)


def test_waits_by_reason_and_tenant_pools_guarantees_and_power_are_told(new_world):
    world = new_world(SCHEDULER_POOL_ONLINE_PERCENT=25, SCHEDULER_POOL_BATCH_PERCENT=75, SCHEDULER_POOL_MODE="lending")
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    agent.set_gpus({0: {"power_watts": 310, "temperature_celsius": 61}})
    for words in (["vision", "--max-gpus", "2", "--guarantee-gpus", "1"], ["speech"]):
        world.cli("tenant", "create", "--name", *words, expected=0)
    api = world.api()
    runs = world.cli("submit", "--tenant", "vision", "--gpus", "2", "--", "sleep", "1000", expected=0).stdout.strip()
    api.wait_for(runs, "running")
    for words in (["vision", "--gpus", "1"], ["vision", "--gpus", "1"], ["speech", "--gpus", "4"]):
        world.cli("submit", "--tenant", *words, "--", "true", expected=0)
    token = world.scheduler.token()
    text = wait_until("the GPU's power is told", lambda: "gpu_power_watts{" in (text := metrics_of(world, token)) and text)
    assert value_of(text, 'gpu_scheduler_gpu_power_watts{node="n1",gpu="n1-gpu-0"}') == 310
    assert text.count("gpu_power_watts{") == 1  # The others report none.
    assert value_of(text, 'gpu_scheduler_gpu_temperature_celsius{node="n1",gpu="n1-gpu-0"}') == 61
    assert value_of(text, 'gpu_scheduler_gpu_memory_used_bytes{node="n1",gpu="n1-gpu-3"}') == 0
    text = wait_until("why each waits is told", lambda: 'jobs_waiting{reason="gpus_busy"} 1\n' in (
        text := metrics_of(world, token)) and 'jobs_waiting{reason="quota"} 2\n' in text and text)
    waited = [value_of(text, f'gpu_scheduler_jobs_waiting_longest_seconds{{reason="{reason}"}}') for reason in ("gpus_busy", "quota")]
    assert value_of(text, "gpu_scheduler_longest_wait_seconds") == max(waited) < 600
    assert value_of(text, 'gpu_scheduler_tenant_starts_total{tenant="vision"}') == 1
    assert 0 < value_of(text, 'gpu_scheduler_tenant_start_wait_seconds_total{tenant="vision"}') < 600
    assert 'tenant_starts_total{tenant="speech"}' not in text
    assert value_of(text, 'gpu_scheduler_tenant_gpus_guaranteed{tenant="vision"}') == 1
    assert value_of(text, 'gpu_scheduler_pool_gpus_used{pool="batch"}') == 2
    assert value_of(text, 'gpu_scheduler_pool_gpus_share{pool="batch"}') == 3
    assert value_of(text, 'gpu_scheduler_pool_gpus_share{pool="online"}') == 1
    # Tenants are not told to callers without a credential.
    assert "vision" not in metrics_of(world) and "jobs_waiting{" in metrics_of(world)


def test_requests_reloads_heartbeats_and_the_process_are_counted(world):
    api = world.api()
    api.wait_for(api.submit("true"))
    assert api.call("GET", "/api/v1/jobs/job-999")[0] == 404
    text = wait_until("the node reported", lambda: "node_heartbeat_age_seconds{" in (text := metrics_of(world)) and text)
    assert value_of(text, 'gpu_scheduler_requests_total{door="rest_read",code="404"}') == 1
    assert value_of(text, 'gpu_scheduler_requests_total{door="rest_write",code="201"}') == 1
    assert value_of(text, 'gpu_scheduler_request_seconds_count{door="rest_write"}') == 1
    assert value_of(text, 'gpu_scheduler_request_seconds_bucket{door="rest_write",le="+Inf"}') == 1
    assert 0 <= value_of(text, 'gpu_scheduler_node_heartbeat_age_seconds{node="n1"}') < 600
    assert 'gpu_scheduler_build_info{version="' in text and "config_last_reload" not in text
    assert value_of(text, "process_resident_memory_bytes") > 1e6
    assert value_of(text, "process_open_fds") > 5
    assert abs(value_of(text, "process_start_time_seconds") - time.time()) < 3_600
    assert value_of(text, "process_cpu_seconds_total") > 0
    world.scheduler.process.send_signal(signal.SIGHUP)
    text = wait_until("it was read again", lambda: "config_last_reload" in (text := metrics_of(world)) and text)
    assert value_of(text, "gpu_scheduler_config_last_reload_successful") == 1
    assert value_of(text, "gpu_scheduler_config_last_reload_timestamp_seconds") <= time.time() + 1


def test_an_agent_tells_its_own_figures_while_its_scheduler_is_away(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=["--metrics-port", "0"]).start()
    port = wait_until("the port is told", lambda: re.search(r'"event":"metrics_served".*?"port":(\d+)', agent.log_text()))[1]

    def figures():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return answer.read().decode()

    api = world.api()
    job = api.submit("sleep 1000", gpu_count=1)
    api.wait_for(job, "running")
    wait_until("the attempt is counted", lambda: "\ngpu_agent_attempts_running 1\n" in figures())
    assert value_of(figures(), "gpu_agent_connected") == 1
    assert figures().count("gpu_agent_gpu_healthy{") == 4
    world.scheduler.kill()
    wait_until("it is told that the scheduler is away", lambda: "\ngpu_agent_connected 0\n" in figures())
    assert value_of(figures(), "gpu_agent_attempts_running") == 1
    second = world.add_agent("n2", arguments=["--metrics-port", port])
    second.launch()
    assert second.ended() == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.log_text() and "--metrics-port" in second.log_text()
    world.scheduler.start()
    wait_until("it is told that the scheduler is back", lambda: "\ngpu_agent_connected 1\n" in figures())
