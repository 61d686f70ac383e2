"""make install, the units' promises without systemd (the same signals, the same words), and gpu-agent join."""

import configparser
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import tarfile
import threading

import harness
import pytest
from harness import A100X4, PATIENCE_S, ROOT, bin_dir, program, wait_until
from ports import free_port

PROGRAMS = ("gpu-agent", "gpu-cli", "gpu-pilot", "gpu-scheduler", "gpu-shim")


def make(target, **settings):
    words = [f"{name}={value}" for name, value in settings.items()]
    # Old enough not to be built again: the programs are those under test.
    done = subprocess.run(["make", "-s", "-o", "build", target, f"BIN_DIR={bin_dir()}", *words],
                          cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_installed_pages_have_no_dead_links(tmp_path):
    make("install", DESTDIR=tmp_path)
    pages = sorted((tmp_path / "usr/local/share/doc/gpu-scheduler").rglob("*.md"))
    links = [(page, target) for page in pages for target in
             re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", page.read_text())
             + re.findall(r"<(?:img|a)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text())]
    within = [(page, target.partition("#")[0]) for page, target in links if not re.match(r"[a-z]+:|#", target)]
    assert len(pages) > 50 and len(within) > 300
    assert [(str(page), target) for page, target in within if not (page.parent / target).exists()] == []


def test_install_and_uninstall_into_a_folder(tmp_path):
    make("install", DESTDIR=tmp_path)
    found = files_below(tmp_path)
    for name in PROGRAMS:
        path = tmp_path / "usr/local/bin" / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert path.read_bytes() == (bin_dir() / name).read_bytes()
    for path in ("usr/local/lib/systemd/system/gpu-scheduler.service", "usr/local/lib/systemd/system/gpu-agent.service",
                 "usr/local/share/doc/gpu-scheduler/LICENSE", "usr/local/share/doc/gpu-scheduler/operate/install.md",
                 "usr/local/share/doc/gpu-scheduler/agent.yaml.example", "etc/gpu-scheduler/scheduler.yaml",
                 "usr/local/lib/systemd/system/gpujobs.slice", "usr/local/share/doc/gpu-scheduler/gpu-agent-slice.conf",
                 "usr/local/share/man/man1/gpu-cli.1", "usr/local/share/man/man1/gpu-cli-submit.1",
                 "usr/local/share/man/man8/gpu-scheduler.8", "usr/local/share/man/man8/gpu-agent.8",
                 "usr/local/share/bash-completion/completions/gpu-cli",
                 "usr/local/share/bash-completion/completions/gpu-scheduler",
                 "usr/local/share/zsh/site-functions/_gpu-agent",
                 "usr/local/share/fish/vendor_completions.d/gpu-agent.fish"):
        assert path in found
    assert not [path for path in found if path.endswith(".installing")]
    # The default configuration is one that the scheduler takes.
    subprocess.run([program("gpu-scheduler"), "--config", str(tmp_path / "etc/gpu-scheduler/scheduler.yaml"),
                    "--print-config"], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
    make("uninstall", DESTDIR=tmp_path)
    assert files_below(tmp_path) == []


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
@pytest.mark.parametrize("name", ["gpu-scheduler", "gpu-agent", "gpu-cli", "gpu-pilot"])
def test_manual_pages_are_shown_without_a_warning(name, tmp_path):
    subprocess.run([program(name), "man", tmp_path], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S,
                   env={**os.environ, "HOME": "/nowhere/home", "XDG_STATE_HOME": "/nowhere/state"})
    pages = sorted(tmp_path.iterdir())
    assert any(page.stem == name for page in pages)
    for page in pages:
        done = subprocess.run(["man", "--warnings=w", "-E", "UTF-8", "-l", page], capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "PAGER": "cat"})
        assert (done.returncode, done.stderr) == (0, "")
        assert "--help" in done.stdout or page.stem != name
        assert "/nowhere" not in page.read_text()  # Nothing of whoever wrote it.


@pytest.mark.parametrize("name, words, offered", [
    ("gpu-scheduler", ["journal", "v"], ["verify"]), ("gpu-scheduler", ["--print"], ["--print-config"]),
    ("gpu-agent", ["--container-runtime", "pod"], ["podman"]), ("gpu-agent", ["--container-runtime", "=", "dock"], ["docker"]),
    ("gpu-agent", ["doc"], ["doctor"]), ("gpu-agent", ["join", "--no-st"], ["--no-start"])])
def test_bash_completes_the_daemons_words(name, words, offered):
    script = (f"source <({program(name)} completion bash)\n"
              f"COMP_WORDS=({program(name)} {' '.join(words)}); COMP_CWORD={len(words)}\n"
              f"_{name.replace('-', '_')} 2>/dev/null; echo \"${{COMPREPLY[@]}}\"\n")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.split() == offered


def test_another_prefix_and_a_changed_configuration(tmp_path):
    make("install", DESTDIR=tmp_path, PREFIX="/opt/gpu")
    unit = (tmp_path / "etc/systemd/system/gpu-agent.service").read_text()
    assert "ExecStart=/opt/gpu/bin/gpu-agent --config /etc/gpu-scheduler/agent.yaml" in unit
    assert "@" not in unit
    config = tmp_path / "etc/gpu-scheduler/scheduler.yaml"
    config.write_text("log:\n  level: debug\n")
    assert "kept" in make("install", DESTDIR=tmp_path, PREFIX="/opt/gpu")
    assert config.read_text() == "log:\n  level: debug\n"
    make("uninstall", DESTDIR=tmp_path, PREFIX="/opt/gpu")
    assert files_below(tmp_path) == ["etc/gpu-scheduler/scheduler.yaml"]


def test_a_path_that_would_break_the_units_is_refused(tmp_path):
    done = subprocess.run([ROOT / "tools/install-files", "install"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PREFIX": "/opt/my programs", "DESTDIR": str(tmp_path)})
    assert done.returncode == 2
    assert "/opt/my programs" in done.stderr
    assert files_below(tmp_path) == []


def test_a_packed_file_installs_the_same_without_a_checkout(tmp_path):
    file = tmp_path / "gpu-scheduler.tar"
    bins = {**os.environ, "BIN_DIR": str(bin_dir())}
    subprocess.run([ROOT / "tools/install-files", "pack", file.name], cwd=tmp_path, check=True, env=bins,
                   stdout=subprocess.DEVNULL, timeout=PATIENCE_S, umask=0o077)
    with tarfile.open(file) as packed:
        # Whoever packs it, what a machine unpacks is root's, and everybody may read it.
        facts = {(member.uid, member.gid, member.mode & 0o444, member.name.split("/")[0]) for member in packed}
    assert facts == {(0, 0, 0o444, "gpu-scheduler")}
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["tar", "-xf", file], cwd=there, check=True, timeout=PATIENCE_S)
    alone = {name: value for name, value in os.environ.items() if name != "BIN_DIR"}
    subprocess.run(["gpu-scheduler/tools/install-files", "install"], cwd=there, check=True, timeout=PATIENCE_S,
                   env={**alone, "DESTDIR": str(there / "root")}, stdout=subprocess.DEVNULL)
    make("install", DESTDIR=tmp_path / "here")
    found = files_below(tmp_path / "here")
    assert files_below(there / "root") == found
    for path in found:
        one, other = tmp_path / "here" / path, there / "root" / path
        assert one.read_bytes() == other.read_bytes() and one.stat().st_mode == other.stat().st_mode, path


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_takes_the_units(tmp_path):
    make("install", PREFIX=tmp_path / "usr", UNITDIR=tmp_path / "units", SYSCONFDIR=tmp_path / "etc")
    for unit in ("gpu-scheduler.service", "gpu-agent.service"):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "units" / unit)],
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        complaints = [line for line in done.stderr.splitlines() if unit in line]
        assert done.returncode == 0 and not complaints, done.stderr


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_takes_the_slice_and_the_drop_in_that_names_it(tmp_path):
    make("install", PREFIX=tmp_path / "usr", UNITDIR=tmp_path / "units", SYSCONFDIR=tmp_path / "etc")
    drop_in = tmp_path / "units/gpu-agent.service.d/slice.conf"
    drop_in.parent.mkdir()
    shutil.copy(tmp_path / "usr/share/doc/gpu-scheduler/gpu-agent-slice.conf", drop_in)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "units/gpujobs.slice"),
                           str(tmp_path / "units/gpu-agent.service")], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S)
    complaints = [line for line in done.stderr.splitlines() if "gpujobs" in line or "gpu-agent" in line]
    assert done.returncode == 0 and not complaints, done.stderr
    assert "Slice=gpujobs.slice" in drop_in.read_text().splitlines()
    assert "@" not in (tmp_path / "units/gpujobs.slice").read_text()


