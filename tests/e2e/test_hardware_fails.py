"""What a machine room does to a node: lost GPUs, drivers that hang or refuse, folders that are gone, stopped shims."""

import json
import os
import shutil
import signal

import pytest
from harness import IS_ROOT, PATIENCE_S, processes, read_bytes, wait_until
from test_node_life import node_of, script, wait_state
from test_restart import gated, open_gate, running_pid


def set_driver(agent, devices=None, **whole):
    """The simulated driver's whole control file; nothing: as usual."""
    fresh = agent.data_dir / "sim-gpus.json.new"
    fresh.write_text(json.dumps(dict(whole, devices={str(index): facts for index, facts in (devices or {}).items()})))
    fresh.rename(agent.data_dir / "sim-gpus.json")


def states(api, name="n1"):
    return {gpu["uuid"]: (gpu["state"], gpu["condition"]) for gpu in node_of(api, name)["devices"]}


def uuid_of(index, name="n1"):
    return f"GPU-sim-{name}-{index}"


def test_a_gpu_that_is_lost_at_a_restart_keeps_its_place_and_jobs_theirs(world):
    api, agent = world.api(), world.agents()[0]
    job_ids = [api.submit(gated(world, f"gate{index}", f"echo $CUDA_VISIBLE_DEVICES; exit {index}"), gpu_count=1)
               for index in range(3)]
    for job_id in job_ids:
        running_pid(api, job_id)
    agent.kill()
    set_driver(agent, {0: {"condition": "absent"}}, order=[3, 2, 1])
    agent.start()
    wait_until("the lost one is missing", lambda: "missing" in states(api)[uuid_of(0)][1])
    agent.wait_log('"gpu_missing"')
    # The third job's end is that of its own GPU, and the others keep theirs.
    open_gate(world, "gate2")
    assert api.wait_for(job_ids[2])["exit_code"] == 2
    wait_until("its GPU is free", lambda: states(api)[uuid_of(2)][0] == "free")
    assert states(api)[uuid_of(1)][0] == "held"
    # Back again, nothing has moved.
    agent.kill()
    set_driver(agent)
    agent.start()
    wait_until("it is there again", lambda: "missing" not in states(api)[uuid_of(0)][1])
    for index in (0, 1):
        open_gate(world, f"gate{index}")
        job = api.wait_for(job_ids[index])
        assert (job["exit_code"], job["attempts"]) == (index, 1)
        assert api.output(job_ids[index]).split()[-1] == uuid_of(index)


def test_a_gpu_that_cannot_be_read_makes_no_job_idle(new_world):
    world = new_world(SCHEDULER_WATCHDOG_IDLE_SECONDS=2, SCHEDULER_WATCHDOG_IDLE_ACTION="cancel")
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    api = world.api()
    busy = {0: {"utilization_percent": 95, "memory_used_mb": 40000}}
    set_driver(agent, busy)
    job_id = api.submit(gated(world, "gate", "exit 3"), gpu_count=1)
    running_pid(api, job_id)
    # Everything is zero, and the reading says why.
    set_driver(agent, {0: {"condition": "unhealthy", "detail": "Driver/library version mismatch"}})
    wait_until("the GPU is unhealthy", lambda: "version mismatch" in node_of(api)["devices"][0]["detail"])
    # By the time that jobs are cancelled which do nothing on GPUs that tell it, this one is not.
    for _ in range(2):
        assert api.wait_for(api.submit("while :; do sleep 0.1; done", gpu_count=1))["state"] == "cancelled"
    assert api.job(job_id)["state"] == "running"
    open_gate(world, "gate")
    assert api.wait_for(job_id)["exit_code"] == 3
    # What it left nobody can vouch for; when the driver answers again, the GPU is given back.
    assert states(api)[uuid_of(0)][0] == "draining"
    set_driver(agent)
    wait_until("the GPU is free", lambda: states(api)[uuid_of(0)][0] == "free")


