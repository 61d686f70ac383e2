"""Losses of power, after kills, on the real scheduler.

A library that is preloaded into it records what it does to its data folder and ends it in the middle of calls, or lets
a sync fail. Then, for many moments of the record, what a loss of power could have left is drawn and written to a
folder, and the real scheduler starts on it: everything that a client was told by then must be there, and it must go on.
"""

import http.client
import os
import random
import shutil
import sys

from harness import ROOT, SEED, bin_dir, wait_until

sys.path.insert(0, str(ROOT / "tests" / "chaos"))
import disk_images  # noqa: E402

ROUNDS = int(os.environ.get("GPUSCHED_POWER_ROUNDS", "4"))
LIVES_OF_A_FOLDER = 4
IMAGES_OF_A_LIFE = 3
SETTINGS = {"JOURNAL_SEGMENT_MB": 16, "SCHEDULER_SNAPSHOT_MB": 4}
RECORDER = bin_dir().parent / "tests" / "libdisk_recorder.so"


class Lives:
    """One data folder, whose scheduler is ended again and again."""

    def __init__(self, world, rng, name):
        self.world, self.rng = world, rng
        self.scheduler = world.add_scheduler(SETTINGS, name=name)
        self.record = world.folder / f"{name}.record"
        self.told = {}  # Job's id to its name, and how long the record was when the client was told.
        self.sent = set()

    def preload(self):
        """What ends a life: some call on the disk, a failed sync, or the test in the end."""
        environment = {"LD_PRELOAD": str(RECORDER), "GPUSCHED_RECORD_FOLDER": str(self.scheduler.data_dir),
                       "GPUSCHED_RECORD_FILE": str(self.record)}
        draw = self.rng.random()
        if draw < 0.6:
            # A first start fills files with zeros, by some 800 calls; a later one needs some twenty, a commit two.
            first = not self.told
            calls = self.rng.randrange(780, 1_000) if first else self.rng.choice(
                [self.rng.randrange(1, 25), self.rng.randrange(20, 45), self.rng.randrange(20, 150)])
            environment["GPUSCHED_RECORD_KILL"] = f"{calls}{self.rng.choice(['', '+'])}"
        elif draw < 0.8 and self.told:
            environment["GPUSCHED_RECORD_FAIL"] = str(self.rng.randrange(1, 60))
        return environment

    def live(self):
        """Starts, serves clients as long as it can, and ends."""
        scheduler, plain = self.scheduler, self.scheduler.command

        def recorded():
            words = plain()
            scheduler.environment |= self.preload()
            return words

        scheduler.command = recorded
        scheduler.launch()
        scheduler.command = plain
        wait_until("it serves or ends", lambda: not scheduler.alive() or scheduler.served_ports())
        if not any(name in scheduler.environment for name in ("GPUSCHED_RECORD_KILL", "GPUSCHED_RECORD_FAIL")):
            self.start_a_second_one()
        for _ in range(self.rng.randrange(1, 40)):
            if not self.submit():
                break
        scheduler.kill()

    def start_a_second_one(self):
        """Somebody takes the lock for a left-over, removes it and starts another scheduler."""
        (self.scheduler.data_dir / "journal" / "LOCK").unlink(missing_ok=True)
        assert_refused(self.world, self.scheduler.data_dir, "is held by another process")
        assert self.scheduler.alive()

    def submit(self):
        """False: it was not taken."""
        name = f"job {len(self.sent)}"
        self.sent.add(name)
        size = self.rng.choice([10, 1_000, 1_000_000, 1_000_000])
        padding = {f"PADDING_{at}": "x" * min(size - at, 100_000) for at in range(0, size, 100_000)}
        try:
            status, body, _ = self.scheduler.api().call(
                "POST", "/api/v1/jobs", {"name": name, "command": ["true"], "environment": padding})
        except (OSError, http.client.HTTPException):
            return False
        if status == 503:  # A file could not be made, by the fault that was drawn.
            return False
        assert status == 201, body
        self.told[body["job_id"]] = (name, self.record.stat().st_size)
        return True