class Slice:
    """Groups such as systemd makes for a service in a slice, in each hierarchy of version 1, and that of version 2."""

    def __init__(self, name):
        self.places = []
        own = dict(line.split(":", 2)[1:] for line in harness.read_bytes("/proc/self/cgroup").decode().splitlines())
        for line in harness.read_bytes("/proc/self/mounts").decode().splitlines():
            _, mount, kind, options, *_ = line.split()
            if kind == "cgroup2":
                place = own.get("")
            elif kind == "cgroup":
                place = next((path for names, path in own.items() if set(names.split(",")) & set(options.split(","))), None)
            else:
                continue
            if place is not None:
                self.places.append(pathlib.Path(mount + place.rstrip("/")) / name)
        try:
            for place in self.places:
                (place / "gpu-agent.service").mkdir(parents=True)
                for path in (place, place / "gpu-agent.service"):
                    for setting in ("cpuset.cpus", "cpuset.mems"):
                        if (path / setting).exists():
                            (path / setting).write_text((path.parent / setting).read_text())
        except OSError as refused:
            self.remove()
            pytest.skip(f"cgroups cannot be made here: {refused}")

    def entered_by(self):
        """Command words before the agent's, which put it there."""
        enter = "".join(f"echo $$ > {place}/gpu-agent.service/cgroup.procs; " for place in self.places)
        return ["sh", "-c", enter + 'exec "$@"', "sh"]

    def remove(self):
        for place in self.places:
            for base, _, _ in os.walk(place, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(base)


@pytest.mark.skipif(not harness.IS_ROOT, reason="only root makes cgroups")
def test_an_agent_in_a_slice_has_its_jobs_beside_its_unit(new_world):
    world = new_world()
    name = f"gpujobs{os.getpid()}.slice"
    slices = Slice(name)
    try:
        world.scheduler.start()
        agent = world.add_agent("n1", prefix=slices.entered_by())
        agent.start()
        api = world.api()
        job = api.submit("cat /proc/self/cgroup; sleep 600", gpu_count=1, memory_mb=200)
        api.wait_for(job, "running")
        lines = wait_until("it says where it is", lambda: api.output(job)).splitlines()
        places = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}
        below = {controller for controller, path in places.items() if f"/{name}/gpusched-{agent.mark()}/" in path}
        assert "memory" in below or "" in below, lines
        assert not [path for path in places.values() if "gpu-agent.service" in path and "gpusched-" in path]
        # The unit's end and new start take nothing away.
        agent.restart()
        assert api.job(job)["state"] == "running"
        limits = [place / "memory.limit_in_bytes" for place in slices.places] + [place / "memory.max" for place in slices.places]
        limit = next((path for path in limits if path.exists()), None)
        if limit is not None:
            # What the slice has is all that its jobs have, whatever each of them was promised.
            api.cancel(job)
            api.wait_for(job)
            limit.write_text(str(100 << 20))
            eater = api.submit("head -c 180m /dev/zero | tail -n 1 > /dev/null", gpu_count=1, memory_mb=1000)
            ended = api.wait_for(eater)
            assert ended["state"] == "failed" and "memory" in ended["message"], ended
        world.end()
    finally:
        harness.kill_processes_of(world.folder)
        harness.remove_cgroups_of(world.folder)
        slices.remove()