def test_an_agent_whose_driver_does_not_open_keeps_its_jobs_and_takes_none(world):
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit(gated(world, "gate", "exit 4"), gpu_count=4)
    running_pid(api, job_id)
    agent.kill()
    set_driver(agent, fault="Driver/library version mismatch")
    agent.start()
    agent.wait_log('"driver_lost"')
    wait_state(api, "validating")
    assert "version mismatch" in node_of(api)["state_reason"]
    open_gate(world, "gate")
    assert api.wait_for(job_id)["exit_code"] == 4
    agent.kill()
    set_driver(agent)
    agent.start()
    wait_until("all GPUs are free", lambda: {state for state, _ in states(api).values()} == {"free"})


def test_a_gpu_that_somebody_else_fills_is_given_to_nobody(world):
    api, agent = world.api(), world.agents()[0]
    set_driver(agent, {index: {"memory_used_mb": 79000} for index in range(3)})
    wait_until("they are unhealthy", lambda: [gpu["detail"] for gpu in node_of(api)["devices"]].count(
        "77 GB of its memory are in use although no job has it, by no process that the driver shows; see fuser -v /dev/nvidia*")
        == 3)
    waits = api.submit("exit 0", gpu_count=2)
    runs = api.submit("echo $CUDA_VISIBLE_DEVICES", gpu_count=1)
    assert api.wait_for(runs)["state"] == "completed"
    assert api.output(runs) == uuid_of(3) + "\n"
    assert api.job(waits)["state"] == "pending"
    set_driver(agent)
    assert api.wait_for(waits)["state"] == "completed"


def test_daemons_keep_no_gpu(world):
    api, agent = world.api(), world.agents()[0]
    set_driver(agent, {0: {"processes": [[4711, 1500]], "memory_used_mb": 1510}},
               programs={"4711": "nvidia-cuda-mps-server"})
    wait_until("they are seen", lambda: "nvidia-cuda-mps-server" in agent.log_text())
    for _ in range(2):
        assert api.wait_for(api.submit("exit 0", gpu_count=4))["state"] == "completed"
        wait_until("all GPUs are free", lambda: {state for state, _ in states(api).values()} == {"free"})


