"""The disk under the scheduler and the agent: torn, damaged, of another version, full."""

import json
import os
import re
import shutil
import struct
import subprocess

import pytest
from harness import IS_ROOT, ROOT, is_alive, noise, wait_until


@pytest.fixture(name="world")
def world_fixture(new_world):
    """A scheduler with twenty acknowledged jobs, one after the other, that was killed."""
    world = new_world()
    world.scheduler.start()
    api = world.api()
    world.acknowledged = [api.post("/jobs", job_body(i), 201, key=f"key-{i}")["job_id"] for i in range(20)]
    world.scheduler.kill()
    return world


def job_body(number):
    return {"name": f"job {number}", "command": ["true"], "labels": {"number": str(number)}}


def last_segment(scheduler):
    """(path, offset behind the last whole record)."""
    done = scheduler.journal("stat", "--json", str(scheduler.data_dir))
    assert done.returncode == 0, done.stderr
    segment = json.loads(done.stdout)["segment_list"][-1]
    return scheduler.data_dir / "journal" / segment["file"], segment["used_bytes"]


def last_record(scheduler):
    """Bytes that the last record takes in its segment, padding included."""
    done = scheduler.journal("dump", "--json", str(scheduler.data_dir))
    assert done.returncode == 0, done.stderr
    return (56 + json.loads(done.stdout.splitlines()[-1])["length"] + 7) // 8 * 8