def read_unit(name):
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str
    parser.read_string((ROOT / "deploy/systemd" / f"{name}.service.in").read_text())
    return {**parser["Unit"], **parser["Service"]}


def test_the_units_keep_jobs_alive():
    for name in ("gpu-scheduler", "gpu-agent"):
        unit = read_unit(name)
        assert unit["Type"] == "notify"
        assert unit["KillMode"] == "process"
        assert unit["Restart"] == "always"
        assert unit["LimitMEMLOCK"] == "infinity"
        assert int(unit["WatchdogSec"]) > 0
        assert "-HUP" in unit["ExecReload"]
    agent = read_unit("gpu-agent")
    assert agent["Delegate"] == "yes"
    assert agent["OOMPolicy"] == "continue"
    assert agent["TasksMax"] == "infinity"
    # What would be inherited by jobs and break them.
    for setting in ("PrivateTmp", "ProtectSystem", "ProtectHome", "PrivateDevices", "NoNewPrivileges", "DevicePolicy",
                    "MemoryDenyWriteExecute", "RestrictNamespaces", "SystemCallFilter", "User"):
        assert setting not in agent


class Manager:
    """The end of the notification protocol that systemd has, and a service's life as the units ask for it."""

    def __init__(self, daemon, folder, watchdog_s=0.0):
        self.daemon = daemon
        self.path = folder / f"{daemon.name}.notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.words = []
        self.lock = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()
        command, environment = daemon.command, {"NOTIFY_SOCKET": str(self.path)}
        if watchdog_s:
            environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))

        def managed():
            words = command()
            daemon.environment = {**daemon.environment, **environment}
            return words

        daemon.command = managed

    def listen(self):
        with contextlib.suppress(OSError):
            while True:
                word = self.socket.recv(4096).decode()
                if word == "":
                    return
                with self.lock:
                    self.words.append(word)

    def heard(self, start):
        with self.lock:
            return [word for word in self.words if word.startswith(start)]

    def wait_for(self, start, count=1):
        wait_until(f"{self.daemon.name} says {start}", lambda: len(self.heard(start)) >= count)
        return self.heard(start)[count - 1]

    def restart(self):
        """KillMode=process: SIGTERM to the main process alone, and a new one."""
        ready = len(self.heard("READY=1"))
        assert self.daemon.stop() == 0
        self.wait_for("STOPPING=1")
        self.daemon.launch()
        self.wait_for("READY=1", ready + 1)


