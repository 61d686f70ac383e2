"""A client that exists already: its configuration file, environment, set-up, scripts and typed answers."""

import json
import re
import subprocess
import time

import harness
from harness import PATIENCE_S, program, wait_until

# Every key that such a file has.
CONFIGURATION = """\
environment: development
scheduler: {scheduling_interval_ms: 1000, max_queue_size: 10000, enable_preemption: true, enable_gang_scheduling: true,
            enable_thermal_aware: true, thermal_threshold: 75.0, default_priority: 100}
agent: {node_id: n1, heartbeat_interval_ms: 5000, metrics_interval_ms: 10000, health_check_interval_ms: 30000,
        dcgm_enabled: false, dcgm_host_port: "localhost:5555", container_runtime: docker}
database: {host: localhost, port: 5433, user: postgres, password: "hunter22", database: gpu_scheduler, sslmode: disable,
           max_open_conns: 25, max_idle_conns: 5, conn_max_lifetime_mins: 30}
redis: {host: localhost, port: 6379, password: "", db: 0, pool_size: 10, min_idle_conns: 2}
kubernetes: {in_cluster: false, kubeconfig_path: ~/.kube/config, namespace: gpu-system}
api: {grpc_port: 9090, http_port: 8080, enable_tls: false, tls_cert_path: "", tls_key_path: "", cors_enabled: true,
      cors_origins: "*", rate_limit_rps: 100}
metrics: {enabled: true, port: 9091, path: /metrics, namespace: gpu_scheduler}
telemetry: {tracing_enabled: false, jaeger_endpoint: "http://localhost:14268/api/traces", profiling_enabled: false,
            profiling_port: 6060}
"""
WITHOUT_EFFECT = {
    "environment", "scheduler.scheduling_interval_ms",
    *(f"agent.{key}" for key in ("node_id", "metrics_interval_ms", "health_check_interval_ms", "dcgm_enabled",
                                 "dcgm_host_port", "container_runtime")),
    *(f"database.{key}" for key in ("max_open_conns", "max_idle_conns")),
    *(f"redis.{key}" for key in ("host", "port", "password", "db", "pool_size", "min_idle_conns")),
    *(f"kubernetes.{key}" for key in ("in_cluster", "kubeconfig_path", "namespace")),
    *(f"telemetry.{key}" for key in ("tracing_enabled", "jaeger_endpoint", "profiling_enabled", "profiling_port"))}


class ConfiguredScheduler(harness.Scheduler):
    def __init__(self, world, path):
        super().__init__(world, {})
        self.path = path

    def command(self):
        return [*super().command(), "--config", str(self.path)]


def events(daemon, name):
    return daemon.events(name)


def configured(world, text=CONFIGURATION):
    path = world.folder / "scheduler-config.yaml"
    path.write_text(text)
    world.scheduler = ConfiguredScheduler(world, path)
    world.daemons = [world.scheduler]
    return path


def scheduler_says(world, path, *words, environment=None):
    return subprocess.run([program("gpu-scheduler"), "--config", path, *words], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=world.environment(environment))


def test_its_configuration_file_starts_the_scheduler_and_what_does_nothing_is_named(new_world):
    world = new_world()
    path = configured(world)
    world.scheduler.start()
    warned = wait_until("the warning", lambda: events(world.scheduler, "config_without_effect"))
    assert len(warned) == 1 and warned[0]["level"] == "warning"
    assert set(warned[0]["details"]["keys"].split(", ")) == WITHOUT_EFFECT
    assert "hunter22" not in world.scheduler.log_text()

    printed = scheduler_says(world, path, "--print-config")
    assert printed.returncode == 0
    assert f"pool_size: 10  # {path}:" in printed.stdout and "; no effect\n" in printed.stdout
    assert f"profiling_port: 6060  # {path}:" in printed.stdout and "hunter22" not in printed.stdout
    told = subprocess.run([program("gpu-scheduler"), "doctor", "--json", "--config", path, "--data-dir",
                           world.scheduler.data_dir], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env=world.environment())
    found = {check["check"]: check for check in json.loads(told.stdout)["checks"]}
    assert found["config"]["verdict"] == "ok" and "no effect: environment, " in found["config"]["detail"]

    # Each from the environment too; what is misspelt is refused there and in the file.
    variables = {f"GPU_SCHEDULER_{key.replace('.', '_').upper()}": "7" for key in WITHOUT_EFFECT}
    assert scheduler_says(world, path, "--print-config", environment=variables).returncode == 0
    wrong = scheduler_says(world, path, "--print-config", environment={"GPU_SCHEDULER_REDIS_POOLSIZE": "1"})
    assert wrong.returncode == 2 and "did you mean GPU_SCHEDULER_REDIS_POOL_SIZE?" in wrong.stderr
    path.write_text(CONFIGURATION.replace("profiling_port", "profilng_port"))
    wrong = scheduler_says(world, path, "--print-config")
    assert wrong.returncode == 2 and "did you mean telemetry.profiling_port?" in wrong.stderr
    # Encryption is never promised and not given: with half of a certificate, and with a whole one of its own otherwise.
    secure = CONFIGURATION.replace("enable_tls: false", "enable_tls: true")
    path.write_text(secure.replace('tls_key_path: ""', "tls_key_path: server.key"))
    wrong = scheduler_says(world, path, "--print-config")
    assert wrong.returncode == 2 and "api.enable_tls is true and api.tls_cert_path is empty" in wrong.stderr
    path.write_text(secure)
    assert scheduler_says(world, path, "--print-config").returncode == 0