def assert_refused(world, data_dir, sentence):
    scheduler = world.add_scheduler(SETTINGS, name=f"refused-{len(world.daemons)}", data_dir=data_dir)
    scheduler.launch()
    assert scheduler.ended() == 1
    assert sentence in scheduler.log_since_start()
    world.daemons.remove(scheduler)


def make_foreign_snapshots(world):
    """The snapshots of a journal that no other one here is."""
    scheduler = world.add_scheduler(SETTINGS, name="foreign")
    scheduler.start()
    scheduler.api().submit(["true"], name="of somebody else")
    assert scheduler.stop() == 0
    world.daemons.remove(scheduler)
    return scheduler.data_dir / "snapshots"


def check_mixture(world, folder, foreign):
    """Somebody restores one half of the folder from another backup."""
    own, aside = folder / "snapshots", folder / "aside"
    if own.exists():
        own.rename(aside)
    shutil.copytree(foreign, own)
    assert_refused(world, folder, "belongs to another journal")
    shutil.rmtree(own)
    if aside.exists():
        aside.rename(own)


def check_image(lives, record, cut, rng, name, foreign):
    """Starts the real scheduler on what a loss of power left, and asks it what it knows. How many jobs that were."""
    world = lives.world
    folder = world.folder / name
    disk_images.draw_image(record, cut, rng, lives.scheduler.data_dir, folder)
    if rng.random() < 0.2:
        check_mixture(world, folder, foreign)
    size = record[cut - 1][2] if cut > 0 else 0
    expected = {job_id: job_name for job_id, (job_name, told_at) in lives.told.items() if told_at <= size}
    scheduler = world.add_scheduler(SETTINGS, name=f"{name}-scheduler", data_dir=folder)
    scheduler.start()
    found = {job["id"]: job["name"] for job in scheduler.api().jobs()}
    lost = {job_id: job_name for job_id, job_name in expected.items() if found.get(job_id) != job_name}
    assert not lost, f"told by then, and not there: {lost}"
    assert set(found.values()) <= lives.sent and len(set(found.values())) == len(found)
    # It goes on from there, and what it says now holds over another kill.
    new = scheduler.api().submit(["true"], name="behind the loss")
    scheduler.restart()
    assert scheduler.api().job(new)["name"] == "behind the loss"
    scheduler.kill()
    world.daemons.remove(scheduler)
    shutil.rmtree(folder)
    return len(expected)


def draw_cut(rng, record, begins):
    """After which record the power goes: mostly in this life, often in its first calls, by which it makes the former
    life's end durable."""
    return rng.choice([len(record), rng.randrange(begins, len(record) + 1), rng.randrange(0, len(record) + 1),
                       min(len(record), begins + rng.randrange(0, 40))])


def test_what_was_told_is_there_after_kills_and_a_loss_of_power(new_world):
    assert RECORDER.is_file(), f"{RECORDER} is missing: build it (tools/build release all-tests)"
    print(f"seed {SEED}: repeat with GPUSCHED_SEED={SEED} GPUSCHED_POWER_ROUNDS={ROUNDS}", flush=True)
    rng = random.Random(SEED)
    world = new_world()
    world.strict = False
    foreign = make_foreign_snapshots(world)
    images = checked = 0
    lives = None
    for number in range(ROUNDS):
        if number % LIVES_OF_A_FOLDER == 0:
            if lives:
                lives.record.unlink()
            lives, begins = Lives(world, rng, f"folder-{number // LIVES_OF_A_FOLDER}"), 0
        lives.live()
        record = disk_images.read_record(lives.record)
        print(f"life {number}: {len(record) - begins} calls, {len(lives.told)} of {len(lives.sent)} told", flush=True)
        for _ in range(IMAGES_OF_A_LIFE):
            cut = draw_cut(rng, record, begins)
            checked += check_image(lives, record, cut, random.Random(rng.random()), f"image-{images}", foreign)
            images += 1
        begins = len(record)
    print(f"{ROUNDS} lives, {images} losses of power, {checked} jobs looked for and found")
