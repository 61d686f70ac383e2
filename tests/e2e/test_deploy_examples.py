"""The examples below deploy/ that people copy: each option, file, metric and package that they name exists."""

import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request

import containers
import harness
import pytest
from harness import PATIENCE_S, ROOT, bin_dir, wait_until
from ports import free_port

yaml = pytest.importorskip("yaml", reason="python3-yaml is not here (tools/install-deps --extra installs it)")

FOLDER = ROOT / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = ("scheduler", "agent-1", "agent-2")
BOARDS = ROOT / "deploy" / "monitoring" / "dashboards"
IMAGE = "gpu-scheduler:0.1.0"
DOCKERFILE = (ROOT / "deploy" / "image" / "Dockerfile").read_text()
README = (FOLDER / "README.md").read_text()
METRIC = re.compile(r"\bgpu_scheduler_\w+")


def mounts(service):
    """{path in the container: file here, or a volume's name}"""
    return {words[1]: words[0] for words in (text.split(":") for text in SERVICES[service].get("volumes", []))}


# --- The compose file itself. ---

def test_whatever_the_compose_file_names_is_there():
    assert set(SERVICES) == {*OURS, "prometheus", "grafana"}
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", [])) <= set(SERVICES)
        for source in mounts(name).values():
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
        # Nothing of it is to be reached from another machine.
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name
    version = re.search(r"project\(gpu-scheduler VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    for name in OURS:
        # Made here, and never fetched: somebody else may have an image of that name.
        assert (SERVICES[name]["image"], SERVICES[name]["pull_policy"]) == (f"gpu-scheduler:{version}", "never")
        assert SERVICES[name].get("user") == (None if name == "scheduler" else "0:0")


def test_the_token_that_the_readme_copies_out_is_ignored_by_git():
    assert "docker compose cp scheduler:/var/lib/gpu-scheduler/token token" in README
    assert "/token" in (FOLDER / ".gitignore").read_text().split()


@pytest.mark.parametrize("profiles, started", [((), OURS), (("prometheus",), (*OURS, "prometheus")),
                                               (("grafana",), (*OURS, "prometheus", "grafana"))])
def test_a_profile_starts_its_services_and_those_that_they_need(profiles, started):
    found = {name for name, service in SERVICES.items()
             if not service.get("profiles") or set(service["profiles"]) & set(profiles)}
    assert found == set(started)
    for name in found:
        assert set(SERVICES[name].get("depends_on", [])) <= found


def has_compose():
    if not shutil.which("docker"):
        return False
    return subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_compose(), reason="docker with its Compose plugin is not here")
