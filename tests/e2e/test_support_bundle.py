"""gpu-cli support-bundle: what is in it, and what must not be."""

import json
import tarfile


def content(path):
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert all(member.isfile() and member.mode == 0o600 for member in members)
        return {member.name.partition("/")[2]: archive.extractfile(member).read().decode() for member in members}


def make(world, subject, *words):
    path = world.folder / f"{subject}.tar.gz"
    done = world.cli("support-bundle", subject, "-o", str(path), *words, expected=0)
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
                 "doctor-gpu-scheduler.json", "config-scheduler.yaml", "log-daemon.log.tail"):
        assert name in files, name
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
