"""Podman for the end-to-end tests: images, storage and registries of its own, all below one folder."""

import os
import pathlib
import shutil
import subprocess

import harness
import registry

BUSYBOX = "/bin/busybox"
INSTALL = "tools/install-deps --extra installs it"


def why_not():
    """Why containers cannot be tested here; None: they can."""
    if not harness.IS_ROOT:
        return "containers are tested as root"
    for name in ("podman", "runc"):
        if not shutil.which(name):
            return f"{name} is not installed ({INSTALL})"
    if not os.path.exists(BUSYBOX):
        return f"no static shell at {BUSYBOX} ({INSTALL})"
    return None


class Podman:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.options = [f"--root={self.folder}/root", f"--runroot={self.folder}/run", "--runtime=runc",
                        "--cgroup-manager=cgroupfs", "--events-backend=file"]
        self.registries_file = self.folder / "registries.conf"
        self.registries_file.write_text("unqualified-search-registries = []\n")
        self.environment = {"CONTAINERS_REGISTRIES_CONF": str(self.registries_file)}
        self.registries = []

    def call(self, *words, expected=0, text_in=None):
        done = subprocess.run(["podman", *self.options, *words], capture_output=True, check=False, input=text_in,
                              timeout=harness.PATIENCE_S, env={**os.environ, **self.environment})
        assert expected is None or done.returncode == expected, (words, done)
        return done.stdout.decode()

    def works(self, image):
        done = subprocess.run(["podman", *self.options, "run", "--rm", "--network=host", "--ulimit=nofile=1024:1024",
                               "--ulimit=nproc=1024:1024", image, "/bin/true"], capture_output=True, check=False,
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
        blocks = [f'[[registry]]\nlocation = "{one.host}"\ninsecure = true\n' for one in self.registries]
        self.registries_file.write_text("unqualified-search-registries = []\n" + "\n".join(blocks))
        return made

    def containers(self):
        return [line for line in self.call("ps", "--all", "--format", "{{.Names}}").splitlines() if line]

    def agent_arguments(self):
        return ["--container-runtime", "podman",
                *[f"--container-client-option={option}" for option in self.options]]

    def end(self):
        for one in self.registries:
            one.close()
        self.call("rm", "--all", "--force", "--time", "0", expected=None)
        # Mounts of the storage outlive podman itself.
        for mount in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if mount.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", mount.split()[1]], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
