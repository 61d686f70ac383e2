"""One machine is one node: copied folders, other names and second agents never disturb the node that is there."""

import shutil

from harness import wait_until
from test_restart import gated, open_gate, running_pid


def start_gated(world, name, gpus=4):
    api = world.api()
    job_id = api.submit(gated(world, name, "exit 5"), gpu_count=gpus)
    running_pid(api, job_id)
    return job_id


def finish(world, name, job_id):
    open_gate(world, name)
    job = world.api().wait_for(job_id)
    assert (job["exit_code"], job["attempts"]) == (5, 1)


def test_a_copy_of_the_folder_does_not_start_and_the_original_goes_on(world):
    agent = world.agents()[0]
    job_id = start_gated(world, "gate")
    agent.kill()  # Its own lock is not to be what keeps the copy from starting.
    copy = world.folder / "copy"
    shutil.copytree(agent.data_dir, copy, symlinks=True, ignore=shutil.ignore_patterns("gate*"))
    second = world.add_agent("n1", name="second", data_dir=copy)
    second.launch()
    assert second.ended() == 1
    assert "is a copy of node 'n1''s data folder" in second.log_text()
    assert str(copy / "identity") in second.log_text()
    agent.start()
    finish(world, "gate", job_id)


def test_a_folder_keeps_its_node_name(world):
    agent = world.agents()[0]
    job_id = start_gated(world, "gate")
    agent.kill()
    agent.node = "n1.example"
    agent.launch()
    assert agent.ended() == 1
    assert "start with --node n1;" in agent.log_text()
    agent.node = "n1"
    agent.start()
    finish(world, "gate", job_id)


def test_the_scheduler_refuses_a_second_name_for_a_folder_until_the_first_is_dead(world):
    api, agent = world.api(), world.agents()[0]
    job_id = start_gated(world, "gate")
    agent.kill()
    (agent.data_dir / "identity").unlink()
    agent.node = "n1.example"
    agent.launch()
    wait_until("it is refused", lambda: '"registration_refused"' in agent.log_since_start())
    assert "belongs to node 'n1'" in agent.log_since_start()
    assert '"registered"' not in agent.log_since_start()
    assert [node["name"] for node in api.get("/nodes")["nodes"]] == ["n1"]
    assert api.job(job_id)["state"] == "running"
    agent.kill()
    (agent.data_dir / "identity").unlink()
    agent.node = "n1"
    agent.start()
    finish(world, "gate", job_id)


def test_after_confirm_dead_a_node_that_comes_back_says_when_its_gpus_are_empty(new_world):
    # Nobody asks a second time before this limit is over.
    world = new_world(SCHEDULER_NODE_LEASE_MS=1000, SCHEDULER_DRAIN_LIMIT_SECONDS=3600)
    world.scheduler.start()
    agent = world.add_agent("n1").start()
    api = world.api()
    job_id = start_gated(world, "never")
    agent.kill()
    api.wait_node("n1", "unreachable")
    world.cli("node", "confirm-dead", "n1", expected=0)
    api.cancel(job_id)
    agent.start()
    wait_until("all GPUs are free", lambda: {gpu["state"] for gpu in api.wait_node("n1")["gpus"]} == {"free"})