@pytest.mark.parametrize("profile", ["prometheus", "grafana"])
def test_compose_accepts_the_file(profile, tmp_path):
    done = subprocess.run(["docker", "compose", "--file", FOLDER / "compose.yaml", "--profile", profile, "config", "--services"],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {*OURS, profile} <= set(done.stdout.split())


# --- Its programs. ---

class Cluster:
    """The compose file's own services as processes of this machine, with folders and ports of a world."""

    def __init__(self, world):
        self.world = world
        self.ports = {port: free_port() for port in ("8080", "9090", "9091", "50051", "8081", "8000")}
        self.token = world.folder / "scheduler" / "token"
        self.logs = {}

    def url(self, port):
        return f"http://127.0.0.1:{self.ports[port]}"

    def translated(self, service, word):
        for path, source in mounts(service).items():
            word = word.replace(path, str(self.world.folder / source))
        return word.replace("gpu-jobs", "nobody").replace("scheduler:9090", f"127.0.0.1:{self.ports['9090']}")

    def environment(self, service):
        settings = {name: str(value) for name, value in SERVICES[service].get("environment", {}).items()}
        ports = {"GPU_SCHEDULER_API_HTTP_PORT": "8080", "GPU_SCHEDULER_API_GRPC_PORT": "9090",
                 "GPU_SCHEDULER_METRICS_PORT": "9091", "GPU_SCHEDULER_TASKS_GRPC_PORT": "50051",
                 "GPU_SCHEDULER_TASKS_HTTP_PORT": "8081", "GPU_SCHEDULER_DOORS_ALLOCATION_PORT": "8000"}
        if service == "scheduler":
            settings.update({name: str(self.ports[port]) for name, port in ports.items()})
            settings["GPU_SCHEDULER_URL"] = self.url("8080")
        return self.world.environment({**settings, "PATH": f"{bin_dir()}:{os.environ['PATH']}"})

    def start(self, service):
        for source in mounts(service).values():
            (self.world.folder / source).mkdir(exist_ok=True)
        words = [self.translated(service, word) for word in SERVICES[service]["command"]]
        self.logs[service] = self.world.folder / f"{service}.out"
        with open(self.logs[service], "wb") as sink:
            subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, cwd="/",
                             env=self.environment(service), start_new_session=True)

    def run(self, *words):
        """What `docker compose exec scheduler` runs; its output."""
        done = subprocess.run(words, env=self.environment("scheduler"), capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=PATIENCE_S, cwd=self.world.folder)
        return done.stdout if done.returncode == 0 else ""

    def scrape(self):
        """What Prometheus gets by its configuration: the samples' names."""
        (job,) = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
        (target,) = job["static_configs"][0]["targets"]
        assert target == "scheduler:9091"
        assert job["authorization"]["credentials_file"] == "/run/scheduler/token"
        assert mounts("prometheus")["/run/scheduler"] == "scheduler"
        request = urllib.request.Request(f"{self.url('9091')}/metrics",
                                         headers={"Authorization": f"Bearer {self.token.read_text().strip()}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        return set(re.findall(r"^(gpu_\w+)(?:\{.*\})? \S+$", text, re.MULTILINE))


@pytest.fixture(name="cluster")
def cluster_fixture(new_world):
    world = new_world()
    world.strict = False
    found = Cluster(world)
    yield found
    harness.kill_processes_of(world.folder)


@pytest.mark.skipif(not harness.IS_ROOT, reason="only an agent of root has a default user")
def test_its_command_lines_make_a_cluster_that_the_dashboards_can_show(cluster):
    cluster.start("scheduler")
    check = json.loads(re.search(r"^HEALTHCHECK .* CMD (.*)$", DOCKERFILE, re.MULTILINE)[1])
    wait_until("the health check passes", lambda: cluster.run(*check))
    for agent in OURS[1:]:
        cluster.start(agent)
    wait_until("both nodes are ready", lambda: len(re.findall(r"^n[12] +ready", cluster.run("gpu-cli", "nodes"), re.M)) == 2)

    lines = re.findall(r"^docker compose exec scheduler (gpu-cli .*)$", README, re.MULTILINE)
    printed = "".join(cluster.run(*shlex.split(line)) or pytest.fail(line) for line in lines)
    assert re.search(r"got GPU-sim-n[12]-\d,GPU-sim-n[12]-\d", printed), printed
    assert "2 of 2 online" in printed
    # As a caller outside the containers: with the token, and not without it.
    assert cluster.run("gpu-cli", "--token-file", str(cluster.token), "nodes")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{cluster.url('9091')}/metrics", timeout=PATIENCE_S)

    wait_until("something holds GPUs", lambda: "gpu_scheduler_tenant_gpus_used" in cluster.scrape())
    # Every query is asked in test_monitoring.py; here nothing waits, reports power or has pools.
    asked = {name for path in BOARDS.glob("*.json") for name in METRIC.findall(path.read_text())}
    optional = {name for name in asked if re.search(
        "_(gpu_power|jobs_waiting|pool_gpus|tenant_gpus_(limit|guaranteed)|starts_(covered|predicted)|run_times)_?", name)}
    assert len(asked - optional) > 25
    assert asked - optional - cluster.scrape() == set()


# --- Prometheus and Grafana. ---

def test_prometheus_scrapes_and_judges_as_on_a_machine():
    theirs = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yaml").read_text())
    here = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    for config in (theirs, here):
        for job in config["scrape_configs"]:
            job.pop("authorization", None)
            job["static_configs"] = []
    assert here == theirs
    where = mounts("prometheus")
    assert where["/etc/prometheus/prometheus.yml"] == "./prometheus.yaml"
    for name in here["rule_files"]:
        rules = yaml.safe_load((FOLDER / where[f"/etc/prometheus/{name}"]).read_text())
        assert [rule["alert"] for group in rules["groups"] for rule in group["rules"]]


def test_grafana_finds_its_data_source_and_its_dashboards():
    where = mounts("grafana")
    (source,) = yaml.safe_load((FOLDER / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    # The dashboards take the default one.
    assert source["url"] == "http://prometheus:9090" and source["type"] == "prometheus" and source["isDefault"]
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9092:9090"]
    (files,) = yaml.safe_load((FOLDER / "grafana/provisioning/dashboards/files.yaml").read_text())["providers"]
    assert (FOLDER / where[files["options"]["path"]]).samefile(BOARDS)
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    folder, _, name = home.rpartition("/")
    assert folder == files["options"]["path"] and (BOARDS / name).exists()


# --- The image. ---

@pytest.fixture(name="engine", params=["podman", "docker"])
def engine_fixture(request, session_folder):
    reason = containers.why_not(request.param)
    if reason:
        pytest.skip(reason)
    engine = containers.new_engine(request.param, session_folder / f"image-{request.param}", bridges=True)
    try:
        engine.import_image("localhost/shell:1")
        trouble = engine.works("localhost/shell:1")
        if trouble:
            pytest.skip(f"{request.param} cannot run a container here: {trouble}")
        yield engine
    finally:
        engine.end()


def make_image(engine):
    subprocess.run([ROOT / "tools" / "image", IMAGE], check=True, timeout=harness.PATIENCE_S, env={
        **os.environ, **engine.environment, "BIN_DIR": str(bin_dir()), "IMAGE_BUILDER": " ".join(map(str, engine.words))})


def test_the_image_s_files_are_the_same_each_time_and_few(tmp_path):
    for name in ("one", "two"):
        subprocess.run([ROOT / "tools" / "image", "--tar", tmp_path / name], check=True, timeout=harness.PATIENCE_S,
                       env={**os.environ, "BIN_DIR": str(bin_dir())})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    listed = subprocess.run(["tar", "--numeric-owner", "-tvf", tmp_path / "one"], capture_output=True, text=True,
                            check=True).stdout
    files = {line.split()[5][1:]: line.split()[:2] for line in listed.splitlines() if not line.startswith("l")}
    programs = {path for path, (mode, _) in files.items() if mode.startswith("-") and "x" in mode and "/lib/" not in path}
    assert programs == {"/bin/busybox", *(f"/usr/local/bin/gpu-{name}" for name in ("agent", "cli", "scheduler", "shim"))}
    assert not [mode for mode, _ in files.values() if "s" in mode]  # Nothing makes anybody root.
    assert files["/var/lib/gpu-scheduler/"] == ["drwx------", "10001/10001"]


def test_the_image_runs_a_job_and_stops_cleanly(engine, new_world, tmp_path):
    make_image(engine)
    facts = json.loads(engine.call("inspect", "--type=image", IMAGE))[0]
    assert facts["Config"]["User"] == "10001:10001" and len(facts["RootFS"]["Layers"]) == 1
    assert facts["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    common = ["--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
    volumes = {"scheduler": ["--volume=data:/var/lib/gpu-scheduler"],
               "agent-1": ["--volume=data:/run/scheduler:ro", "--user=0:0", "--network=container:scheduler"]}
    # Podman names the user after its number, and jobs that it submits would ask for a user of that name.
    unnamed = ["--passwd=false"] if isinstance(engine, containers.Podman) else []
    engine.call("run", "--detach", "--name=scheduler", *common, *unnamed, *volumes["scheduler"], IMAGE)
    check = json.loads(re.search(r"^HEALTHCHECK .* CMD (.*)$", DOCKERFILE, re.MULTILINE)[1])
    wait_until("the health check passes", lambda: engine.call("exec", "scheduler", *check, expected=None))
    command = [word.replace("scheduler:9090", "127.0.0.1:9090") for word in SERVICES["agent-1"]["command"]]
    engine.call("run", "--detach", "--name=agent-1", *common[1:], *volumes["agent-1"], IMAGE, *command)
    wait_until("the node is ready", lambda: " ready " in engine.call("exec", "scheduler", "gpu-cli", "nodes", expected=None))
    got = engine.call("exec", "scheduler", "gpu-cli", "submit", "--gpus", "1", "--wait", "--logs", "--", "sh", "-c",
                      "id; cat /run/scheduler/token; echo got $CUDA_VISIBLE_DEVICES")
    assert "uid=1000(gpu-jobs)" in got and "got GPU-sim-n1-0" in got
    assert engine.call("exec", "scheduler", "id", "-u").strip() == "10001"
    # The token was closed to the job, and nothing was killed.
    token = engine.call("exec", "scheduler", "cat", "/var/lib/gpu-scheduler/token").strip()
    assert len(token) == 64 and token not in got
    for name in ("agent-1", "scheduler"):
        engine.call("stop", name)
        assert engine.call("inspect", "--format={{.State.ExitCode}}", name).strip() == "0"


@pytest.mark.parametrize("engine", ["podman"], indirect=True)
def test_the_first_job_of_the_image_is_measured(engine, tmp_path):
    limits = tmp_path / "containers.conf"
    limits.write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n')
    done = subprocess.run([ROOT / "tools" / "first-job", "--engine", shlex.join(engine.words), "image"], capture_output=True,
                          text=True, check=False, timeout=2 * PATIENCE_S,
                          env={**os.environ, **engine.environment, "BIN_DIR": str(bin_dir()), "CONTAINERS_CONF": str(limits)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\| image \| 3 \| [\d.]+ \|$", done.stdout, re.MULTILINE), done.stdout
    assert engine.containers() == []


@pytest.mark.skipif(not shutil.which("docker-compose"), reason=f"docker-compose is not installed ({containers.INSTALL_DOCKER})")
@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_compose_brings_the_cluster_up_and_the_readme_s_commands_run(engine, tmp_path):
    make_image(engine)
    # Debian's Compose is of version 1, which knows no `name`, and no network to fetch the other images is needed.
    text = (FOLDER / "compose.yaml").read_text().replace("name: gpu-scheduler\n", "", 1)
    (tmp_path / "compose.yaml").write_text(text)

    def compose(*words):
        done = subprocess.run(["docker-compose", "--file", tmp_path / "compose.yaml", "--project-directory", FOLDER, *words],
                              env={**os.environ, "DOCKER_HOST": f"unix://{engine.socket}", "COMPOSE_PROJECT_NAME": "gpus"},
                              capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=2 * PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for profile in ("prometheus", "grafana"):
        assert {*OURS, profile} <= set(compose("--profile", profile, "config", "--services").split())
    compose("up", "--detach")
    wait_until("both nodes are ready",
               lambda: len(re.findall(r"^n[12] +ready", compose("exec", "-T", "scheduler", "gpu-cli", "nodes"), re.M)) == 2)
    lines = re.findall(r"^docker compose exec scheduler (gpu-cli .*)$", README, re.MULTILINE)
    printed = "".join(compose("exec", "-T", "scheduler", *shlex.split(line)) for line in lines)
    assert re.search(r"got GPU-sim-n[12]-\d,GPU-sim-n[12]-\d", printed), printed
    compose("down", "--volumes")
    assert engine.containers() == []
