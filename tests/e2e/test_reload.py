"""SIGHUP: a configuration is read again, its differences are told, and a wrong one changes nothing."""

import os
import signal

import harness
from harness import wait_until


def events(daemon, name):
    return daemon.events(name)


def hang_up(daemon, name, count):
    """Sends SIGHUP and waits for the count-th such event; its details."""
    os.kill(daemon.pid(), signal.SIGHUP)
    wait_until(f"{name} in the log", lambda: len(events(daemon, name)) >= count)
    return events(daemon, name)[count - 1]["details"]


class ConfiguredScheduler(harness.Scheduler):
    def __init__(self, world, path):
        super().__init__(world, {})
        self.path = path

    def command(self):
        words = super().command()
        return words + ["--config", str(self.path)]


def with_scheduler(world, text):
    path = world.folder / "scheduler.yaml"
    path.write_text(text)
    world.scheduler = ConfiguredScheduler(world, path)
    world.daemons = [world.scheduler]
    world.scheduler.start()
    return path


def changes_of(daemon):
    return {line["details"]["key"]: (line["details"]["old"], line["details"]["new"], line["details"]["holds"])
            for line in events(daemon, "config_changed")}


def test_the_scheduler_takes_live_keys_and_names_the_others(new_world):
    world = new_world()
    path = with_scheduler(world, "scheduler:\n  max_queue_size: 100\n  node_lease_ms: 9000\nredis:\n  password: hunter2\n")
    api = world.api()
    waiting = [api.submit(["true"], gpu_count=1) for _ in range(2)]
    path.write_text("scheduler:\n  max_queue_size: 2\n  node_lease_ms: 12000\nredis:\n  password: hunter3\n"
                    "log:\n  level: debug\n")
    details = hang_up(world.scheduler, "config_reloaded", 1)
    assert details["changes"] == 4
    assert details["needs_restart"] == "scheduler.node_lease_ms"
    changes = changes_of(world.scheduler)
    assert changes["scheduler.max_queue_size"] == ("100", "2", "now")
    assert changes["redis.password"][2] == "never: it has no effect"
    assert changes["scheduler.node_lease_ms"] == ("9000", "12000", "after a restart")
    assert changes["log.level"] == ('"info"', '"debug"', "now")
    assert "hunter" not in world.scheduler.log_text()
    # It holds at once, and after a restart too.
    refused = api.post("/jobs", {"command": ["true"], "gpu_count": 1}, 429)
    assert refused["code"] == "queue_full"
    world.scheduler.restart()
    assert api.post("/jobs", {"command": ["true"]}, 429)["code"] == "queue_full"
    for job in waiting:
        api.cancel(job)


def test_a_wrong_configuration_changes_nothing(new_world):
    world = new_world()
    path = with_scheduler(world, "scheduler:\n  max_queue_size: 100\n")
    path.write_text("scheduler:\n  max_queue_size: 2\n  max_queue_siz: 3\n")
    details = hang_up(world.scheduler, "config_not_reloaded", 1)
    assert "did you mean scheduler.max_queue_size?" in details["why"]
    api = world.api()
    jobs = [api.submit(["true"], gpu_count=1) for _ in range(3)]
    path.unlink()
    assert "cannot read" in hang_up(world.scheduler, "config_not_reloaded", 2)["why"]
    path.write_text("scheduler:\n  max_queue_size: 50\n")
    assert hang_up(world.scheduler, "config_reloaded", 1)["changes"] == 1
    for job in jobs:
        api.cancel(job)


def test_the_log_is_opened_anew_after_a_rotation(new_world):
    world = new_world()
    log = world.folder / "own.log"
    with_scheduler(world, f"log:\n  path: {log}\n")
    rotated = world.folder / "own.log.1"
    log.rename(rotated)
    os.kill(world.scheduler.pid(), signal.SIGHUP)
    wait_until("the new file has a line", lambda: log.exists() and "config_reloaded" in log.read_text())
    assert "scheduler_started" in rotated.read_text()
    assert world.api().call("GET", "/health")[0] == 200


def test_the_agent_reads_its_file_and_jobs_go_on(new_world):
    world = new_world()
    world.scheduler.start()
    path = world.folder / "agent.yaml"
    path.write_text("cpus: 8\nlabel: [zone=a]\nlog_level: info\n")
    agent = world.add_agent("n1", cpus=4, arguments=["--config", str(path)]).start()
    api = world.api()
    # The command line's 4 cores win over the file's 8.
    assert api.node("n1")["cpu_cores"] == 4
    job = api.submit(["sleep", "600"], gpu_count=1)
    api.wait_for(job, "running")
    path.write_text("cpus: 8\nlabel: [zone=b]\nlog_level: debug\n")
    assert hang_up(agent, "config_reloaded", 1)["needs_restart"] == "label"
    assert changes_of(agent)["label"] == ("zone=a", "zone=b", "after a restart, which ends no job")
    assert changes_of(agent)["log-level"][2] == "now"
    path.write_text("cpus: 8\nlable: [zone=b]\n")
    assert "did you mean label?" in hang_up(agent, "config_not_reloaded", 1)["why"]
    assert api.job(job)["state"] == "running"
    assert agent.alive()
    api.cancel(job)
    api.wait_for(job)


def test_an_agent_refuses_a_wrong_file_in_one_line(new_world):
    world = new_world()
    world.scheduler.start()
    path = world.folder / "agent.yaml"
    path.write_text("cpus: 8\nschedulr: x:1\n")
    agent = world.add_agent("n1", arguments=["--config", str(path)])
    agent.launch()
    assert agent.ended() == 2
    assert f"{path}:2: unknown key schedulr; did you mean scheduler?" in agent.log_text()
