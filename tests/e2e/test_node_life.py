"""A node takes work when its checks pass, and what an operator, a hook or a driver says about it is kept and shown."""

import os
import signal

import pytest
from harness import wait_until


def script(world, name, text):
    path = world.folder / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return str(path)


def node_of(api, name="n1"):
    status, node, _ = api.call("GET", f"/v1/nodes/{name}")
    assert status == 200, node
    return node


def order(api, what, name="n1", body=None, expected=200):
    status, node, _ = api.call("POST", f"/v1/nodes/{name}/{what}", body or {})
    assert status == expected, (what, status, node)
    return node


def wait_state(api, state, name="n1"):
    return wait_until(f"{name} is {state}", lambda: next((n for n in [node_of(api, name)] if n["state"] == state), None))


def control(api, what, job_id, expected=200, body=None):
    status, job, _ = api.call("POST", f"/v1/jobs/{job_id}/{what}", body or {})
    assert status == expected, (what, status, job)
    return job


def test_a_node_takes_no_work_before_its_health_script_passes(new_world):
    world = new_world()
    world.scheduler.start()
    health = script(world, "health", f"test -e {world.folder}/infiniband || {{ echo 'no infiniband port is up'; exit 1; }}")
    world.add_agent("n1", arguments=["--health-script", health]).start()
    api = world.api()
    node = wait_until("its checks have failed", lambda: next(
        (n for n in [node_of(api)] if "infiniband" in n["state_reason"]), None))
    assert node["state"] == "validating" and node["state_by"] == "agent" and node["state_since"]
    job_id = api.submit("exit 0", gpu_count=1)
    reason = wait_until("it has a reason", lambda: next((e for e in [api.explain(job_id)] if e["reason"] != "queued"), None))
    assert reason["reason"] == "nodes_held" and "validating" in reason["message"]
    (world.folder / "infiniband").touch()
    assert api.wait_for(job_id)["state"] == "completed"
    assert node_of(api)["state"] == "ready"


def test_a_failing_prolog_holds_the_node_and_costs_the_job_no_retry(new_world):
    world = new_world()
    world.scheduler.start()
    bad = script(world, "prolog", "echo 'scratch is not mounted' >&2; exit 7")
    world.add_agent("bad", arguments=["--prolog", bad], sim_gpus="8xA100-SXM4-80GB").start()
    api = world.api()
    wait_state(api, "ready", "bad")
    job_id = api.submit("exit 0", gpu_count=4)
    held = wait_state(api, "validating", "bad")
    assert "scratch is not mounted" in held["state_reason"]
    world.add_agent("good").start()
    job = api.wait_for(job_id)
    assert job["state"] == "completed" and job["node_name"] == "good" and job["attempts"] == 2
    assert wait_until("the GPUs are free again", lambda: node_of(api, "bad")["devices"][0]["state"] == "free")


def test_prolog_and_epilog_run_around_an_attempt_and_see_it(new_world):
    world = new_world()
    world.scheduler.start()
    notes = world.folder / "notes"
    line = f'echo "$GPU_SCHEDULER_HOOK $GPU_SCHEDULER_JOB_ID $GPU_SCHEDULER_GPU_UUIDS $GPU_SCHEDULER_EXIT_CODE" >> {notes}'
    prolog, epilog = script(world, "prolog", line), script(world, "epilog", "sleep 0.3; " + line)
    world.add_agent("n1", arguments=["--prolog", prolog, "--epilog", epilog]).start()
    api = world.api()
    job_id = api.submit(f"echo job >> {notes}; exit 5", gpu_count=1)
    assert api.wait_for(job_id)["exit_code"] == 5
    wait_until("the GPU is free again", lambda: api.gpu("n1", 0)["state"] == "free")
    gpu = "GPU-sim-n1-0"
    assert notes.read_text().splitlines() == [f"prolog {job_id} {gpu} ", "job", f"epilog {job_id} {gpu} 5"]


