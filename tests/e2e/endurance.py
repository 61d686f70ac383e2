"""Twenty thousand short jobs through one agent: nothing of them may be left, in the agent or on its machine.

Run by `tools/chaos endurance`. JOBS=N runs another number.
"""

import collections
import os
import pathlib

from harness import processes, read_bytes, wait_until

JOBS = int(os.environ.get("JOBS", "20000"))
BATCH = 500
# What the allocator and the logs may keep without leaking.
MEMORY_SLACK_KB = 24 * 1024
SPARES_MAX = 1_024


def counts(agent):
    pid = agent.pid()
    status = read_bytes(f"/proc/{pid}/status").decode()
    number = {name: int(line.split()[1]) for line in status.splitlines()
              for name in ("VmRSS", "Threads") if line.startswith(name + ":")}
    groups = sum(1 for root, folders, _ in os.walk("/sys/fs/cgroup") for folder in folders
                 if folder.startswith(f"gpusched-{agent.instance()}") or f"gpusched-{agent.instance()}" in root)
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": number["Threads"],
        "memory_kb": number["VmRSS"],
        "processes": sum(1 for other in processes()
                         if agent.instance().encode() in read_bytes(f"/proc/{other}/cmdline")),
        "cgroups": groups,
        "mounts": read_bytes("/proc/self/mounts").count(b"\n"),
        "files": sum(len(files) + len(folders) for _, folders, files in os.walk(agent.data_dir)),
    }


def files_by_folder(agent):
    """How many files and folders lie below each folder of the data folder, and below what is in `attempts`."""
    found = collections.Counter()
    for root, folders, files in os.walk(agent.data_dir):
        found[pathlib.Path(root).relative_to(agent.data_dir).parts[:1]] += len(files) + len(folders)
    return {"/".join(parts): number for parts, number in sorted(found.items())}


def run(api, count):
    for first in range(0, count, BATCH):
        jobs = [api.submit(["true"], gpu_count=index % 2) for index in range(min(BATCH, count - first))]
        for job_id in jobs:
            assert api.wait_for(job_id)["state"] == "completed"


def settled(agent):
    """Counts that two looks in a row agree on."""
    seen = []

    def look():
        now = counts(agent)
        seen.append({name: value for name, value in now.items() if name != "memory_kb"})
        return now if len(seen) > 1 and seen[-1] == seen[-2] else None

    return wait_until("the agent has nothing to do", look)


def test_nothing_is_left_of_many_jobs(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=["--keep-finished", "100"]).start()
    api = world.api()
    run(api, max(JOBS // 10, 300))  # Pools are filled and caches warm.
    before, files_before = settled(agent), files_by_folder(agent)
    run(api, JOBS)
    after, files_after = settled(agent), files_by_folder(agent)
    print("before", before, files_before, "after", after, files_after, flush=True)
    pathlib.Path(os.environ.get("ENDURANCE_REPORT", world.folder / "endurance.txt")).write_text(f"{before} {files_before}\n{after} {files_after}\n")
    for name in ("descriptors", "threads", "processes", "cgroups", "mounts"):
        assert after[name] <= before[name], (name, before, after)
    # Emptied folders are kept for later attempts; kSparesMax in src/node/output/folder_files.cc says how many at most.
    assert len(os.listdir(f"{agent.data_dir}/spare")) <= SPARES_MAX, files_after
    del files_before["spare"], files_after["spare"]
    assert sum(files_after.values()) <= sum(files_before.values()) + 16, (files_before, files_after)
    assert after["memory_kb"] <= before["memory_kb"] + MEMORY_SLACK_KB, (before, after)
