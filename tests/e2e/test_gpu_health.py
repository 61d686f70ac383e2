"""Broken GPUs: what each class of fault does, with real agents and processes on simulated devices."""

import pytest
from harness import wait_until

GATE = "while [ ! -e {gate} ]; do sleep 0.05; done"


@pytest.fixture(name="cluster")
def cluster_fixture(new_world):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=30, AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="2xA100-SXM4-80GB", arguments=["--kernel-log", ""]).start()
    return world


def fault_of(api, index, node="n1"):
    return api.gpu(node, index).get("fault", "")


def running_on(api, cluster, name, tail="exit 0"):
    """A job with a GPU that goes on until its gate opens; its gate and the GPU's index."""
    gate = cluster.folder / name
    job = api.submit(GATE.format(gate=gate) + "; " + tail, gpu_count=1)
    shown = api.wait_for(job, "running")
    return job, gate, int(shown["allocated_gpus"][0].rpartition("-")[2])


@pytest.mark.parametrize("xid, rule", [(79, "drain"), (48, "reset"), (92, "replace")])
def test_a_grave_xid_keeps_new_work_away_lets_the_job_go_on_and_waits_for_an_operator(cluster, xid, rule):
    api, agent = cluster.api(), cluster.agents()[0]
    job, gate, index = running_on(api, cluster, "gate")
    agent.set_gpus({index: {"xids": [xid]}})
    wait_until("the fault is shown", lambda: fault_of(api, index) == rule)
    gpu = api.gpu("n1", index)
    assert gpu["fault_code"] == f"xid {xid}" and gpu["condition"] == "faulty"
    assert f"xid {xid}" in gpu["quarantine_reason"] and gpu["fault_at"]
    shown = cluster.cli("device", "list", "n1", expected=0).stdout
    assert "faulty: " in shown
    assert api.job(job)["state"] == "running"
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"  # What ends well is no device's fault.
    both = api.submit(["true"], gpu_count=2)
    wait_until("it waits for the device", lambda: api.explain(both)["reason"] == "gpus_unhealthy")

    # A restarted scheduler and a restarted agent remember it.
    agent.set_gpus({})
    cluster.scheduler.restart()
    agent.restart()
    assert fault_of(cluster.api(), index) == rule
    assert cluster.api().job(both)["state"] == "pending"

    said = cluster.cli("device", "release", "n1", str(index), expected=0).stdout
    assert "released" in said
    assert cluster.api().wait_for(both)["state"] == "completed"
    # The agent was told too: its next restart says nothing of it.
    agent.restart()
    again = cluster.api().submit(["true"], gpu_count=2)
    assert cluster.api().wait_for(again)["state"] == "completed"
    assert fault_of(cluster.api(), index) == ""


