"""Podman and Docker for the end-to-end tests: images, storage and registries of their own, all below one folder."""

import os
import pathlib
import shutil
import signal
import subprocess

import harness
import registry

BUSYBOX = "/bin/busybox"
INSTALL = "tools/install-deps --extra installs it"
INSTALL_DOCKER = "tools/install-deps --nightly installs it"


DOCKER = "/usr/bin/docker"  # Debian's, of the daemon's version.


def why_not(engine="podman"):
    """Why containers cannot be tested here; None: they can."""
    if not harness.IS_ROOT:
        return "containers are tested as root"
    for name in {"podman": ("podman", "runc"), "docker": (DOCKER, "dockerd", "containerd", "runc")}[engine]:
        if not shutil.which(name):
            return f"{name} is not installed ({INSTALL if engine == 'podman' else INSTALL_DOCKER})"
    if not os.path.exists(BUSYBOX):
        return f"no static shell at {BUSYBOX} ({INSTALL})"
    return None


def new_engine(engine, folder, bridges=False):
    return Docker(folder, bridges) if engine == "docker" else Podman(folder)


class Engine:
    """What both have: their commands take the same words."""

    words = []  # Of the client, before the verb.
    environment = {}

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.registries = []

    def call(self, *words, expected=0, text_in=None, timeout_s=harness.PATIENCE_S):
        done = subprocess.run([*self.words, *words], capture_output=True, check=False, input=text_in,
                              timeout=timeout_s, env={**os.environ, **self.environment})
        assert expected is None or done.returncode == expected, (words, done)
        return done.stdout.decode()

    def works(self, image):
        """None, or why it cannot run a container here."""
        done = subprocess.run([*self.words, "run", "--rm", "--network=host", "--ulimit=nofile=1024:1024",
                               "--ulimit=nproc=1024:1024", "--entrypoint=/bin/true", image], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=harness.PATIENCE_S)
        return None if done.returncode == 0 else done.stderr.decode().strip()

    def import_image(self, name, *changes):
        """An image of this machine alone, made from a shell and its tools."""
        words = [word for change in changes for word in ("--change", change)]
        self.call("import", *words, "-", name, text_in=registry.shell_layer(BUSYBOX))
        return name

    def new_registry(self, **options):
        made = registry.Registry(**options)
        self.registries.append(made)
        return made

    def containers(self):
        return [line for line in self.call("ps", "--all", "--format", "{{.Names}}").splitlines() if line]

    def end(self):
        for one in self.registries:
            one.close()
        self.end_all()
        # Mounts of the storage outlive the engine itself.
        for mount in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if mount.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", mount.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Podman(Engine):
    def __init__(self, folder):
        super().__init__(folder)
        self.options = [f"--root={self.folder}/root", f"--runroot={self.folder}/run", "--runtime=runc",
                        "--cgroup-manager=cgroupfs", "--events-backend=file"]
        self.words = ["podman", *self.options]
        self.registries_file = self.folder / "registries.conf"
        self.registries_file.write_text("unqualified-search-registries = []\n")
        self.environment = {"CONTAINERS_REGISTRIES_CONF": str(self.registries_file)}

    def new_registry(self, **options):
        made = super().new_registry(**options)
        blocks = [f'[[registry]]\nlocation = "{one.host}"\ninsecure = true\n' for one in self.registries]
        self.registries_file.write_text("unqualified-search-registries = []\n" + "\n".join(blocks))
        return made

    def agent_arguments(self):
        return ["--container-runtime", "podman",
                *[f"--container-client-option={option}" for option in self.options]]

    def end_all(self):
        self.call("rm", "--all", "--force", "--time", "0", expected=None)


class Docker(Engine):
    """A daemon of Debian's docker.io. `bridges`: it has networks of its own, apart from this machine's."""

    def __init__(self, folder, bridges=False):
        super().__init__(folder)
        self.socket = f"{self.folder}/docker.sock"
        self.words = [DOCKER, f"--host=unix://{self.socket}"]
        daemon = ["dockerd", f"--host=unix://{self.socket}", f"--data-root={self.folder}/root",
                  f"--exec-root={self.folder}/run", f"--pidfile={self.folder}/pid"]
        if bridges:
            # Its addresses and packet filters end with its namespace.
            inside = f"{BUSYBOX} ip link set lo up && exec " + " ".join(daemon)
            daemon = ["unshare", "--net", "sh", "-c", inside]
        else:
            daemon += ["--bridge=none", "--iptables=false"]
        with open(self.folder / "log", "wb") as log:
            self.daemon = subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def why_not_up(self):
        """None once the daemon answers, or the last line that it said before it ended."""
        def answers():
            return self.daemon.poll() is not None or subprocess.run(
                [*self.words, "info"], capture_output=True, check=False, timeout=harness.PATIENCE_S).returncode == 0
        harness.wait_until("Docker's daemon answers", answers)
        if self.daemon.poll() is None:
            return None
        return (self.folder / "log").read_text(errors="replace").strip().rpartition("\n")[2] or "the daemon has ended"

    def works(self, image):
        return self.why_not_up() or super().works(image)

    def import_image(self, name, *changes):
        trouble = self.why_not_up()
        return name if trouble else super().import_image(name, *changes)

    def agent_arguments(self):
        return ["--container-runtime", "docker", f"--container-client-option=--host=unix://{self.socket}"]

    def end_all(self):
        if self.daemon.poll() is None:
            left = self.call("ps", "--all", "--quiet", expected=None).split()
            if left:
                self.call("rm", "--force", *left, expected=None)
            self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(timeout=harness.PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
