"""What an operator asks at three in the morning: what is wrong, who did it, and how to stop and go on."""

import datetime
import getpass
import re
import socket
import time

from harness import A100X4, wait_until

ASKS = f"{getpass.getuser()}@{socket.gethostname()}"


def history_of(world, job_id):
    """The events of a job's timeline, without its submission."""
    lines = world.cli_json("history", job_id)["lines"]
    assert lines[0]["event"] == "submitted"
    return lines[1:]


def test_a_timeline_tells_every_attempt_and_who_asked_for_what(world):
    api = world.api()
    job_id = api.submit("sleep 1000", gpu_count=1)
    api.wait_for(job_id, "running")
    world.cli("requeue", job_id, expected=0)
    wait_until("it runs again", lambda: (job := api.job(job_id))["state"] == "running" and job["attempts"] == 2)
    # A client that calls itself nothing is known by its address.
    api.cancel(job_id)
    api.wait_for(job_id)
    lines = history_of(world, job_id)
    assert [line["event"] for line in lines] == [
        "placed", "started", "requeue_requested", "ended", "requeued", "placed", "started", "cancel_requested",
        "ended", "finished"]
    assert lines[0]["node_name"] == "n1" and lines[5]["attempt"] == 2
    assert lines[2]["by"] == ASKS and lines[7]["by"] == "127.0.0.1"
    shown = world.cli("history", job_id, expected=0).stdout
    assert f"requeue was requested by {ASKS}" in shown and "placed on node n1" in shown
    # It is part of what is durable, and the log has it too.
    world.scheduler.restart()
    assert history_of(world, job_id) == lines
    assert f'"event":"task_requeue_requested","task_id":"{job_id}","details":{{"by":"{ASKS}"}}' \
        in world.scheduler.log_text()  # Whole, as the scheduler that wrote it has ended.
    dumped = world.scheduler.journal("dump", str(world.scheduler.data_dir)).stdout
    assert f'"by":"{ASKS}"' in dumped


def test_who_submitted_a_job_is_shown_and_lasts(world):
    api = world.api()
    mine = world.cli("submit", "--array", "0-1", "--", "true", expected=0).stdout.strip()
    # A client that calls itself nothing is known by its address.
    others = api.submit(["true"])
    world.scheduler.restart()
    api = world.api()
    for job_id, by in [(mine, ASKS), (f"{mine}[1]", ASKS), (others, "127.0.0.1")]:
        api.wait_for(job_id)
        line = world.cli_json("history", job_id)["lines"][0]
        assert (line["event"], line["by"], line["message"]) == ("submitted", by, f"submitted by {by}")
        assert f"submitted by {by}" in world.cli("history", job_id, expected=0).stdout
        assert ["Submitted", "by:", by] in [row.split() for row in
                                            world.cli("get", job_id, expected=0).stdout.splitlines()]
        assert api.job(job_id)["submitted_by"] == by
        assert api.call("GET", f"/v1/jobs/{job_id}")[1]["submitted_by"] == by


def test_a_pause_starts_nothing_and_lasts_over_a_restart(world):
    api = world.api()
    runs = api.submit("sleep 1000", gpu_count=1)
    api.wait_for(runs, "running")
    said = world.cli("pause", "--reason", "a switch is replaced", expected=0).stdout
    assert said == "no job is started until `gpu-cli resume`; 1 running job continues, new ones are accepted and wait\n"
    waits = api.submit("true", gpu_count=1)
    world.scheduler.restart()
    wait_until("the agent is back", lambda: api.job(runs)["node_name"] == "n1")
    job = wait_until("why it waits is known", lambda: (job := api.job(waits))["reason"] == "paused" and job)
    assert job["message"] == (f"no jobs are started while the cluster is paused by {ASKS} (a switch is replaced); "
                              "to resume: gpu-cli resume")
    status = world.cli("status", expected=0).stdout
    assert f"by {ASKS}: a switch is replaced; to resume: gpu-cli resume" in status
    assert api.job(runs)["state"] == "running"
    world.cli("resume", expected=0)
    api.wait_for(waits)
    wait_until("its GPU is free", lambda: "Nothing is wrong." in world.cli("status", expected=0).stdout)