def test_an_agent_takes_its_name_from_the_environment(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("spare")
    command = agent.command()
    at = command.index("--node")
    agent.command = lambda: command[:at] + command[at + 2:]
    agent.environment = {"AGENT_NODE_ID": "named-by-environment", "AGENT_CONTAINER_RUNTIME": "none",
                         "AGENT_HEALTH_CHECK_INTERVAL_MS": "30000", "GPU_SCHEDULER_AGENT_DCGM_ENABLED": "true"}
    agent.start()
    world.api().wait_node("named-by-environment")
    warned = events(agent, "config_without_effect")
    assert [line["details"]["keys"] for line in warned] == ["GPU_SCHEDULER_AGENT_DCGM_ENABLED"]
    wrong = subprocess.run(command[:at] + command[at + 2:], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                           env=world.environment({"GPU_SCHEDULER_AGENT_NODEID": "x"}))
    assert wrong.returncode == 2 and "did you mean GPU_SCHEDULER_AGENT_NODE_ID?" in wrong.stderr


def test_its_command_line_and_scripts_run(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", arguments=["--container-runtime", "none"]).start()
    api = world.api()
    # Its set-up, twice.
    ids = []
    for _ in range(2):
        said = world.cli("create-tenant", "--name", "AI Research Team", "--max-gpus", "8", "--priority", "medium", expected=0)
        assert said.stdout.startswith("Tenant created successfully!\nTenant ID: tenant-")
        ids.append(said.stdout.split()[-1])
    assert ids[0] != ids[1]
    told = api.get(f"/tenants/{ids[0]}")
    assert (told["max_gpus"], told["priority_tier"]) == (8, "medium")
    # What an operator creates keeps its name to itself; what is meant by a name of two is asked for.
    refused = world.cli("tenant", "create", "--name", "AI Research Team")
    assert refused.returncode != 0 and "exists" in refused.stderr
    refused = world.cli("submit", "--tenant", "AI Research Team", "--", "true")
    assert refused.returncode != 0 and all(tenant in refused.stderr for tenant in ids), refused

    # The text of a script, one word of it too; a file of that name comes first; a misspelt one is no text.
    url = f"http://127.0.0.1:{world.scheduler.ports['http']}"
    flags = ("--api-url", url, "--tenant-id", ids[0])
    (world.folder / "hello").write_text("echo from the file\n")
    for script, output in (("hostname", None), ("echo one; echo two", "one\ntwo\n"), ("hello", "from the file\n")):
        said = world.cli(*flags, "submit", "--name", "t", "--gpus", "1", "--cpus", "1", "--priority", "100", "--script", script,
                         expected=0)
        job = said.stdout.split()[0]
        ended = api.wait_for(job)
        assert (ended["state"], ended["tenant_id"]) == ("completed", ids[0]), ended
        if output is not None:
            assert api.output(job) == output
    refused = world.cli("submit", "--script", "misspelt.sh")
    assert refused.returncode == 2 and "there is no file misspelt.sh" in refused.stderr

    # The first line of its quick start: an image, where no node runs containers.
    job = api.post("/jobs", {"name": "quick", "tenant_id": ids[1], "gpu_count": 1, "script": "nvidia-smi",
                             "image": "nvidia/cuda:12.0-base", "gpu_memory_mb": 16000, "cpu_cores": 4, "memory_mb": 32000}, 201)["job_id"]
    waiting = wait_until("the reason", lambda: (found := api.job(job))["reason"] != "queued" and found)
    assert waiting["state"] == "pending" and "container images" in waiting["message"]
    refused = api.post("/jobs", {"script": "x", "image": "i", "require_feasible": True}, 422)
    assert refused["code"] == "image_unsupported"
    # More GPUs than any node has, and a kind that there is not: they wait too.
    for fields in ({"gpu_count": 64}, {"gpu_count": 1, "gpu_model": "H9000"}):
        other = api.post("/jobs", {"script": "x", **fields}, 201)["job_id"]
        why = wait_until("the reason", lambda: (found := api.job(other))["reason"] != "queued" and found)
        assert why["state"] == "pending" and why["message"], why
        assert api.post("/jobs", {"script": "x", "require_feasible": True, **fields}, 422)["code"] == "infeasible"
        api.cancel(other)
    api.cancel(job)


def seconds_of(text):
    """Of a duration such as 1h2m3.5s."""
    return sum(float(number) * {"h": 3600, "m": 60, "s": 1, "ms": 0.001}[unit]
               for number, unit in re.findall(r"([0-9.]+)(ms|h|m|s)", text))


def test_the_estimated_wait_is_told_without_a_forecast_and_counts_from_now(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB").start()
    api = world.api()
    api.wait_node("n1")
    first = api.post("/jobs", {"script": "sleep 600", "gpu_count": 1, "max_runtime_minutes": 10}, 201)
    assert seconds_of(first["estimated_wait"]) == 0
    api.wait_for(first["job_id"], ("running",))
    assert api.job(first["job_id"])["estimated_wait"] == "0s"
    second = api.post("/jobs", {"script": "true", "gpu_count": 1, "max_runtime_minutes": 5}, 201)
    third = api.post("/jobs", {"script": "true", "gpu_count": 1, "max_runtime_minutes": 5}, 201)
    for answer in (second, third):
        assert 60 < seconds_of(answer["estimated_wait"]) < 3600, answer
        assert 60 < seconds_of(api.job(answer["job_id"])["estimated_wait"]) < 3600
    assert all(job["estimated_wait"] for job in api.get("/jobs")["jobs"])
    assert seconds_of(api.job(third["job_id"])["estimated_wait"]) > seconds_of(api.job(second["job_id"])["estimated_wait"])
    # Nothing is written meanwhile, and it gets shorter all the same.
    before, began = seconds_of(api.job(second["job_id"])["estimated_wait"]), time.monotonic()
    wait_until("it is nearer", lambda: seconds_of(api.job(second["job_id"])["estimated_wait"]) < before - 3)
    assert time.monotonic() - began < 30
    # An unknown wait is left out.
    never = api.post("/jobs", {"script": "true", "gpu_count": 8}, 201)["job_id"]
    wait_until("the reason", lambda: api.job(never)["reason"] not in ("queued", "none"))
    assert "estimated_wait" not in api.job(never)
    for job in (never, third["job_id"], second["job_id"], first["job_id"]):
        api.cancel(job)


def test_what_lasts_is_counted_to_now(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="2xA100-SXM4-80GB").start()
    api = world.api()
    api.wait_node("n1")
    tenant = api.post("/tenants", {"name": "lab", "max_gpu_hours": 0.003}, 201)["id"]
    running = api.submit(["sleep", "600"], gpu_count=2, tenant_id=tenant)
    api.wait_for(running, ("running",))
    waits = api.post("/jobs", {"script": "true", "gpu_count": 2, "max_runtime_minutes": 1,
                               "deadline": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 70))}, 201)["job_id"]
    wait_until("it waits", lambda: api.job(waits)["reason"] not in ("queued", "none"))

    def look():
        told = api.get(f"/tenants/{tenant}")
        (listed,) = [one for one in api.get("/tenants")["tenants"] if one["id"] == tenant]
        assert listed["total_gpu_hours"] >= told["total_gpu_hours"]
        metrics = harness.Api(world.scheduler.ports["metrics"]).call("GET", "/metrics")[1].decode()
        longest = float(re.search(r"^gpu_scheduler_longest_wait_seconds ([0-9.e+]+)$", metrics, re.M).group(1))
        return {"budget": told["gpu_hours_used"] * 3600, "total": told["total_gpu_hours"] * 3600, "longest": longest,
                "warned": "miss its deadline" in api.job(waits)["message"]}

    before, began = look(), time.monotonic()
    time.sleep(4)  # Nothing is written meanwhile.
    after, passed = look(), time.monotonic() - began
    for name, gpus in (("budget", 2), ("total", 2), ("longest", 1)):
        assert gpus * 3 <= after[name] - before[name] <= gpus * (passed + 2), (name, before, after)
    wait_until("the deadline is too near", lambda: look()["warned"], timeout_s=30)
    api.cancel(running)
    assert wait_until("the end is counted", lambda: api.get(f"/tenants/{tenant}")["total_gpu_hours"] * 3600 >= after["total"])
