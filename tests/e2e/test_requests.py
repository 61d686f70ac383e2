"""What a job may ask of its node and of its GPUs' places: labels, models, whole nodes, exact GPUs, links."""

import pytest
from harness import wait_until


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    return world


@pytest.fixture(scope="module", name="one_node")
def one_node_fixture(new_module_world):
    """For tests that leave it as it was."""
    world = new_module_world(AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    world.add_agent("n1", arguments=["--label", "zone=eu"]).start()
    return world


def test_labels_choose_the_node_and_a_new_one_lets_a_job_start(world):
    world.add_agent("eu", arguments=["--label", "zone=eu"]).start()
    world.add_agent("us", arguments=["--label", "zone=us", "--label", "spot=yes"]).start()
    api = world.api()
    placed = {}
    for name, fields in (("eu", {"node_labels": ["zone=eu"]}), ("us", {"node_labels": ["zone", "spot"]}),
                         ("not spot", {"without_labels": ["spot"]})):
        placed[name] = api.wait_for(api.submit(["true"], **fields))["node_name"]
    assert placed == {"eu": "eu", "us": "us", "not spot": "eu"}
    waits = api.submit(["true"], node_labels=["disk=fast"])
    wait_until("no node is labeled so", lambda: api.explain(waits)["reason"] == "no_labels")
    said = api.explain(waits)
    assert "with disk=fast" in said["message"] and "is the closest match: it has no label disk=fast" in said["message"]
    assert "NodeLabeled" in said["lifted_by"]
    world.cli("node", "label", "us", "disk=fast", expected=0)
    assert api.wait_for(waits)["node_name"] == "us"


def test_a_job_has_its_node_for_itself(world):
    for name in ("n1", "n2"):
        world.add_agent(name).start()
    api = world.api()
    gate = world.folder / "gate"
    hold = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    alone = api.wait_for(api.submit(hold, gpu_count=1, exclusive=True), "running")
    assert api.job(alone["job_id"])["exclusive"] is True
    others = [api.wait_for(api.submit(hold, gpu_count=1), "running") for _ in range(4)]
    assert {job["node_name"] for job in others} == {"n1", "n2"} - {alone["node_name"]}
    fifth = api.submit(["true"], gpu_count=1)
    second = api.submit(["true"], exclusive=True)
    wait_until("the rest waits", lambda: api.explain(second)["reason"] == "nodes_taken")
    assert "none of the 2 matching nodes is empty" in api.explain(second)["message"]
    assert api.job(fifth)["state"] == "pending"
    gate.touch()
    for job in (fifth, second):
        assert api.wait_for(job)["state"] == "completed"


def test_exactly_the_named_gpus_are_given(world):
    for name in ("n1", "n2"):
        world.add_agent(name).start()
    api = world.api()
    uuid = api.gpu("n2", 3)["uuid"]
    job = api.wait_for(api.submit("echo $CUDA_VISIBLE_DEVICES", gpu_count=1, gpu_ids=[uuid]))
    assert job["allocated_gpus"] == ["n2-gpu-3"] and api.output(job["job_id"]).strip() == uuid
    job = api.wait_for(api.submit(["true"], gpu_count=2, gpu_ids=["1", "3"]))
    assert [gpu.rpartition("-")[2] for gpu in job["allocated_gpus"]] == ["1", "3"]
    assert job["gpu_ids"] == ["1", "3"]
    waits = api.submit(["true"], gpu_count=1, gpu_ids=["9"])
    wait_until("no node has it", lambda: api.explain(waits)["reason"] == "no_such_layout")


def test_the_first_of_several_models_is_liked_best(world):
    world.add_agent("n1", sim_gpus="2xA100-SXM4-40GB").start()
    world.add_agent("n2", sim_gpus="1xH100-SXM5-80GB").start()
    api = world.api()
    gate = world.folder / "gate"
    hold = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    first = api.wait_for(api.submit(hold, gpu_count=1, gpu_model="H100,A100"), "running")
    second = api.wait_for(api.submit(hold, gpu_count=1, gpu_model="H100,A100"), "running")
    assert (first["node_name"], second["node_name"]) == ("n2", "n1")
    assert first["gpu_model"] == "H100,A100"
    gate.touch()


def test_links_are_shown_and_gpus_are_chosen_by_them(world):
    agent = world.add_agent("n1", sim_gpus="8xA100-SXM4-80GB", arguments=["--sim-links", "4,4"]).start()
    api = world.api()
    shown = world.cli("node", "show", "n1", expected=0).stdout
    assert "NVLink 300" in shown and "SYS 10" in shown and "simulated" in shown
    status, node, _ = api.call("GET", "/v1/nodes/n1")
    assert status == 200 and len(node["links"]) == 28
    assert [gpu["island"] for gpu in node["devices"]] == [0] * 4 + [1] * 4
    assert [gpu["numa_node"] for gpu in node["devices"]] == [0] * 4 + [1] * 4
    gate = world.folder / "gate"
    hold = f"while [ ! -e {gate} ]; do sleep 0.05; done"

    def gpus_of(count, **fields):
        job = api.wait_for(api.submit(hold, gpu_count=count, **fields), "running")
        return [int(gpu.rpartition("-")[2]) for gpu in job["allocated_gpus"]]

    assert gpus_of(2) == [0, 1]
    assert gpus_of(4, gpu_bandwidth_gbs=200) == [4, 5, 6, 7]
    waits = api.submit(["true"], gpu_count=8, gpu_bandwidth_gbs=200)
    wait_until("not all are linked so", lambda: api.explain(waits)["reason"] == "no_such_layout")
    assert "at least 200 GB/s between any two" in api.explain(waits)["message"]
    agent.restart()  # What it says again is the same.
    assert gpus_of(2) == [2, 3]
    gate.touch()


def test_nodes_are_chosen_and_left_out_by_their_names(world):
    for name in ("n1", "n2", "n3"):
        world.add_agent(name).start()
    for words, node in ((("--nodelist", "n2"), "n2"), (("-x", "n[1-2]"), "n3"), (("--exclude", "n2,n3"), "n1")):
        job = world.cli("submit", *words, "--", "true", expected=0).stdout.strip()
        world.cli("wait", job, expected=0)
        assert world.api().job(job)["node_name"] == node, words
    refused = world.cli("submit", "-w", "n1,n2", "--", "true", expected=2)
    assert "one node can be named" in refused.stderr
    waits = world.cli("submit", "-w", "n9", "--", "true", expected=0).stdout.strip()
    assert "node=n9" in world.api().explain(waits)["message"]


def test_spread_and_contiguous_lie_as_asked(world):
    world.add_agent("n1", sim_gpus="8xA100-SXM4-80GB", arguments=["--sim-links", "4,4"]).start()
    api = world.api()
    for layout, expected in (("spread", ["0", "1", "4", "5"]), ("contiguous", ["0", "1", "2", "3"])):
        job = api.wait_for(api.submit(["true"], gpu_count=4, gpu_layout=layout))
        assert [gpu.rpartition("-")[2] for gpu in job["allocated_gpus"]] == expected
        assert job["gpu_layout"] == layout


@pytest.mark.parametrize("fields, said", [
    ({"node_labels": ["zone=eu"], "without_labels": ["zone"]}, "both required and excluded"),
    ({"gpu_count": 2, "gpu_ids": ["0"]}, "give one id for each GPU"),
    ({"gpu_count": 1, "gpu_layout": "spread"}, "a layout needs two or more GPUs"),
    ({"gpu_count": 1, "gpu_bandwidth_gbs": 10}, "a minimum bandwidth needs two or more GPUs"),
    ({"gpu_milli": 500, "exclusive": True}, "an exclusive node"),
    ({"gpu_count": 2, "gpu_ids": ["0", "0"]}, "a GPU id is given twice"),
    ({"mig_profile": "1g.10gb", "gpu_count": 2}, "a MIG slice is a part of one GPU"),
    ({"mig_profile": "9g.90gb"}, "no GPU has a MIG profile"),
    ({"mig_profile": "1g.10gb", "gpu_model": "A30"}, "its profiles are 4g.24gb"),
])
def test_contradictions_are_refused_with_one_sentence(one_node, fields, said):
    status, body, _ = one_node.api().call("POST", "/api/v1/jobs", {"command": ["true"], **fields})
    assert status == 422, body
    assert said in str(body), body


def test_what_no_node_could_ever_meet_is_refused_on_request_naming_the_nearest(one_node):
    status, body, _ = one_node.api().call("POST", "/api/v1/jobs", {
        "command": ["true"], "gpu_count": 8, "node_labels": ["zone=us"], "require_feasible": True})
    assert status == 422 and "infeasible" in str(body)
    assert "node n1 is the closest match: it has no label zone=us, and it has 4 of the 8 GPUs" in str(body)


def test_the_command_line_and_script_lines_ask_for_it_and_show_it(one_node):
    script = one_node.folder / "job.sh"
    script.write_text("#!/bin/sh\n#GPU --gpus 2 --gpu-layout contiguous\n#GPU --node-label zone=eu --exclusive\ntrue\n")
    job = one_node.cli("submit", str(script), expected=0).stdout.strip().split()[-1]
    shown = one_node.cli("get", job, expected=0).stdout
    for word in ("contiguous", "zone=eu", "Exclusive"):
        assert word in shown, shown
    done = one_node.cli("submit", "--gpus", "1", "--node-label", "a=b", "--without-label", "a", "--", "true")
    assert done.returncode != 0 and "both required and excluded" in done.stderr