def test_a_driver_that_hangs_is_said_and_the_agent_goes_on(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1")
    agent.data_dir.mkdir()
    set_driver(agent)  # There when it starts: its calls may take their time.
    agent.start()
    api = world.api()
    job_id = api.submit(gated(world, "gate", "exit 6"), gpu_count=1)
    running_pid(api, job_id)
    set_driver(agent, hang=True)
    wait_until("the driver's silence is told",
               lambda: "has not responded for 30 s" in node_of(api)["devices"][0]["detail"])
    open_gate(world, "gate")
    assert api.wait_for(job_id)["exit_code"] == 6
    set_driver(agent)
    wait_until("all is well", lambda: set(states(api).values()) == {("free", "ok")})


def test_a_node_that_lost_its_folder_of_attempts_makes_another(world):
    api, agent = world.api(), world.agents()[0]
    assert api.wait_for(api.submit("exit 0"))["state"] == "completed"
    running = api.submit(gated(world, "gate", "exit 7"), gpu_count=1)
    running_pid(api, running)
    shutil.rmtree(agent.data_dir / "attempts")
    # What begins afterwards has a folder, and what runs keeps its outcome for the next agent.
    for _ in range(5):
        job = api.wait_for(api.submit("echo here > $TMPDIR/x; exit 0"))
        assert (job["state"], job["attempts"]) == ("completed", 1)
    agent.kill()
    open_gate(world, "gate")
    agent.start()
    assert api.wait_for(running)["exit_code"] == 7


@pytest.mark.skipif(not IS_ROOT, reason="root may write everywhere else")
def test_a_node_that_can_begin_nothing_is_held_and_costs_no_retry(new_world):
    world = new_world()
    world.scheduler.start()
    bad = world.add_agent("bad", sim_gpus="8xA100-SXM4-80GB").start()
    api = world.api()
    # A file where the folder has to be: nobody can make it.
    shutil.rmtree(bad.data_dir / "attempts")
    (bad.data_dir / "attempts").write_text("")
    job_id = api.submit("exit 0", gpu_count=4)
    wait_state(api, "validating", "bad")
    world.add_agent("good").start()
    job = api.wait_for(job_id)
    assert (job["state"], job["node_name"]) == ("completed", "good")
    (bad.data_dir / "attempts").unlink()


def shim_server(agent):
    for pid in agent.children():
        if read_bytes(f"/proc/{pid}/cmdline").startswith(b"gpu-shim\0--server"):
            return pid
    return None


def test_a_stopped_shim_does_not_keep_a_job_from_being_cancelled(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=["--order-patience-s", "2"]).start()
    api = world.api()
    job_id = api.submit(gated(world, "never"), gpu_count=1)
    pid = running_pid(api, job_id)
    os.kill(agent.shim_of(job_id), signal.SIGSTOP)
    api.cancel(job_id)
    assert api.wait_for(job_id)["state"] == "cancelled"
    assert pid not in processes()
    agent.wait_log('"stop_not_carried_out"')


def test_a_stopped_server_of_shims_is_replaced(new_world):
    world = new_world()
    world.scheduler.start()
    agent = world.add_agent("n1", arguments=["--order-patience-s", "2", "--check-every-s", "1"]).start()
    api = world.api()
    assert api.wait_for(api.submit("exit 0"))["state"] == "completed"
    runs = api.submit(gated(world, "gate", "exit 8"))
    running_pid(api, runs)
    server = wait_until("the server is there", lambda: shim_server(agent))
    os.kill(server, signal.SIGSTOP)
    waits = api.submit("exit 9")
    wait_until("it is noticed", lambda: '"start_not_carried_out"' in agent.log_text())
    # A node whose order was not carried out is given nothing for a minute, as soon as that is known.
    wait_until("there is another one", lambda: shim_server(agent) not in (None, server), PATIENCE_S + 60)
    open_gate(world, "gate")
    assert api.wait_for(runs)["exit_code"] == 8
    assert api.wait_for(waits, timeout_s=PATIENCE_S + 60)["exit_code"] == 9


def test_hooks_end_with_the_agent_and_run_again(new_world):
    world = new_world()
    world.scheduler.start()
    notes, gate = world.folder / "notes", world.folder / "gate"
    epilog = script(world, "epilog", f"echo began >> {notes}; while [ ! -e {gate} ]; do sleep 0.05; done; echo done >> {notes}")
    agent = world.add_agent("n1", arguments=["--epilog", epilog, "--hook-timeout-s", "600"]).start()
    api = world.api()
    job_id = api.submit("exit 0", gpu_count=1)
    assert api.wait_for(job_id)["state"] == "completed"
    wait_until("its epilog began", notes.exists)
    assert agent.stop() == 0  # It does not wait for its hooks.
    agent.start()
    wait_until("it began again", lambda: notes.read_text().count("began") == 2)
    agent.kill()
    agent.start()
    wait_until("and again", lambda: notes.read_text().count("began") == 3)
    gate.touch()
    wait_until("all GPUs are free", lambda: {state for state, _ in states(api).values()} == {"free"})
    assert notes.read_text().count("done") == 1


def test_an_agent_stays_with_its_cluster(new_world):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1)
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    api = world.api()
    job_id = api.submit(gated(world, "gate", "exit 5"), gpu_count=2)
    pid = running_pid(api, job_id)
    # The scheduler comes back with nothing of what it knew.
    world.scheduler.kill()
    shutil.rmtree(world.scheduler.data_dir)
    world.scheduler.start()
    wait_until("the agent is refused", lambda: "wrong_cluster" in agent.log_text())
    assert pid in processes()
    # An operator says that this is its scheduler now: what runs goes on, on GPUs that nobody else gets.
    agent.kill()
    identity = agent.data_dir / "identity"
    identity.write_text("".join(line for line in identity.read_text().splitlines(True) if not line.startswith("cluster")))
    agent.start()
    api = world.api()
    left = wait_until("the GPUs are out of the pool", lambda: [
        gpu for gpu in node_of(api)["devices"] if gpu["state"] == "quarantined"] if len([
            gpu for gpu in node_of(api)["devices"] if gpu["state"] == "quarantined"]) == 2 else None)
    assert pid in processes()
    assert "gpu-cli device release stops that job" in left[0]["detail"]
    assert api.wait_for(api.submit("exit 0", gpu_count=2))["state"] == "completed"
    index = [gpu["uuid"] for gpu in node_of(api)["devices"]].index(left[0]["uuid"])
    world.cli("device", "release", "n1", str(index), expected=0)
    wait_until("the job is ended", lambda: pid not in processes())