def test_the_jobs_own_xids_do_nothing_and_notes_are_only_shown(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    agent.set_gpus({0: {"xids": [13, 31, 43, 45]}, 1: {"throttles": ["throttle_hw_thermal"]}})
    wait_until("the note is shown", lambda: fault_of(api, 1) == "note")
    assert api.gpu("n1", 1)["fault_code"] == "throttle_hw_thermal"
    assert api.gpu("n1", 1)["condition"] == "ok"
    assert fault_of(api, 0) == ""
    job = api.submit(["true"], gpu_count=2)
    assert api.wait_for(job)["state"] == "completed"


def test_a_job_that_dies_of_its_gpu_is_tried_elsewhere_and_pays_nothing(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    job, gate, index = running_on(api, cluster, "gate", tail="exit 7")
    other = cluster.add_agent("n2", sim_gpus="1xA100-SXM4-80GB", arguments=["--kernel-log", ""])
    # The machine's other GPU is no way out, so the job has to go to the other machine.
    cluster.cli("device", "quarantine", "n1", str(1 - index), "--reason", "test", expected=0)
    agent.set_gpus({index: {"xids": [79]}})
    wait_until("the fault is shown", lambda: fault_of(api, index) == "drain")
    gate.touch()
    shown = wait_until("it waits again", lambda: api.job(job) if api.job(job)["state"] == "pending" else None)
    assert "GPU had a fault" in shown["message"] and "xid 79" in shown["message"]
    assert "exited with 7" in shown["message"]
    other.start()
    shown = api.wait_for(job, "failed")  # There its own failure counts, and it may not be tried again.
    assert shown["node_name"] == "n2" or shown.get("assigned_node") == "n2"
    assert shown["exit_code"] == 7
    assert [node["state"] for node in api.get("/nodes")["nodes"]] == ["ready", "ready"]


def test_a_job_whose_gpu_fell_off_the_bus_is_tried_again(cluster):
    api, agent = cluster.api(), cluster.agents()[0]
    job, gate, index = running_on(api, cluster, "gate", tail="test -e {0} || {{ touch {0}; exit 1; }}".format(
        cluster.folder / "second"))
    agent.set_gpus({index: {"condition": "missing", "detail": "GPU is lost"}})
    wait_until("it is missing", lambda: api.gpu("n1", index)["condition"] == "missing")
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"
    assert api.job(job)["attempts"] == 2


def test_memory_errors_are_mended_by_the_configured_reset_once_the_last_process_left(new_world):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=30, AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    api = world.api()
    marks = world.folder / "resets"
    agent = world.add_agent("n1", sim_gpus="2xA100-SXM4-80GB", arguments=[
        "--kernel-log", "", "--gpu-reset-command", f"echo $GPU_SCHEDULER_GPU_UUID >> {marks}"]).start()
    job, gate, index = running_on(api, world, "gate")
    agent.set_gpus({index: {"ecc_uncorrected": 2}})
    wait_until("the fault is shown", lambda: fault_of(api, index) == "reset")
    assert api.gpu("n1", index)["fault_code"] == "ecc_uncorrected"
    assert not marks.exists()  # The job runs on it.
    agent.set_gpus({})  # What was counted is gone with the reset.
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"
    wait_until("it was reset and works again", lambda: fault_of(api, index) == "")
    assert marks.read_text().split() == [api.gpu("n1", index)["uuid"]]
    both = api.submit(["true"], gpu_count=2)
    assert api.wait_for(both)["state"] == "completed"


def test_a_reset_that_fails_says_so_and_waits_for_an_operator(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    api = world.api()
    agent = world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB", arguments=[
        "--kernel-log", "", "--gpu-reset-command", "echo GPU is in use; exit 3"]).start()
    agent.set_gpus({0: {"xids": [119]}})
    wait_until("its failure is shown", lambda: "its reset failed" in api.gpu("n1", 0).get("fault_detail", ""))
    assert "GPU is in use" in api.gpu("n1", 0)["fault_detail"]
    assert fault_of(api, 0) == "reset"


def test_xids_are_read_from_a_kernels_log_and_an_operator_says_what_they_mean(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    api = world.api()
    log = world.folder / "kern.log"
    log.write_text("NVRM: Xid (PCI:0000:10:00): 79, from before the agent began\n")
    config = world.folder / "agent.yaml"
    config.write_text(f"kernel_log: {log}\ngpu_faults: {{63: drain, 79: ignore}}\n")
    agent = world.add_agent("n1", sim_gpus="2xA100-SXM4-80GB", arguments=["--config", str(config)]).start()
    with log.open("a") as out:
        out.write("Nov 22 03:00:00 n1 kernel: NVRM: Xid (PCI:0000:10:00): 79, pid=1, GPU has fallen off the bus.\n")
        out.write("Nov 22 03:00:00 n1 kernel: NVRM: Xid (PCI:0000:11:00): 63, Row Remapper: New row marked\n")
    wait_until("the second one has it", lambda: fault_of(api, 1) == "drain")
    assert "Row Remapper" in api.gpu("n1", 1)["fault_detail"]
    assert fault_of(api, 0) == ""
    cluster_said = world.cli("device", "release", "n1", "1", expected=0).stdout
    assert "released" in cluster_said
    wait_until("it is over", lambda: fault_of(api, 1) == "")
    agent.restart()  # What was read is not read again.
    job = world.api().submit(["true"], gpu_count=2)
    assert world.api().wait_for(job)["state"] == "completed"


# The watchdogs, with real processes; what their GPUs do is said by the simulated driver.

@pytest.fixture(name="watched")
def watched_fixture(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200, SCHEDULER_WATCHDOG_IDLE_SECONDS=1,
                      SCHEDULER_WATCHDOG_HUNG_SECONDS=1)
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="2xA100-SXM4-80GB", arguments=["--kernel-log", ""]).start()
    return world


BUSY = {"utilization_percent": 100, "memory_used_mb": 9000}


def warnings_of(api, job):
    return {warning["kind"]: warning for warning in api.job(job).get("warnings", [])}


def test_a_job_that_leaves_its_gpu_unused_is_warned_about_until_it_uses_it(watched):
    api, agent = watched.api(), watched.agents()[0]
    job, gate, index = running_on(api, watched, "gate")
    warning = wait_until("it is warned about", lambda: warnings_of(api, job).get("idle"))
    assert "unused" in warning["message"] and warning["since"]
    assert "unused" in api.job(job)["message"]
    agent.set_gpus({index: {"utilization_percent": 40, "memory_used_mb": 9000}})
    wait_until("it is not any more", lambda: not warnings_of(api, job))
    assert api.job(job)["state"] == "running"
    agent.set_gpus({})
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"


def test_a_job_that_is_busy_and_says_nothing_is_hung_and_ended_when_it_asked_for_that(watched):
    api, agent = watched.api(), watched.agents()[0]
    agent.set_gpus({0: BUSY, 1: BUSY})
    silent = api.submit("while :; do sleep 0.1; done", gpu_count=1, hung_action="cancel")
    talks = api.submit("while :; do echo step; sleep 0.1; done", gpu_count=1, hung_action="cancel")
    shown = api.wait_for(silent, "cancelled")
    assert shown["reason"] == "hung"
    assert "watchdog" in shown["message"] and "without output" in shown["message"]
    assert api.job(talks)["state"] == "running"
    api.cancel(talks)
    agent.set_gpus({})


def test_an_idle_job_is_put_back_in_line_where_the_operator_says_so(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200, SCHEDULER_WATCHDOG_IDLE_SECONDS=1,
                      SCHEDULER_WATCHDOG_IDLE_ACTION="requeue")
    world.scheduler.start()
    world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB", arguments=["--kernel-log", ""]).start()
    api = world.api()
    # A job may not soften that by itself.
    job = api.submit("while :; do sleep 0.1; done", gpu_count=1, idle_action="warn")
    wait_until("it is tried again", lambda: api.job(job)["attempts"] >= 2)
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    refused = world.cli("submit", "--gpus", "1", "--idle-action", "explode", "--", "true")
    assert refused.returncode != 0 and "warn, requeue or cancel" in refused.stderr


@pytest.mark.parametrize("ends", [False, True])
def test_a_share_over_its_memory_is_warned_about_or_ended_by_policy(new_world, ends):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=200)
    world.scheduler.start()
    arguments = ["--kernel-log", ""] + (["--share-memory-grace-s", "1"] if ends else [])
    agent = world.add_agent("n1", sim_gpus="1xA100-SXM4-80GB", arguments=arguments).start()
    api = world.api()
    pid_file = world.folder / "pid"
    job = api.submit(f"echo $$ > {pid_file}; while :; do sleep 0.1; done", gpu_milli=250, gpu_memory_mb=10_000)
    api.wait_for(job, "running")
    pid = wait_until("its pid is known", lambda: pid_file.exists() and pid_file.read_text().strip())
    agent.set_gpus({0: {"memory_used_mb": 12_500, "processes": [[int(pid), 12_000]]}})
    if not ends:
        warning = wait_until("it is warned about", lambda: warnings_of(api, job).get("over_share"))
        assert "2000 MB more" in warning["message"]
        assert api.job(job)["state"] == "running"
        api.cancel(job)
    else:
        shown = api.wait_for(job)
        assert shown["state"] == "failed" and shown["reason"] == "over_limit"
        assert "2000 MB more GPU memory than its share" in shown["message"]
    agent.set_gpus({})
    api.wait_for(job)
