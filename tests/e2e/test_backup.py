"""Backups: the drill under load with kill -9, what is refused, and what an error leaves behind."""

import hashlib
import json
import subprocess
import sys
import threading

import harness
from harness import PATIENCE_S, program, wait_until
from test_node_identity import IdentitySite


def tell(world, *words, **options):
    return subprocess.run([program("gpu-scheduler"), *map(str, words)], capture_output=True, timeout=PATIENCE_S,
                          check=False, env=world.environment(), text=options.pop("text", True), **options)


def back_up(world, destination, *words, **options):
    return tell(world, "backup", destination, "--data-dir", world.scheduler.data_dir, *words, **options)


def outside(world):
    """Everything in the world's folder but the data folder's content."""
    return sorted(path.name for path in world.folder.iterdir())


class Load:
    """Submissions, one behind the other, until `end`: the ids that were answered."""

    def __init__(self, api):
        self.api = api
        self.told = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends.is_set():
            self.told.append(self.api.submit("exit 0", gpu_count=1, priority=1))

    def end(self):
        self.ends.set()
        self.thread.join()


def modes(folder):
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in folder.rglob("*")}


def test_the_drill_under_load_kill_9_and_restore_elsewhere(new_world):
    site = IdentitySite(new_world)
    site.scheduler.start()
    world, scheduler = site.world, site.scheduler
    joined = site.joined("n1")
    joined.start()
    api = world.api()
    key = world.folder / "ci.key"
    world.cli("key", "create", "ci", "--out", str(key), expected=0)
    gate = world.folder / "gate"
    running = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 5", gpu_count=1)
    api.wait_for(running, "running")
    kept = api.submit("exit 3")
    assert api.wait_for(kept)["exit_code"] == 3
    wait_until("the history has it", lambda: kept in world.cli("history", expected=0).stdout)

    load = Load(api)
    try:
        wait_until("it is under load", lambda: len(load.told) > 20)
        before = list(load.told)
        folder, archive = world.folder / "b", world.folder / "b.tar"
        done = back_up(world, folder, "--json")
        assert done.returncode == 0, done.stderr
        made = json.loads(done.stdout)
        assert made["history"] is True and made["position"] > 0 and made["backup"] == str(folder)
        assert back_up(world, archive).returncode == 0
        stream = back_up(world, "-", text=False)
        assert stream.returncode == 0 and b"whole" in stream.stderr
    finally:
        load.end()
    (world.folder / "c.tar").write_bytes(stream.stdout)
    assert folder.stat().st_mode & 0o777 == 0o700 and archive.stat().st_mode & 0o777 == 0o600
    assert set(modes(folder).values()) == {0o600, 0o700}
    names = set(modes(folder))
    assert {"token", "ca/ca.key", "ca/orders.key", "history/history.db", "MANIFEST"} <= names
    assert "ports.json" not in names
    assert not list(scheduler.data_dir.glob("history/*.copy"))
    listed = [line.split() for line in (folder / "MANIFEST").read_text().splitlines() if line.startswith("file ")]
    assert {path: digest for _, digest, _, path in listed} == \
        {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names
         if (folder / name).is_file() and name != "MANIFEST"}

    scheduler.kill()
    token = scheduler.token()
    scheduler.data_dir.rename(world.folder / "lost")
    for number, source in enumerate((world.folder / "c.tar", archive, folder)):
        elsewhere = world.folder / f"elsewhere-{number}"
        restored = tell(world, "restore", source, elsewhere)
        assert restored.returncode == 0, restored.stderr
        assert set(modes(elsewhere).values()) == {0o600, 0o700}
    # The folder is the oldest of the three.
    scheduler.data_dir = elsewhere
    site.ca_file = site.authority.file = elsewhere / "ca" / "ca.pem"
    scheduler.start()
    assert scheduler.token() == token
    wait_until("the node is back by its certificate", lambda: joined.alive() and api.node("n1")["state"] == "ready")
    jobs = {job["id"] for job in api.jobs()}
    assert {kept, running, *before} <= jobs
    assert kept in world.cli("history", expected=0).stdout
    # The job ran through; orders are signed with the key that the node knows; callers' keys hold.
    gate.touch()
    assert api.wait_for(running)["exit_code"] == 5
    again = api.submit("exit 7", gpu_count=1)
    assert api.wait_for(again)["exit_code"] == 7
    api.token = key.read_text().strip()
    assert api.call("GET", "/v1/jobs")[0] == 200
    api.token = "another"
    assert api.call("GET", "/v1/jobs")[0] == 401