def test_status_names_what_is_wrong_and_what_to_type(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1_500, AGENT_HEARTBEAT_INTERVAL_MS=500)
    world.scheduler.start()
    for name in ("n1", "n2"):
        world.add_agent(name, sim_gpus=A100X4).start()
    api = world.api()
    job_id = api.submit("sleep 1000", gpu_count=1)
    node = api.wait_for(job_id, "running")["node_name"]
    other = "n2" if node == "n1" else "n1"
    world.cli("node", "drain", other, "--reason", "new memory", expected=0)
    world.cli("device", "quarantine", node, "3", "--reason", "makes noises", expected=0)
    silent = next(agent for agent in world.agents() if agent.node == node)
    silent.kill()
    killed_at = time.time()
    api.submit("true", gpu_count=64)
    problems = wait_until("it is silent", lambda: [
        found for found in world.cli_json("status")["problems"] if "has not reported" in found["problem"]]
        and world.cli_json("status")["problems"])
    told = {found["subject"]: found for found in problems}
    assert "it is unknown whether its 1 job still runs" in told[f"node {node}"]["problem"]
    assert told[f"node {node}"]["next"].startswith(f"gpu-cli node confirm-dead {node}")
    assert "new memory" in told[f"node {other}"]["problem"]
    assert told[f"node {other}"]["next"] == f"gpu-cli node resume {other}"
    assert "makes noises" in told[f"GPU 3 of {node}"]["problem"]
    assert "waiting for resources that no node has" in told["1 job"]["problem"]
    # The job of a silent node says so itself.
    message = wait_until("the job says so", lambda: "has not reported since" in (text := api.job(job_id)["message"])
                         and text)
    assert f"gpu-cli node confirm-dead {node}" in message
    # It was heard for the last time before it was killed, and not when its lease ran out.
    since = re.search(r"has not reported since (\S+?),", message)[1]
    heard = datetime.datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    assert killed_at - 1 <= heard <= killed_at + 0.2
    shown = api.call("GET", f"/v1/nodes/{node}")[1]["state_since"]
    assert abs(datetime.datetime.fromisoformat(shown.replace("Z", "+00:00")).timestamp() - heard) < 0.1
    silent.start()
    wait_until("it is heard again", lambda: api.job(job_id)["message"].startswith("runs on"))


def test_a_job_that_no_start_can_mend_is_held_with_its_reason(world):
    api = world.api()
    job_id = api.submit("true", gpu_count=1, user="nobody-of-this-name")
    job = wait_until("it is held", lambda: (job := api.job(job_id))["reason"] == "held" and job, 60)
    assert job["state"] == "pending" and job["attempts"] == 3
    assert "this node has no user 'nobody-of-this-name'" in job["message"]
    assert f"gpu-cli release {job_id}" in job["message"]
    assert [line["event"] for line in history_of(world, job_id)][-1] == "held"
    found = [one for one in world.cli_json("status")["problems"] if "held after failed starts" in one["problem"]]
    assert found and found[0]["next"] == f"gpu-cli explain {job_id}"
    world.cli("cancel", job_id, expected=0)
    assert api.wait_for(job_id)["state"] == "cancelled"


def test_a_silent_node_that_a_command_switched_off_needs_nobody(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1_500, AGENT_HEARTBEAT_INTERVAL_MS=500, SCHEDULER_FENCE_AFTER_SECONDS=0)
    off = world.folder / "off"  # For certain: what ran there is ended.
    world.scheduler.settings["SCHEDULER_FENCE_COMMAND"] = (
        f"kill -9 $(cat {world.folder}/pid) && echo $GPU_SCHEDULER_NODE > {off}")
    world.scheduler.start()
    for name in ("n1", "n2", "n3"):
        world.add_agent(name, sim_gpus=A100X4).start()
    api = world.api()
    job_id = api.submit(f"echo $$ > {world.folder}/pid; exec sleep 1000", gpu_count=1)
    node = api.wait_for(job_id, "running")["node_name"]
    wait_until("the job says its process", lambda: (world.folder / "pid").read_text())
    next(agent for agent in world.agents() if agent.node == node).kill()
    wait_until("it runs elsewhere", lambda: (job := api.job(job_id))["state"] == "running" and job["attempts"] == 2)
    assert off.read_text() == f"{node}\n"
    world.scheduler.wait_log(f'"event":"node_fenced","details":{{"node":"{node}"}}')
    assert any("scheduler.fence_command confirmed the node dead" in line["message"]
               for line in history_of(world, job_id))


def test_who_changed_a_tenant_and_who_submitted_is_in_the_log_and_the_journal(world):
    created = world.cli_json("tenant", "create", "--name", "vision")["id"]
    world.cli("tenant", "update", created, "--max-gpus", "3", expected=0)
    world.cli("submit", "--tenant", "vision", "--wait", "--", "true", expected=0)
    world.cli("tenant", "delete", created, expected=0)
    number = created.split("-")[1]
    for event in (f'"tenant_created","details":{{"tenant":{number},"name":"vision","by":"{ASKS}"}}',
                  f'"quota_updated","details":{{"tenant":{number},"by":"{ASKS}"}}',
                  f'"details":{{"tenant":{number},"gpus":0,"by":"{ASKS}"}}',
                  f'"tenant_deleted","details":{{"tenant":{number},"by":"{ASKS}"}}'):
        world.scheduler.wait_log(event)
    world.scheduler.stop()
    dumped = world.scheduler.journal("dump", str(world.scheduler.data_dir)).stdout
    assert dumped.count(f'"by":"{ASKS}"') == 4
