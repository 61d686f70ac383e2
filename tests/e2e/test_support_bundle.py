"""gpu-cli support-bundle: what is in it, and what must not be."""

import json
import os
import tarfile

import pytest

pytestmark = pytest.mark.shared_world


def content(path):
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.mode == 0o600 for member in members)
        return {member.name.partition("/")[2]: archive.extractfile(member).read().decode() for member in members}


def make(world, subject, *words):
    path = world.folder / f"{subject}.tar.gz"
    about = [subject] if subject != "cluster" else []
    done = world.cli("support-bundle", *about, "-o", str(path), *words, expected=0)
    assert path.stat().st_mode & 0o777 == 0o600
    files = content(path)
    for name in files:
        assert name in done.stdout, "it lists what it put in"
    return files


def test_of_a_job_holds_what_helps_and_no_secret(world):
    api = world.api()
    job = api.submit("echo fine; echo 'password=hunter1' ; echo bad >&2; exit 3", gpu_count=1, name="train",
                     environment={"WANDB_API_KEY": "hunter2", "NCCL_DEBUG": "INFO"})
    api.wait_for(job)
    config = world.folder / "conf"
    config.mkdir()
    (config / "scheduler.yaml").write_text("redis:\n  password: hunter3\nlog:\n  level: info\n")
    log = world.folder / "daemon.log"
    log.write_text("Authorization: Bearer hunter4\nline\n")
    files = make(world, job, "--config-dir", str(config), "--log", str(log))
    for name in ("manifest.txt", "job.json", "explain.json", "history.json", "stdout.tail", "stderr.tail", "node.json",
                 "cluster.json", "nodes.json", "tenants.json", "health.json", "versions.txt", "doctor-gpu-agent.json",
                 "doctor-gpu-scheduler.json", "config-scheduler.yaml", "log-daemon.log.tail", "status.txt", "metrics.txt"):
        assert name in files, name
    assert "gpu_scheduler_jobs_total" in files["metrics.txt"] and "gpu_scheduler_build_info" in files["metrics.txt"]
    assert "1 of 1 online" in files["status.txt"]
    assert "fine" in files["stdout.tail"] and "bad" in files["stderr.tail"]
    assert '"exit_code": 3' in files["job.json"]
    assert [line["event"] for line in json.loads(files["history.json"])["lines"]][-2:] == ["ended", "finished"]
    assert "level: info" in files["config-scheduler.yaml"]
    assert '"checks"' in files["doctor-gpu-agent.json"]
    everything = "".join(files.values())
    assert "hunter" not in everything
    assert (world.scheduler.data_dir / "token").read_text().strip() not in everything


def test_of_a_waiting_job_and_of_a_node(world):
    api = world.api()
    waiting = api.submit(["true"], gpu_count=64)
    files = make(world, waiting)
    assert "no registered node has 64 GPUs" in files["explain.json"]
    assert "stdout.tail" not in files
    running = api.submit(["sleep", "600"], gpu_count=1)
    api.wait_for(running, "running")
    files = make(world, "n1")
    assert '"name": "n1"' in files["node.json"]
    assert f"jobs/{running}.json" in files
    assert f"jobs/{waiting}.json" not in files


@pytest.mark.own_world
def test_of_the_cluster_has_the_newest_failed_and_the_longest_waiting_job(world, monkeypatch):
    api = world.api()
    for code in (3, 4):
        api.wait_for(api.submit(f"echo code {code}; exit {code}", name=f"failed{code}"))
    for gpus in (64, 63):
        api.submit(["true"], gpu_count=gpus)
    (world.folder / "bin").mkdir()
    journal = world.folder / "bin" / "journalctl"
    journal.write_text("#!/bin/sh\necho \"$@\" | grep -q unit=gpu-scheduler && echo 'Authorization: Bearer hunter5' && echo started\n")
    journal.chmod(0o755)
    monkeypatch.setenv("PATH", f"{journal.parent}:{os.environ['PATH']}")
    files = make(world, "cluster")
    assert "about the cluster" in files["manifest.txt"]
    for name in ("status.txt", "cluster.json", "nodes.json", "tenants.json", "health.json", "metrics.txt", "versions.txt",
                 "failed/job.json", "failed/explain.json", "failed/history.json", "failed/stdout.tail", "waiting/job.json",
                 "waiting/explain.json", "log-gpu-scheduler.tail"):
        assert name in files, name
    assert '"exit_code": 4' in files["failed/job.json"] and "code 4" in files["failed/stdout.tail"]
    assert '"gpu_count": 64' in files["waiting/job.json"] and "64 GPUs" in files["waiting/explain.json"]
    assert "2 waiting" in files["status.txt"] and "What is wrong" in files["status.txt"]
    assert "started" in files["log-gpu-scheduler.tail"] and "hunter5" not in files["log-gpu-scheduler.tail"]
    assert "has nothing of gpu-agent" in files["manifest.txt"] and "log-gpu-agent.tail" not in files


def test_of_a_cluster_without_jobs(new_world):
    world = new_world()
    world.scheduler.start()
    files = make(world, "cluster")
    assert "status.txt" in files and "no node has registered" in files["status.txt"]
    assert not any(name.startswith(("failed/", "waiting/")) for name in files)


def test_of_a_job_by_its_short_id(world):
    job = world.api().submit(["true"])
    world.api().wait_for(job)
    files = make(world, job.removeprefix("job-"))
    assert f"about {job}" in files["manifest.txt"]
    assert f'"job_id": "{job}"' in files["job.json"]
    # A node of that name is meant by it.
    array = world.cli("submit", "--array", "0-3", "--", "true", expected=0).stdout.strip()
    element = make(world, f"{array.removeprefix('job-')}_3")
    assert f"about {array}[3]" in element["manifest.txt"]


def test_refusals_are_one_line_and_leave_no_file(world):
    path = world.folder / "x.tar.gz"
    done = world.cli("support-bundle", "nobody", "-o", str(path), expected=4)
    assert "no job or node nobody" in done.stderr
    assert not path.exists()
    path.write_text("mine")
    job = world.api().submit(["true"])
    assert "give another file" in world.cli("support-bundle", job, "-o", str(path), expected=2).stderr
    assert path.read_text() == "mine"
