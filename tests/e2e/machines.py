"""Machines for a walk-through that takes several: folders and addresses of their own on this one.

A Machine has a root folder, which stands before each path that the page names, and programs that stand for what the
operating system brings: `ssh` and `scp` enter another machine's folder, `useradd` only looks at its arguments, and
`systemctl` runs installed units as systemd does, as far as they ask for it: user, umask, environment, notification,
watchdog, restarts, and a stop that ends the main process alone. `gpu-agent` is the installed one, which is told what
the machine would tell: its name, its GPUs, and where its folders are. Nothing of the product is replaced.

This file is also these programs: machines.py PROGRAM WORD...
"""

import contextlib
import ctypes
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

# Of the units that systemd gives a user for as long as they run (DynamicUser=): from the range that it has for them.
DYNAMIC_ID = 61_321
PATIENCE_S = 60
RESTART_S = 0.2
PR_SET_NO_NEW_PRIVS = 38
UNIT_FOLDERS = ("etc/systemd/system", "usr/local/lib/systemd/system")


class Machine:
    """One of the machines of `site`, a folder with a file for what they all know."""

    def __init__(self, site, name):
        self.site, self.name = pathlib.Path(site), name
        self.facts = json.loads((self.site / "machines.json").read_text())
        self.root = self.site / name
        self.home = self.root / "root"
        self.programs = self.site / "programs" / name

    def lay_out(self):
        for folder in ("etc/systemd/system/multi-user.target.wants", "etc/default", "run/systemd", "usr/local/bin",
                       "var/lib", "var/log", "root"):
            (self.root / folder).mkdir(parents=True)
        self.home.chmod(0o700)
        self.programs.mkdir(parents=True)
        for name in ("ssh", "scp", "systemctl", "useradd", "gpu-agent"):
            path = self.programs / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} -B -S {pathlib.Path(__file__).resolve()} {name} "$@"\n')
            path.chmod(0o755)
        for name, text in self.facts["programs"].get(self.name, {}).items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)

    def environment(self):
        """What root has there after a login."""
        path = f"{self.programs}:{self.root}/usr/local/bin:{self.facts['path']}"
        return {**self.facts["environment"], "PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8", "USER": "root",
                "DESTDIR": str(self.root), "MACHINE_SITE": str(self.site), "MACHINE": self.name,
                **self.facts["more"].get(self.name, {})}

    def there(self, text, other):
        """`text` with this machine's paths, as the other machine has them."""
        return text.replace(f"{self.root}/", f"{other.root}/")

    def path_of(self, path):
        return pathlib.Path(f"{self.root}{path}")


def this_machine():
    return Machine(os.environ["MACHINE_SITE"], os.environ["MACHINE"])


def machine_named(name):
    here = this_machine()
    name = name.rpartition("@")[2]
    if not (here.site / name).is_dir() or name == "programs":
        sys.exit(f"ssh: Could not resolve hostname {name}")
    return here, Machine(here.site, name)


def ssh(name, *words):
    here, other = machine_named(name)
    os.chdir(other.home)
    command = here.there(" ".join(words), other)
    os.execvpe("bash", ["bash", "-c", command], other.environment())


def scp(*words):
    name, _, path = words[-1].partition(":")
    here, other = machine_named(name)
    target = here.there(path, other) if path.startswith("/") else other.home / path
    os.execvp("cp", ["cp", *words[:-1], str(target)])


def useradd(*words):
    if words[:-1] != ("--create-home",) or words[-1].startswith("-"):
        sys.exit(f"useradd: not as the page says: {words}")


def gpu_agent(*words):
    machine = this_machine()
    program = str(machine.root / "usr/local/bin/gpu-agent")
    more = []
    if words[:1] == ("join",):
        more = ["--node", machine.name, "--config", str(machine.root / "etc/gpu-scheduler/agent.yaml"), "--data-dir",
                str(machine.root / "var/lib/gpu-agent"), "--sim-gpus", machine.facts["gpus"]]
        more += machine.facts["join"]
    os.execv(program, [program, *words, *more])