def overwrite(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def copy_of(world, name):
    """Another scheduler on a copy of the first one's folder."""
    folder = world.folder / name
    shutil.copytree(world.scheduler.data_dir, folder)
    return world.add_scheduler(name=f"{name}-scheduler", data_dir=folder)


def listed(scheduler):
    return sorted(job["id"] for job in scheduler.api().jobs())


@pytest.mark.parametrize("tail", ["half a header", "half a record", "noise", "zeros and noise"])
def test_an_unfinished_write_is_cut_with_a_line_and_nothing_acknowledged_is_lost(world, tail):
    copy = copy_of(world, "torn")
    path, end = last_segment(copy)
    whole = path.read_bytes()[:end]
    torn = {"half a header": whole[-last_record(copy):][:24], "half a record": b"GPJR" + noise(500),
            "noise": noise(3000), "zeros and noise": bytes(512) + noise(512)}[tail]
    overwrite(path, end, torn)
    assert copy.journal("verify", str(copy.data_dir)).returncode == 0
    copy.start()
    assert listed(copy) == sorted(world.acknowledged)
    wait_until("the log says so", lambda: "removed an unfinished write" in copy.log_text())  # Written by a thread of its own.
    assert path.name in copy.log_text() and str(end) in copy.log_text()
    # It goes on from there.
    copy.api().submit(["true"])
    assert copy.restart() and len(listed(copy)) == 21


@pytest.mark.parametrize("how", ["garbled", "cut"])
def test_a_last_write_that_did_not_reach_the_disk_takes_only_itself_away(world, how):
    copy = copy_of(world, "torn")
    path, end = last_segment(copy)
    size = last_record(copy)
    if how == "garbled":
        overwrite(path, end - size // 2, noise(8))
    else:
        overwrite(path, end - size // 2, bytes(size // 2))
    copy.start()
    assert listed(copy) == sorted(world.acknowledged[:19])
    wait_until("the log says so", lambda: "removed an unfinished write" in copy.log_text())
    log = copy.log_text()
    assert path.name in log and str(end - size) in log
    # Whoever was never told repeats, and gets a job; who repeats an older one gets that.
    api = copy.api()
    again = api.post("/jobs", job_body(19), 201, key="key-19")["job_id"]
    assert api.post("/jobs", job_body(7), 201, key="key-7")["job_id"] == world.acknowledged[7]
    assert len(listed(copy)) == 20 and again in listed(copy)


def refused_start(scheduler):
    scheduler.launch()
    assert scheduler.ended() == 1
    return scheduler.log_text()


@pytest.mark.parametrize("sealed", [False, True], ids=["after a crash", "after a clean end"])
def test_damage_in_the_middle_is_refused_naming_the_place_and_changes_nothing(world, sealed):
    if sealed:
        world.scheduler.start()
        assert world.scheduler.stop() == 0
        shutil.rmtree(world.scheduler.data_dir / "snapshots")  # Else what is damaged might not be needed.
    copy = copy_of(world, "damaged")
    path, end = last_segment(copy)
    place = 4096 + (end - 4096) // 2
    overwrite(path, place, bytes([path.read_bytes()[place] ^ 0x10]))
    before = {file: file.read_bytes() for file in (copy.data_dir / "journal").glob("*.seg")}
    log = refused_start(copy)
    assert path.name in log
    offset = int(re.search(r"offset (\d+)", log)[1])
    assert 4096 <= offset <= place < offset + 2000
    assert {file: file.read_bytes() for file in (copy.data_dir / "journal").glob("*.seg")} == before
    done = copy.journal("verify", str(copy.data_dir))
    assert done.returncode == 1
    assert path.name in done.stderr and str(offset) in done.stderr
    # What stands before the damage can still be read.
    assert copy.journal("dump", str(copy.data_dir)).stdout.count("\n") > 3


def test_a_damaged_end_of_a_sealed_journal_is_refused(world):
    world.scheduler.start()
    assert world.scheduler.stop() == 0
    copy = copy_of(world, "sealed")
    path, end = last_segment(copy)
    size = last_record(copy)
    whole = path.read_bytes()
    tail = whole.rstrip(b"\0")
    assert len(tail) > end - 8, "the seal stands behind the last record"
    overwrite(path, end - size // 2, noise(8))
    log = refused_start(copy)
    assert path.name in log and "offset" in log


def test_a_folder_of_a_newer_version_is_refused(world):
    copy = copy_of(world, "newer")
    version = copy.data_dir / "journal" / "VERSION"
    version.write_text(version.read_text().replace("gpusched-journal 1", "gpusched-journal 2"))
    log = refused_start(copy)
    assert f"{version} says format 2, but this program supports only up to 1: start the newer version" in log


def test_a_damaged_snapshot_is_passed_over(new_world):
    world = new_world(SCHEDULER_SNAPSHOT_MB=1)
    world.scheduler.start()
    api = world.api()
    told = [api.submit(["true"], environment={"PADDING": "x" * 100_000}) for _ in range(30)]
    assert world.scheduler.stop() == 0
    snapshots = sorted((world.scheduler.data_dir / "snapshots").glob("*.snap"))
    assert snapshots
    overwrite(snapshots[-1], 4096 + 100, b"damage")
    world.scheduler.start()
    assert listed(world.scheduler) == sorted(told)


def crc32c(data):
    """The Castagnoli CRC, bit by bit: snapshots here are small."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def rewrite_snapshot(path, content=None, digest=None):
    """Gives a snapshot another content or digest, whole by every checksum (docs/reference/journal-format.md)."""
    data = path.read_bytes()
    header = bytearray(data[:4096])
    old_bytes, = struct.unpack_from("<Q", header, 40)
    content = data[4096:4096 + old_bytes] if content is None else content
    if digest is not None:
        struct.pack_into("<Q", header, 32, digest)
    struct.pack_into("<Q", header, 40, len(content))
    crcs = b"".join(struct.pack("<I", crc32c(content[at:at + 262144])) for at in range(0, len(content), 262144))
    struct.pack_into("<I", header, 48, crc32c(crcs))
    struct.pack_into("<I", header, 60, crc32c(header[:60]))
    path.write_bytes(bytes(header) + content + crcs)


@pytest.mark.parametrize("wrong", ["content", "digest", "the only one"])
def test_a_snapshot_that_is_whole_and_not_the_state_is_passed_over_and_told(world, wrong):
    scheduler = world.scheduler
    scheduler.start()
    assert scheduler.stop() == 0
    told = list(world.acknowledged)
    if wrong != "the only one":
        scheduler.start()
        told.append(scheduler.api().submit(["true"]))
        assert scheduler.stop() == 0
    snapshots = sorted((scheduler.data_dir / "snapshots").glob("*.snap"))
    assert len(snapshots) == (1 if wrong == "the only one" else 2)
    if wrong == "digest":
        rewrite_snapshot(snapshots[-1], digest=7)
    else:
        rewrite_snapshot(snapshots[-1], content=b"this is no state")
    done = scheduler.journal("verify", str(scheduler.data_dir))
    assert done.returncode == 1 and snapshots[-1].name in done.stderr, done.stderr
    scheduler.start()
    assert listed(scheduler) == sorted(told)
    wait_until("the log says so", lambda: "snapshot_refused" in scheduler.log_since_start())
    assert snapshots[-1].name in scheduler.log_since_start()
    # The next one replaces it, and all is well again.
    scheduler.api().submit(["true"])
    assert scheduler.stop() == 0
    assert not snapshots[-1].exists()
    done = scheduler.journal("verify", str(scheduler.data_dir))
    assert done.returncode == 0, done.stderr
    scheduler.start()
    assert len(listed(scheduler)) == len(told) + 1
    assert "snapshot_refused" not in scheduler.log_since_start()


def test_a_second_scheduler_is_refused_though_the_lock_file_was_removed(world):
    world.scheduler.start()
    (world.scheduler.data_dir / "journal" / "LOCK").unlink()
    second = world.add_scheduler(name="second", data_dir=world.scheduler.data_dir)
    log = refused_start(second)
    assert "is held by another process" in log
    assert world.api().submit(["true"])


def test_a_journal_beside_another_journals_snapshots_is_refused(new_world):
    worlds = [new_world(), new_world()]
    for world in worlds:
        world.scheduler.start()
        world.api().submit(["true"])
        assert world.scheduler.stop() == 0
    ours, theirs = (world.scheduler.data_dir for world in worlds)
    shutil.rmtree(ours / "snapshots")
    shutil.copytree(theirs / "snapshots", ours / "snapshots")
    log = refused_start(worlds[0].scheduler)
    assert "belongs to another journal" in log and "from one backup" in log
    shutil.rmtree(ours / "snapshots")
    worlds[0].scheduler.start()
    assert len(listed(worlds[0].scheduler)) == 1


# A full disk.

def small_disk(world, name, megabytes):
    """A folder on a disk of its own."""
    folder = world.folder / name
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "e2e", str(folder)],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    folder.chmod(0o755)
    return folder


@pytest.fixture(name="disk")
def disk_fixture(new_world):
    """world(megabytes): a world whose folder NAME is on a small disk. Unmounted at the end."""
    mounted = []

    def make(name, megabytes, **settings):
        world = new_world(**settings)
        mounted.append((world, small_disk(world, name, megabytes)))
        return world

    yield make
    for world, folder in mounted:
        world.end()
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder):
    """Takes all that is free; the file's path."""
    path = folder / "filler"
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(65536))
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0")
        except OSError:
            pass
    assert os.statvfs(folder).f_bavail == 0
    return path


def submit_until_full(api):
    """Ids of what was accepted before the disk was full, and the refusal."""
    told = []
    for number in range(2000):
        status, body, headers = api.call("POST", "/api/v1/jobs", {
            "name": f"filling {number}", "gpu_count": 64, "command": ["true"],
            "environment": {"PADDING": "x" * 100_000, "MORE": "x" * 100_000}})
        if status != 201:
            return told, status, body, headers
        told.append(body["job_id"])
    raise AssertionError("a full disk takes everything")


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_a_full_disk_refuses_new_work_keeps_every_promise_and_recovers_by_itself(disk):
    world = disk("scheduler", 96, JOURNAL_SEGMENT_MB=16)
    data = world.scheduler.data_dir
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    api = world.api()
    gate = world.folder / "gate"
    goes_on = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 9", gpu_count=1)
    to_cancel = api.submit(["sleep", "600"], gpu_count=1)
    waiting = api.submit(["true"], gpu_count=32)
    for job_id in (goes_on, to_cancel):
        api.wait_for(job_id, "running")

    early = api.submit(["true"], gpu_count=64)
    filler = fill(data)
    told, status, body, headers = submit_until_full(api)
    told.append(early)
    assert (status, body["code"]) == (503, "storage_full"), body
    assert "full" in body["error"]
    assert int(headers["Retry-After"]) >= 1
    done = world.cli("submit", "--", "true")
    assert done.returncode == 4 and "storage_full" in done.stderr
    status, health, _ = api.call("GET", "/health")
    assert status == 503 and health["code"] == "storage_full"
    told_by_status = world.cli("status", expected=0).stdout
    assert "takes no new work: " in told_by_status and "disk is full" in told_by_status

    # Reads, cancels and ends go on.
    assert api.job(goes_on)["state"] == "running"
    api.cancel(waiting)
    assert api.job(waiting)["state"] == "cancelled"
    api.cancel(to_cancel)
    assert api.wait_for(to_cancel)["state"] == "cancelled"

    # So they do after a kill -9 in this state, and nothing acknowledged is lost.
    world.scheduler.restart()
    known = {job["id"]: job["state"] for job in api.jobs()}
    assert set(known) == {goes_on, to_cancel, waiting, *told}
    assert (known[waiting], known[to_cancel]) == ("cancelled", "cancelled")
    assert api.call("POST", "/api/v1/jobs", {"command": ["true"]})[0] == 503
    gate.touch()
    job = api.wait_for(goes_on)
    assert (job["exit_code"], job["attempts"]) == (9, 1)
    wait_until("its GPU is released", lambda: api.get("/cluster/status")["available_gpus"] == 4)
    api.cancel(told[0])

    # A clean end and a start are possible, too.
    assert world.scheduler.stop() == 0
    world.scheduler.start()
    assert api.job(goes_on)["exit_code"] == 9
    assert api.call("POST", "/api/v1/jobs", {"command": ["true"]})[0] == 503

    filler.unlink()
    wait_until("service resumes by itself", lambda: api.call("GET", "/health")[0] == 200)
    done = world.cli("submit", "--wait", "--", "sh", "-c", "exit 4")
    assert done.returncode == 4, done.stderr
    world.scheduler.restart()
    assert set(told) <= {job["id"] for job in api.jobs()}
    assert api.job(told[0])["state"] == "cancelled"
    assert world.scheduler.journal("verify", str(data)).returncode == 0


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_a_full_disk_keeps_no_door_open(disk):
    world = disk("scheduler", 96, JOURNAL_SEGMENT_MB=16)
    world.scheduler.start()
    world.add_agent("n1", arguments=["--default-user", "nobody"]).start()
    api = world.api()
    door = "/api/gpuscheduler/v1"
    lab = api.post("/tenants", {"name": "lab"}, 201)["id"]
    open_tenant = world.scheduler.api(anonymous=True).post("/tenants", {"name": "open"}, 201)["id"]
    people = {}
    for name, role in (("ana", "user"), ("bo", "tenant_admin"), ("cy", "user")):
        status, made, _ = api.call("POST", f"{door}/users", {"email": f"{name}@example.org", "role": role,
                                                             "password": "correct horse battery"})
        assert status == 201, made
        key = api.call("POST", f"{door}/api-keys", {"user_id": made["id"]})[1]["key"]
        people[name] = made["id"], world.scheduler.api(token=key)
    keys = {name: world.cli_json("key", "create", name, "--cluster", "--role", "operator") for name in ("gone", "less")}
    users = {name: world.scheduler.api(token=key["secret"]) for name, key in keys.items()}
    anyone = world.scheduler.api(anonymous=True)
    filler = fill(world.scheduler.data_dir)
    assert submit_until_full(api)[2]["code"] == "storage_full"
    assert users["less"].call("POST", "/v1/cluster/pause", {"reason": "a full disk"})[0] == 200
    assert people["ana"][1].call("GET", f"{door}/gpus")[0] == 200

    # Additions are refused.
    refused = [api.call("POST", f"{door}/users", {"email": "dan@example.org", "password": "correct horse battery"}),
               api.call("PUT", f"{door}/users/{people['cy'][0]}", {"email": "eve@example.org"}),
               api.call("POST", "/v1/keys", {"name": "new", "roles": [{"role": "viewer"}]}),
               api.call("PATCH", f"/v1/tenants/{lab}", {"organization": "another"}),
               anyone.call("POST", "/api/v1/jobs", {"command": ["true"], "tenant_id": open_tenant})]
    assert [status for status, _, _ in refused] == [503] * 5, refused
    # Rights are taken away at once and for good.
    done = [api.call("PUT", f"{door}/users/{people['ana'][0]}", {"is_active": False}),
            api.call("PUT", f"{door}/users/{people['bo'][0]}", {"role": "user"}),
            api.call("PUT", f"{door}/users/{people['cy'][0]}", {"organization_id": lab}),
            api.call("DELETE", f"/v1/keys/{keys['gone']['key_id']}"),
            api.call("POST", f"/v1/keys/{keys['less']['key_id']}/bind", {"role": "operator", "taken": True}),
            api.call("PATCH", f"/v1/tenants/{open_tenant}", {"anonymous": False}),
            api.call("DELETE", f"/v1/tenants/{lab}")]

    def closed():
        assert [status for status, _, _ in done[:6]] == [200] * 6, done
        assert people["ana"][1].call("GET", f"{door}/gpus")[0] == 401
        assert people["bo"][1].call("POST", "/v1/keys", {"name": "mine", "roles": [{"role": "user"}]})[0] == 403
        assert people["cy"][1].call("GET", f"{door}/gpus")[0] == 401
        assert users["gone"].call("GET", "/v1/jobs")[0] == 401
        assert users["less"].call("POST", "/v1/cluster/resume", {})[0] == 403
        status, answer, _ = anyone.call("POST", "/api/v1/jobs", {"command": ["true"], "tenant_id": open_tenant})
        assert status in (401, 403, 404), answer

    closed()
    world.scheduler.restart()
    closed()
    filler.unlink()
    wait_until("service resumes by itself", lambda: api.call("GET", "/health")[0] == 200)
    closed()


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_a_small_disk_that_the_journal_filled_takes_new_work_again_once_everything_is_cancelled(disk):
    world = disk("scheduler", 128, JOURNAL_SEGMENT_MB=16)
    data = world.scheduler.data_dir
    world.scheduler.start()
    pid = world.scheduler.pid()
    api = world.api()

    def taken():
        status, body, _ = api.call("POST", "/api/v1/jobs", {"command": ["true"], "gpu_count": 64})
        assert status in (201, 503), body
        return body.get("job_id")

    cancelled, waiting = [], []
    for _ in range(3):
        told, status, body, _ = submit_until_full(api)
        assert (status, body["code"]) == (503, "storage_full"), body
        for job_id in told + waiting:
            api.cancel(job_id)
        cancelled += told + waiting
        waiting = [wait_until("new work is taken again", taken)]
    # By itself, and what waits is there after a kill, too; of what was cancelled the oldest may be forgotten.
    assert world.scheduler.pid() == pid
    world.scheduler.restart()
    known = {job["id"]: job["state"] for job in api.jobs()}
    assert known.pop(waiting[0]) == "pending"
    assert set(known) <= set(cancelled) and set(known.values()) <= {"cancelled"}
    assert world.scheduler.journal("verify", str(data)).returncode == 0


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_an_agents_full_disk_delays_outcomes_and_loses_none(disk):
    world = disk("n1", 16)
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    api = world.api()
    gate = world.folder / "gate"
    script = f"echo $$; while [ ! -e {gate} ]; do sleep 0.05; done; exit "
    jobs = {code: api.submit(script + str(code), gpu_count=1) for code in (0, 17)}
    pids = {}
    for code, job_id in jobs.items():
        api.wait_for(job_id, "running")
        pids[code] = int(wait_until("its pid is printed", lambda i=job_id: api.output(i).strip()))
    filler = fill(agent.data_dir)
    gate.touch()
    for pid in pids.values():
        wait_until("the process ends", lambda p=pid: not is_alive(p))
    agent.kill()
    agent.start()  # Without any room too: what its attempts left is told.
    filler.unlink()
    for code, job_id in jobs.items():
        job = api.wait_for(job_id)
        assert (job["exit_code"], job["attempts"]) == (code, 1)
    assert api.wait_for(api.submit("exit 3"))["exit_code"] == 3


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_an_agent_that_is_started_on_a_full_disk_again_and_again_harms_no_job(disk):
    unit = (ROOT / "deploy/systemd/gpu-agent.service.in").read_text().splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0", "KillMode=process"} <= set(unit)  # What is done below.
    world = disk("n1", 16)
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    api = world.api()
    gate = world.folder / "gate"
    job_id = api.submit(f"echo $$; while [ ! -e {gate} ]; do sleep 0.05; done; exit 23", gpu_count=1)
    api.wait_for(job_id, "running")
    pid = int(wait_until("its pid is printed", lambda: api.output(job_id).strip()))
    filler = fill(agent.data_dir)
    agent.kill()
    for _ in range(3):
        agent.start()
        assert is_alive(pid)
        agent.kill()
    filler.unlink()
    agent.start()
    assert api.job(job_id)["state"] == "running"
    gate.touch()
    job = api.wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (23, 1)


@pytest.mark.skipif(not IS_ROOT, reason="needs root: mounts a small disk")
def test_a_scheduler_that_is_started_on_a_full_disk_says_so_and_starts_once_there_is_room(disk):
    unit = (ROOT / "deploy/systemd/gpu-scheduler.service.in").read_text().splitlines()
    assert {"Restart=always", "StartLimitIntervalSec=0"} <= set(unit)
    world = disk("scheduler", 96, JOURNAL_SEGMENT_MB=16)
    filler = fill(world.scheduler.data_dir)
    for _ in range(2):
        world.scheduler.launch()
        wait_until("it has ended", lambda: not world.scheduler.alive())
        assert world.scheduler.process.returncode not in (0, None)
        assert "No space left on device" in world.scheduler.log_since_start()
    filler.unlink()
    world.scheduler.start()
    assert world.api().submit(["true"])