def test_a_restart_of_both_units_ends_no_job(new_world):
    world = new_world()
    scheduler = Manager(world.scheduler, world.folder)
    world.scheduler.start()
    assert "serving REST on port" in scheduler.wait_for("READY=1")
    agent = world.add_agent("n1")
    node = Manager(agent, world.folder)
    agent.start()
    node.wait_for("READY=1")
    assert "connected to" in node.wait_for("STATUS=node n1: connected")
    api = world.api()
    gate = world.folder / "gate"
    probe = world.folder / "environment"
    job = api.submit(f"env > {probe}; while [ ! -e {gate} ]; do sleep 0.05; done; exit 7", gpu_count=1)
    api.wait_for(job, "running")
    shim = agent.shim_of(job)
    node.restart()
    scheduler.restart()
    world.scheduler.wait_serving()
    api = world.api()
    node.restart()
    api.wait_node("n1")
    assert agent.shim_of(job) == shim, "the same process as before"
    assert api.job(job)["attempts"] == 1
    gate.touch()
    assert api.wait_for(job)["exit_code"] == 7
    # The manager's words are none of the job's.
    assert "NOTIFY_SOCKET" not in probe.read_text()


def test_the_managers_reload(new_world):
    world = new_world()
    manager = Manager(world.scheduler, world.folder)
    world.scheduler.start()
    manager.wait_for("READY=1")
    os.kill(world.scheduler.pid(), signal.SIGHUP)
    assert "MONOTONIC_USEC=" in manager.wait_for("RELOADING=1")
    assert "no changes" in manager.wait_for("READY=1", 2)


def threads_named(pid, name):
    return [int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            if harness.read_bytes(task / "comm").strip() == name.encode()]


class Frozen:
    """A thread that does not go on: held by ptrace."""

    SEIZE, INTERRUPT, DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000

    def __init__(self, thread):
        self.thread = thread
        self.libc = ctypes.CDLL(None, use_errno=True)

    def trace(self, request):
        return self.libc.ptrace(request, self.thread, None, None)

    def __enter__(self):
        if self.trace(self.SEIZE) != 0:
            pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
        self.trace(self.INTERRUPT)
        os.waitpid(self.thread, self.WALL)
        return self

    def __exit__(self, *_):
        self.trace(self.DETACH)