def test_a_scheduler_that_does_not_run_is_backed_up_with_its_history(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    kept = api.submit("exit 3")
    api.wait_for(kept)
    wait_until("the history has it", lambda: kept in world.cli("history", expected=0).stdout)
    world.scheduler.kill()
    done = back_up(world, world.folder / "b")
    assert done.returncode == 0 and "with the history" in done.stdout, done.stderr
    assert tell(world, "restore", world.folder / "b", world.folder / "r").returncode == 0
    world.scheduler.data_dir = world.folder / "r"
    world.scheduler.start()
    assert kept in world.cli("history", expected=0).stdout
    assert world.api().job(kept)["exit_code"] == 3


def test_what_is_refused_says_why_and_leaves_nothing(new_world):
    world = new_world()
    world.scheduler.start()
    backup = world.folder / "b.tar"
    assert back_up(world, backup).returncode == 0
    there = outside(world)

    def refused(done, why, status=1):
        assert done.returncode == status, (done.stdout, done.stderr)
        assert why in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
        assert outside(world) == there

    refused(back_up(world, backup), "is there already")
    refused(back_up(world, world.scheduler.data_dir / "b"), "lies in")
    refused(tell(world, "backup", world.folder / "x", "--data-dir", world.folder / "etc"), "no data folder")
    refused(tell(world, "restore", backup, world.scheduler.data_dir), "process")
    refused(tell(world, "restore", backup, world.folder), "is not empty")
    refused(tell(world, "restore", backup, backup), "no folder")
    refused(tell(world, "restore", world.folder / "missing", world.folder / "r"), "there is no backup")
    # A full disk, by a limit for each file.
    for name in ("x", "x.tar"):
        limited = ["bash", "-c", "trap '' XFSZ; ulimit -f 2000; exec \"$@\"", "limit", program("gpu-scheduler"), "backup",
                   str(world.folder / name), "--data-dir", str(world.scheduler.data_dir)]
        refused(subprocess.run(limited, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                               env=world.environment()), "cannot write")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([program("gpu-scheduler"), "backup", "-", "--data-dir", str(world.scheduler.data_dir)],
                              stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S,
                              env=world.environment())
    assert done.returncode == 1 and "No space left on device" in done.stderr
    bytes_of = bytearray(backup.read_bytes())
    newer = bytes_of.replace(b"gpu-scheduler-backup 1", b"gpu-scheduler-backup 2")
    altered = bytearray(bytes_of)
    altered[len(altered) // 2] ^= 1
    for content, why in ((bytes_of[: len(bytes_of) // 2], "cut off"), (altered, "is altered"), (newer, "newer version"),
                         (b"no backup", "is no backup")):
        (world.folder / "b.tar").write_bytes(content)
        refused(tell(world, "restore", backup, world.folder / "r"), why)


def test_without_a_history(new_world):
    world = new_world(HISTORY_ENABLED="false")
    world.scheduler.start()
    done = back_up(world, world.folder / "b")
    assert done.returncode == 1 and "keeps no history" in done.stderr and "--without-history" in done.stderr
    assert back_up(world, world.folder / "b", "--without-history").returncode == 0
    assert not (world.folder / "b" / "history").exists()


def test_a_backup_as_root_gives_the_folder_s_owner(new_world):
    if not harness.IS_ROOT:
        assert sys.platform == "linux"  # The owner is this user anyway.
        return
    world = new_world()
    world.scheduler.start()
    assert back_up(world, world.folder / "b").returncode == 0
    target = world.folder / "r"
    target.mkdir()
    harness.os.chown(target, 65534, 65534)
    assert tell(world, "restore", world.folder / "b", target).returncode == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in [target, *target.rglob("*")]}
    assert owners == {(65534, 65534)}
