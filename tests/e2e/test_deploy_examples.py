"""The examples below deploy/ that people copy: each option, file, metric and package that they name exists."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import urllib.error
import urllib.request

import containers
import harness
import pytest
from harness import PATIENCE_S, ROOT, bin_dir, program, wait_until
from ports import free_port

yaml = pytest.importorskip("yaml", reason="python3-yaml is not here (tools/install-deps --extra installs it)")

FOLDER = ROOT / "deploy" / "compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = ("scheduler", "agent-1", "agent-2")
BOARDS = ROOT / "deploy" / "monitoring" / "dashboards"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
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
        for secret in service.get("secrets", []):
            assert (secret["source"] if isinstance(secret, dict) else secret) in COMPOSE["secrets"]
        for source in mounts(name).values():
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
        # Nothing of it is to be reached from another machine.
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name
    build = SERVICES["scheduler"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT and (context / build["dockerfile"]).samefile(FOLDER / "Dockerfile")


def test_the_first_command_of_the_readme_makes_a_token_that_git_ignores(tmp_path):
    command = re.findall(r"^```sh\n(.*?)\n", README, re.MULTILINE)[0]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    assert re.fullmatch(r"[0-9a-f]{64}", (tmp_path / "token").read_text())
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    assert COMPOSE["secrets"]["token"]["file"] == "./token"
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
        self.token = world.folder / "token"
        self.token.write_text("0123456789abcdef" * 4)
        self.token.chmod(0o600)
        self.logs = {}

    def url(self, port):
        return f"http://127.0.0.1:{self.ports[port]}"

    def translated(self, service, word):
        for path, source in mounts(service).items():
            word = word.replace(path, str(self.world.folder / source))
        word = word.replace("/run/secrets/token", str(self.token)).replace("gpu-jobs", "nobody")
        return word.replace("scheduler:9090", f"127.0.0.1:{self.ports['9090']}")

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
        for path, source in mounts(service).items():
            folder = self.world.folder / source
            folder.mkdir()
            # A secret with a target lies at that place.
            for secret in SERVICES[service]["secrets"]:
                if isinstance(secret, dict) and secret["target"].startswith(path):
                    shutil.copy(self.token, folder / secret["target"][len(path) + 1:])
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
        assert job["authorization"]["credentials_file"] == "/run/secrets/token"
        request = urllib.request.Request(f"{self.url('9091')}/metrics",
                                         headers={"Authorization": f"Bearer {self.token.read_text()}"})
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
    assert SERVICES["scheduler"]["healthcheck"]["test"][:1] == ["CMD"]
    wait_until("the health check passes", lambda: cluster.run(*SERVICES["scheduler"]["healthcheck"]["test"][1:]))
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

@pytest.mark.skipif(not shutil.which("dpkg-query") or b"ID=debian" not in harness.read_bytes("/etc/os-release"),
                    reason="the packages are Debian's")
def test_the_image_has_the_libraries_of_the_programs():
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM "):]
    assert "apt-get" not in last  # Debian's smallest image has the C library, and nothing else of ours is shared.
    listed = subprocess.run(["dpkg-query", "-L", "libc6"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    files = {line.rpartition("/")[2] for line in listed.stdout.splitlines()}
    for name in ("gpu-scheduler", "gpu-agent", "gpu-cli"):
        linked = subprocess.run(["ldd", program(name)], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        names = {line.split()[0].rpartition("/")[2] for line in linked.stdout.splitlines() if "vdso" not in line}
        assert names and names <= files, names - files


@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("ninja"), reason="cmake or ninja is not here")
def test_what_the_image_copies_is_enough_to_configure(tmp_path):
    for line in re.findall(r"^COPY ([^-].*)$", DOCKERFILE, re.MULTILINE):
        *sources, target = line.split()
        if sources[0].startswith("build/"):
            assert {source.rpartition("/")[2] for source in sources} == {"gpu-scheduler", "gpu-agent", "gpu-shim", "gpu-cli"}
            continue
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, tmp_path / target)
    done = subprocess.run(["cmake", "--preset", "release"], cwd=tmp_path, capture_output=True, text=True, check=False,
                          timeout=5 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    targets = re.search(r"tools/build release (.*?) &&", DOCKERFILE)[1].split()
    # Every source of these is there; the build makes the others.
    done = subprocess.run(["ninja", "-C", "build", "-t", "inputs", *targets], cwd=tmp_path, capture_output=True, text=True,
                          check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    build = (tmp_path / "build").resolve()
    sources = {pathlib.Path(os.path.normpath(build / line)) for line in done.stdout.splitlines()}
    sources = {path for path in sources if path.is_relative_to(tmp_path) and not path.is_relative_to(build)}
    assert sources and not [path for path in sources if not path.exists()]


class Image:
    """A stand-in for Debian: a shell, the libraries that are linked here, and what the Dockerfile's RUN calls."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("bin", "etc", "tmp", "root", "run", "proc", "sys", "dev", "home", "usr/local/bin"):
            (folder / name).mkdir(parents=True)
        shutil.copy(containers.BUSYBOX, folder / "bin/busybox")
        for name in ("sh", "rm", "id", "echo"):
            (folder / "bin" / name).symlink_to("busybox")
        (folder / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
        (folder / "etc/group").write_text("root:x:0:\n")
        self.add_script("useradd", 'echo "$2:x:1000:1000::/tmp:/bin/sh" >>/etc/passwd')
        linked = subprocess.run(["ldd", program("gpu-scheduler")], capture_output=True, text=True, timeout=PATIENCE_S,
                                check=True).stdout
        for path in re.findall(r"(/\S+) \(0x", linked):
            (folder / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / path[1:])

    def add_script(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture(name="podman")
def podman_fixture(session_folder):
    reason = containers.why_not()
    if reason:
        pytest.skip(reason)
    podman = containers.Podman(session_folder / "podman-compose")
    try:
        podman.import_image("localhost/shell:1")
        trouble = podman.works("localhost/shell:1")
        if trouble:
            pytest.skip(f"podman cannot run a container here: {trouble}")
        yield podman
    finally:
        podman.end()


def test_the_image_runs_a_job(podman, cluster, tmp_path):
    base = Image(tmp_path / "base")
    archive = subprocess.run(["tar", "-C", base.folder, "-c", "."], capture_output=True, check=True, timeout=PATIENCE_S)
    podman.call("import", "-", "localhost/base:1", text_in=archive.stdout)
    context = tmp_path / "context"
    (context / "build/bin").mkdir(parents=True)
    for name in ("gpu-scheduler", "gpu-agent", "gpu-shim", "gpu-cli"):
        shutil.copy(program(name), context / "build/bin" / name)
    arguments = ["--build-arg", "BASE=localhost/base:1", "--build-arg", "PROGRAMS=ready"]
    podman.call("build", "--network=host", "-f", str(FOLDER / "Dockerfile"), *arguments, "-t", "localhost/ours:1", str(context))

    common = ["--network=host", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024"]
    environment = {**SERVICES["scheduler"]["environment"], "GPU_SCHEDULER_API_HTTP_PORT": cluster.ports["8080"],
                   "GPU_SCHEDULER_API_GRPC_PORT": cluster.ports["9090"], "GPU_SCHEDULER_METRICS_PORT": cluster.ports["9091"],
                   "GPU_SCHEDULER_URL": cluster.url("8080")}
    for service in ("scheduler", "agent-1"):
        words = [f"--env={name}={value}" for name, value in environment.items() if service == "scheduler"]
        for path, source in mounts(service).items():
            (tmp_path / source).mkdir()
            words.append(f"--volume={tmp_path / source}:{path}")
        for secret in SERVICES[service]["secrets"]:
            target = secret["target"] if isinstance(secret, dict) else f"/run/secrets/{secret}"
            words.append(f"--volume={cluster.token}:{target}:ro")
        command = [word.replace("scheduler:9090", f"127.0.0.1:{cluster.ports['9090']}") for word in SERVICES[service]["command"]]
        podman.call("run", "--detach", f"--name={service}", *common, *words, "localhost/ours:1", *command)
    wait_until("the node is ready", lambda: " ready " in podman.call("exec", "scheduler", "gpu-cli", "nodes", expected=None))
    got = podman.call("exec", "scheduler", "gpu-cli", "submit", "--gpus", "1", "--wait", "--logs", "--", "sh", "-c",
                      "id; echo got $CUDA_VISIBLE_DEVICES")
    assert "uid=1000(gpu-jobs)" in got and "got GPU-sim-n1-0" in got