def test_the_watchdog_is_fed_only_while_the_loop_goes_round(new_world):
    world = new_world()
    manager = Manager(world.scheduler, world.folder, watchdog_s=0.4)
    world.scheduler.start()
    manager.wait_for("WATCHDOG=1", 3)
    (loop,) = threads_named(world.scheduler.pid(), "host-loop")
    with Frozen(loop):
        manager.wait_for("STATUS=a thread makes no progress")
        fed = len(manager.heard("WATCHDOG=1"))
        # As many turns of the feeder as would have ended the service: /health is answered, and nothing is fed.
        for _ in range(5):
            assert world.api().call("GET", "/health")[0] == 200
            threading.Event().wait(0.2)
        assert len(manager.heard("WATCHDOG=1")) == fed
    manager.wait_for("WATCHDOG=1", fed + 3)


def test_the_agents_watchdog(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1")
    manager = Manager(agent, world.folder, watchdog_s=0.4)
    agent.start()
    manager.wait_for("WATCHDOG=1", 3)


def join(world, *words, text_in=None, address=None):
    where = address or f"127.0.0.1:{world.scheduler.ports['grpc']}"
    return subprocess.run([program("gpu-agent"), "join", where, *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False, input=text_in, env=world.environment())


class JoinedAgent(harness.Agent):
    """An agent that has nothing but what join wrote."""

    def command(self):
        return [program("gpu-agent"), "--config", str(self.world.folder / "etc/agent.yaml")]


def places(world):
    return ["--config", world.folder / "etc/agent.yaml", "--data-dir", world.folder / "n1", "--node", "n1",
            "--sim-gpus", A100X4]


def test_join_and_run(new_world):
    world = new_world()
    world.scheduler.start()
    token = world.scheduler.data_dir / "token"
    root_jobs = ["--allow-root-jobs"] if harness.IS_ROOT else []
    done = join(world, "--token-file", token, *places(world), *root_jobs)
    assert done.returncode == 0, done.stdout + done.stderr
    config = world.folder / "etc/agent.yaml"
    assert f"gpu-agent --config {config}" in done.stdout
    for path in (config, world.folder / "etc/agent.token"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = token.read_text().strip()
    assert (world.folder / "etc/agent.token").read_text().strip() == secret
    assert secret not in done.stdout + done.stderr + config.read_text()
    # Again: the same.
    text = config.read_text()
    assert join(world, "--token-file", "-", *places(world), *root_jobs, text_in=secret + "\n").returncode == 0
    assert config.read_text() == text
    agent = JoinedAgent(world, "n1")
    world.daemons.append(agent)
    agent.start()
    api = world.api()
    assert api.wait_for(api.submit("echo $CUDA_VISIBLE_DEVICES", gpu_count=1))["exit_code"] == 0


@pytest.mark.skipif(not harness.IS_ROOT, reason="only an agent of root runs jobs as others")
def test_join_names_the_user_of_jobs_that_name_none(new_world):
    world = new_world()
    world.scheduler.start()
    done = join(world, "--token-file", world.scheduler.data_dir / "token", *places(world), "--default-user", "nobody")
    assert done.returncode == 0, done.stdout + done.stderr
    agent = JoinedAgent(world, "n1")
    world.daemons.append(agent)
    agent.start()
    api = world.api()
    job = api.submit("id -un")
    assert api.wait_for(job)["exit_code"] == 0
    assert api.output(job) == "nobody\n"
    refused = api.submit("true", user="root")
    wait_until("it says why", lambda: "does not run jobs as 'root'" in api.job(refused)["message"])


SYSTEMD_RUNS = """
mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work"
mount -t overlay none -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" /etc
mount -t tmpfs none /run && mkdir -p /run/systemd/system /etc/systemd/system
touch /etc/systemd/system/gpu-agent.service
shift; exec "$@"
"""


@pytest.mark.skipif(not harness.IS_ROOT, reason="only root starts units, and mounts what stands for systemd's folders")
def test_join_starts_the_unit_that_is_installed_or_says_how(new_world):
    world = new_world()
    world.scheduler.start()
    programs, scratch = world.folder / "programs", world.folder / "scratch"
    for folder in (programs, scratch):
        folder.mkdir()
    (programs / "systemctl").write_text('#!/bin/sh\necho "asked for: $*"\n')
    (programs / "systemctl").chmod(0o755)

    def inside(*words):
        return subprocess.run(
            ["unshare", "-m", "sh", "-euc", SYSTEMD_RUNS, "sh", scratch, *words], capture_output=True, text=True,
            check=False, timeout=PATIENCE_S, env=world.environment({"PATH": f"{programs}:{os.environ['PATH']}"}))

    if (tried := inside("true")).returncode != 0:
        pytest.skip(f"nothing can be mounted here: {tried.stderr.strip()}")
    words = [program("gpu-agent"), "join", f"127.0.0.1:{world.scheduler.ports['grpc']}", "--token-file",
             world.scheduler.data_dir / "token", "--data-dir", world.folder / "n1", "--allow-root-jobs"]
    said = inside(*words).stdout
    assert "asked for: enable gpu-agent\nasked for: restart gpu-agent\n" in said and "gpu-agent is running" in said
    said = inside(*words, "--no-start").stdout
    assert "asked for" not in said and "start the agent:\n  systemctl enable --now gpu-agent\n" in said


def test_join_refuses_what_cannot_work_and_writes_nothing(new_world):
    world = new_world()
    world.scheduler.start()
    token = world.scheduler.data_dir / "token"
    closed = free_port()
    cases = [
        (join(world, "--token-file", token, *places(world), address=f"127.0.0.1:{closed}"), 1, "no scheduler can be reached"),
        (join(world, "--token-file", "-", *places(world), text_in="0123456789abcdef0123456789abcdef"), 1, "does not know this token"),
        (join(world, "--token-file", "-", *places(world), text_in="short"), 2, "not a token"),
        (join(world, "--token-file", token, *places(world), address="127.0.0.1:port"), 2, "port"),
        (join(world, "--token-file", "/nowhere", *places(world)), 2, "/nowhere"),
        (join(world, "--token-file", token, "--config", "agent.yaml"), 2, "absolute"),
        (join(world, "--token-file", token, *places(world), "--default-user", "no-such-user"), 2, "getent passwd"),
        (join(world, "--token-file", token, *places(world), "--default-user", "root"), 2, "--allow-root-jobs"),
        (join(world, "--token-file", token, *places(world), address=f"127.0.0.1:{world.scheduler.ports['http']}"), 1, "gRPC port"),
    ]
    for done, status, sentence in cases:
        assert done.returncode == status, (done.args, done.stdout, done.stderr)
        assert sentence in done.stdout + done.stderr, (done.args, done.stdout, done.stderr)
    assert not (world.folder / "etc").exists()
    assert not (world.folder / "n1").exists()


def test_join_does_not_make_another_node_by_mistake(new_world):
    world = new_world()
    world.scheduler.start()
    token = world.scheduler.data_dir / "token"
    config = world.folder / "etc/agent.yaml"
    config.parent.mkdir()
    config.write_text("scheduler: 10.9.8.7:9090\nnode: other\n")
    done = join(world, "--token-file", token, *places(world))
    assert done.returncode == 1
    assert "scheduler 10.9.8.7:9090" in done.stderr and "--replace" in done.stderr
    assert join(world, "--token-file", token, *places(world), "--replace").returncode == 0
    assert "10.9.8.7" not in config.read_text()


def test_a_token_given_as_an_argument_is_not_on_the_list_of_processes(new_world):
    world = new_world()
    secret = "0123456789abcdef0123456789abcdef"
    # It accepts and says nothing, so that join waits.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        process = subprocess.Popen([program("gpu-agent"), "join", f"127.0.0.1:{silent.getsockname()[1]}", secret,
                                    *map(str, places(world))], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, env=world.environment())
        connection, _ = silent.accept()  # It has read its arguments.
        words = harness.read_bytes(f"/proc/{process.pid}/cmdline").split(b"\0")
        assert words[1] == b"join"
        assert secret.encode() not in words
        assert b"x" * len(secret) in words
        out, _ = process.communicate(timeout=PATIENCE_S)
        connection.close()
    assert process.returncode == 1
    assert secret not in out