# --- systemd. ---

class Unit:
    """An installed unit of a machine: its settings, and what is known of it while it runs."""

    def __init__(self, machine, name):
        self.machine, self.name = machine, name.removesuffix(".service")
        found = [path for folder in UNIT_FOLDERS
                 if (path := machine.root / folder / f"{self.name}.service").is_file()]
        if not found:
            sys.exit(f"Failed to start {name}: Unit {name}.service not found.")
        self.file = found[0]
        self.settings = {}
        for line in self.file.read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.settings[key] = value
        self.facts_file = machine.root / "run/systemd" / f"{self.name}.json"
        self.log = machine.root / "var/log" / f"{self.name}.log"
        self.wanted = machine.root / "etc/systemd/system/multi-user.target.wants" / f"{self.name}.service"

    def facts(self):
        try:
            return json.loads(self.facts_file.read_text())
        except FileNotFoundError:
            return {"state": "inactive", "starts": 0, "main_pid": 0, "manager": 0, "status": "", "user": 0}

    def note(self, **changes):
        fresh = self.facts_file.with_suffix(".new")
        fresh.write_text(json.dumps({**self.facts(), **changes}))
        fresh.rename(self.facts_file)

    def words(self):
        """ExecStart, in the machine's folder: each word that is an absolute path."""
        return [f"{self.machine.root}{word}" if word.startswith("/") else word
                for word in shlex.split(self.settings["ExecStart"])]

    def environment(self):
        """A service gets little, and what its EnvironmentFile has."""
        found = {**self.machine.facts["environment"], "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
                 "LANG": "C.UTF-8", "MACHINE": self.machine.name, "NOTIFY_SOCKET": str(self.socket_path()),
                 "WATCHDOG_USEC": str(int(self.settings["WatchdogSec"]) * 1_000_000)}
        if self.runtime_folder() is not None:
            found["RUNTIME_DIRECTORY"] = str(self.runtime_folder())
        with contextlib.suppress(FileNotFoundError):
            file = self.machine.path_of(self.settings["EnvironmentFile"].removeprefix("-"))
            for line in file.read_text().splitlines():
                key, _, value = line.partition("=")
                found[key] = value
        return found

    def socket_path(self):
        return self.machine.root / "run" / f"{self.name}.notify"

    def user_id(self):
        return DYNAMIC_ID if "User" in self.settings and os.geteuid() == 0 else None

    def make_folders(self):
        if "StateDirectory" in self.settings:
            folder = self.machine.path_of(f"/var/lib/{self.settings['StateDirectory']}")
            folder.mkdir(exist_ok=True)
            folder.chmod(int(self.settings["StateDirectoryMode"], 8))
            if self.user_id() is not None:
                os.chown(folder, self.user_id(), self.user_id())
        if (folder := self.runtime_folder()) is not None:
            folder.mkdir(exist_ok=True)
            folder.chmod(int(self.settings["RuntimeDirectoryMode"], 8))
            if self.user_id() is not None:
                os.chown(folder, self.user_id(), self.user_id())

    def runtime_folder(self):
        if "RuntimeDirectory" not in self.settings:
            return None
        return self.machine.path_of(f"/run/{self.settings['RuntimeDirectory']}")

    def become(self):
        """In the new process, before the program."""
        os.umask(int(self.settings.get("UMask", "0022"), 8))
        if self.settings.get("NoNewPrivileges") == "yes":
            ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if self.user_id() is not None:
            os.setgroups([])
            os.setgid(self.user_id())
            os.setuid(self.user_id())

    def may_start(self):
        path = self.settings.get("ConditionPathExists")
        return path is None or self.machine.path_of(path).exists()

    # What `systemctl` is asked for.

    def start(self):
        if self.facts()["state"] == "active" or not self.may_start():
            return 0  # An unmet condition is no failure.
        self.note(state="activating", starts=0, status="")
        subprocess.Popen([sys.executable, "-B", "-S", __file__, "manage", self.name], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=open(self.log, "ab"), start_new_session=True, cwd="/")
        deadline = time.monotonic() + PATIENCE_S
        while (state := self.facts())["state"] == "activating" and state["starts"] <= 1:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if self.facts()["state"] == "active":
            return 0
        print(f"Job for {self.name}.service failed because the control process exited with error code.\n"
              + "".join(self.log.read_text().splitlines(True)[-5:]), file=sys.stderr)
        self.stop()
        return 1

    def stop(self):
        manager = self.facts()["manager"]
        if manager:
            os.kill(manager, signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE_S
        while self.facts()["manager"]:
            if time.monotonic() > deadline:
                sys.exit(f"{self.name} does not end")
            time.sleep(0.02)
        return 0

    def restart(self):
        return self.stop() or self.start()

    def enable(self):
        self.wanted.unlink(missing_ok=True)
        self.wanted.symlink_to(self.file)
        return 0

    def disable(self):
        self.wanted.unlink(missing_ok=True)
        return 0

    def status(self):
        facts = self.facts()
        print(f"{self.name}.service - {self.settings['Description']}\n"
              f"     Loaded: loaded ({self.file}; {'enabled' if self.wanted.is_symlink() else 'disabled'})\n"
              f"     Active: {facts['state']}\n   Main PID: {facts['main_pid']}\n     Status: \"{facts['status']}\"")
        return 0 if facts["state"] == "active" else 3

    def manage(self):
        """The service's manager, until it is told to stop: Restart=always, KillMode=process."""
        assert self.settings["Restart"] == "always" and self.settings["KillMode"] == "process"
        self.make_folders()
        self.socket_path().unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.bind(str(self.socket_path()))
        self.socket_path().chmod(0o777)
        listener.settimeout(0.05)
        stopping = []
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
        self.note(manager=os.getpid())
        starts, status = 0, 0
        while not stopping:
            starts += 1
            self.note(starts=starts)
            with open(self.log, "ab") as sink:
                main = subprocess.Popen(self.words(), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd="/",
                                        env=self.environment(), preexec_fn=self.become, start_new_session=True)
            self.note(main_pid=main.pid, user=self.user_id() or os.geteuid())
            told = False
            while (status := main.poll()) is None:
                if stopping and not told:
                    main.terminate()
                    told = True
                with contextlib.suppress(TimeoutError):
                    self.hear(listener.recv(4096).decode())
            if not stopping:
                self.note(state="activating")
                time.sleep(RESTART_S)
        if self.runtime_folder() is not None:
            shutil.rmtree(self.runtime_folder(), ignore_errors=True)
        self.note(state="inactive" if status == 0 else "failed", manager=0, main_pid=0, status="")

    def hear(self, words):
        for word in words.splitlines():
            key, _, value = word.partition("=")
            if key == "READY":
                self.note(state="active")
            elif key == "STATUS":
                self.note(status=value)


def systemctl(*words):
    now = "--now" in words
    verb, *names = [word for word in words if not word.startswith("--")]
    if verb == "daemon-reload":
        return 0
    status = 0
    for name in names:
        unit = Unit(this_machine(), name)
        if verb not in ("start", "stop", "restart", "enable", "disable", "status"):
            sys.exit(f"systemctl: the page uses a verb that this machine has not: {verb}")
        status = getattr(unit, verb)() or status
        if now:
            status = (unit.start() if verb == "enable" else unit.stop()) or status
    return status


def manage(name):
    Unit(this_machine(), name).manage()


PROGRAMS = {"ssh": ssh, "scp": scp, "useradd": useradd, "systemctl": systemctl, "gpu-agent": gpu_agent,
            "manage": manage}

if __name__ == "__main__":
    sys.exit(PROGRAMS[sys.argv[1]](*sys.argv[2:]))