def test_a_hook_that_hangs_is_ended_and_holds_the_node(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1", arguments=["--prolog", script(world, "hangs", "sleep 600"), "--hook-timeout-s", "1"]).start()
    api = world.api()
    api.submit("exit 0")
    node = wait_until("the node is held", lambda: next((n for n in [node_of(api)] if "did not end" in n["state_reason"]), None))
    assert node["state"] == "validating"


def test_a_drained_node_stays_drained_over_restarts_until_it_is_resumed(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    api = world.api()
    running = api.submit(f"while ! test -e {world.folder}/go; do sleep 0.05; done", gpu_count=1)
    api.wait_for(running, "running")
    node = order(api, "drain", body={"reason": "new power supply", "by": "night shift"})
    assert node["state"] == "draining" and node["state_by"] == "night shift" and node["state_reason"] == "new power supply"
    waiting = api.submit("exit 0", gpu_count=1)
    order(api, "reboot", expected=409)
    (world.folder / "go").touch()
    assert api.wait_for(running)["state"] == "completed"
    assert wait_state(api, "drained")
    agent.restart()
    world.scheduler.restart()
    api = world.api()
    wait_until("it reports again", lambda: node_of(api)["contact"] == "connected")
    assert node_of(api)["state"] == "drained" and node_of(api)["state_reason"] == "new power supply"
    assert api.job(waiting)["state"] == "pending"
    assert order(api, "resume")["state"] == "ready"
    assert api.wait_for(waiting)["state"] == "completed"


def test_a_drained_node_runs_its_reboot_command_when_asked(new_world):
    world = new_world()
    world.scheduler.start()
    asked = world.folder / "asked"
    world.add_agent("n1", arguments=["--reboot-command", f'echo "$GPU_SCHEDULER_REASON" > {asked}']).start()
    api = world.api()
    wait_state(api, "ready")
    assert "reboot" in node_of(api)["features"]
    order(api, "drain", body={"reason": "kernel"})
    order(api, "reboot", body={"reason": "kernel update"})
    wait_until("the command ran", asked.exists)
    assert wait_until("it is written", asked.read_text) == "kernel update\n"


def test_a_node_without_a_reboot_command_says_so(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    order(api, "drain", body={"reason": "kernel"})
    status, answer, _ = api.call("POST", "/v1/nodes/n1/reboot", {"reason": "kernel update"})
    assert status == 422 and "--reboot-command" in answer["error"], answer


def test_gpus_whose_driver_does_not_open_are_unhealthy_and_never_forgotten(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", sim_gpus=None, arguments=["--nvml-library", "/no/such/library"])
    agent.data_dir.mkdir()
    (agent.data_dir / "inventory").write_text("GPU-1 81559 NVIDIA H100 80GB HBM3\nGPU-2 81559 NVIDIA H100 80GB HBM3\n")
    agent.start()
    api = world.api()
    node = wait_until("its checks have failed", lambda: next((n for n in [node_of(api)] if "driver" in n["state_reason"]), None))
    assert node["state"] == "validating"
    assert [gpu["condition"] for gpu in node["devices"]] == ["unhealthy", "unhealthy"]
    job_id = api.submit("exit 0", gpu_count=2)
    assert wait_until("it has a reason", lambda: api.explain(job_id)["reason"] == "nodes_held")


def test_held_updated_and_requeued_jobs(new_world):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    blocker = api.submit(f"while ! test -e {world.folder}/go; do sleep 0.05; done", gpu_count=4)
    api.wait_for(blocker, "running")
    first, second = api.submit("exit 0", gpu_count=4), api.submit("exit 0", gpu_count=4)
    assert control(api, "hold", first)["held"] is True
    assert "gpu-cli release" in api.explain(first)["message"]
    status, job, _ = api.call("PATCH", f"/v1/jobs/{second}", {"priority": 300, "name": "urgent"})
    assert status == 200 and job["priority"] == 300 and job["spec"]["name"] == "urgent"
    world.scheduler.restart()
    api = world.api()
    (world.folder / "go").touch()
    assert api.wait_for(second)["state"] == "completed"
    assert api.job(first)["state"] == "pending"
    control(api, "release", first)
    assert api.wait_for(first)["state"] == "completed"
    control(api, "hold", first, 409)
    endless = api.submit("sleep 600", gpu_count=1)
    api.wait_for(endless, "running")
    control(api, "hold", endless, 409)
    control(api, "requeue", endless)
    wait_until("it runs again", lambda: next((j for j in [api.job(endless)] if j["attempts"] == 2 and j["state"] == "running"), None))
    api.cancel(endless)
    assert api.wait_for(endless)["state"] == "cancelled"


@pytest.mark.parametrize("restart", [False, True])
def test_a_time_limit_of_a_running_job_may_be_raised_and_lowered(new_world, restart):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    api = world.api()
    status, answer, _ = api.call("POST", "/v1/jobs", {"jobs": [{"spec": {"script": "sleep 9; exit 3"}, "max_runtime_ms": 5000}]})
    assert status in (200, 201), answer
    job_id = answer["job_ids"][0]
    api.wait_for(job_id, "running")
    status, job, _ = api.call("PATCH", f"/v1/jobs/{job_id}", {"max_runtime_ms": 600_000})
    assert status == 200, job
    if restart:
        agent.restart()
    assert api.wait_for(job_id)["exit_code"] == 3
    endless = api.submit("sleep 600")
    api.wait_for(endless, "running")
    status, job, _ = api.call("PATCH", f"/v1/jobs/{endless}", {"max_runtime_ms": 1})
    assert status == 200, job
    assert api.wait_for(endless)["reason"] == "timeout"


def end_attempts(world, agents):
    """Ends all that is left of attempts, as a machine that was switched off has: not our own daemons."""
    own = {world.scheduler.pid()}
    for agent in agents:
        own |= {agent.pid(), *agent.children()}
    for left in world.attempts_left():
        if left not in own:
            os.kill(left, signal.SIGKILL)


def test_a_node_that_is_gone_is_removed_when_nothing_of_it_is_held(new_world):
    world = new_world(SCHEDULER_NODE_LEASE_MS=1000)
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.start()
    world.add_agent("n2").start()
    api = world.api()
    api.wait_node("n1")
    world.cli("node", "label", "n1", "rack=r7", expected=0)
    refused = world.cli("node", "remove", "n1", expected=4)
    assert "stop the agent first" in refused.stderr
    job_id = api.submit("while :; do sleep 0.1; done", gpu_count=1, node_labels=["rack=r7"])
    wait_until("it runs", lambda: api.job(job_id)["state"] == "running")
    agent.kill()
    api.wait_node("n1", "unreachable")
    status, error, _ = api.call("DELETE", "/v1/nodes/n1")
    assert (status, error["code"]) == (409, "node_busy"), error
    assert api.job(job_id)["state"] == "running"

    end_attempts(world, world.agents()[1:])
    world.cli("node", "confirm-dead", "n1", expected=0)
    assert "n1" in world.cli("node", "remove", "n1", expected=0).stdout
    assert [node["name"] for node in world.cli_json("nodes")["nodes"]] == ["n2"]
    assert "n1" in world.cli("node", "remove", "n1", expected=4).stderr
    # It stays forgotten after a restart, and an agent of its name begins anew, without what was said of it.
    assert world.scheduler.stop() == 0
    world.scheduler.start()
    assert api.call("GET", "/v1/nodes/n1")[0] == 404
    assert api.job(job_id)["state"] == "pending"
    agent.start()
    api.wait_node("n1")
    assert "rack" not in node_of(api).get("labels", {})
    world.cli("node", "label", "n1", "rack=r7", expected=0)
    wait_until("it runs again", lambda: api.job(job_id)["state"] == "running")
