"""Jobs over several nodes, through every door: where their members are, what each printed, and what is refused."""

import pytest
from harness import wait_until

pytestmark = pytest.mark.shared_world
NODES = ("n1", "n2", "n3")


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world):
        world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
        world.scheduler.start()
        for name in NODES:
            world.add_agent(name).start()
            world.api().wait_node(name)
        return world

    return start


@pytest.fixture(name="cluster")
def cluster_fixture(world):
    return world


def hold(cluster, name, before="true"):
    return f"{before}; while [ ! -e {cluster.folder}/{name} ]; do sleep 0.05; done"


def test_a_gang_is_shown_with_its_members_and_each_ones_output_is_read(cluster):
    api = cluster.api()
    job = api.submit(hold(cluster, "gate", "echo from $RANK of $WORLD_SIZE"), nodes=2, gpus_per_node=3)
    shown = api.wait_for(job, "running")
    members = shown["members"]
    assert [len(one["allocated_gpus"]) for one in members] == [3, 3]
    assert len({one["node_name"] for one in members}) == 2
    assert shown["parts"] == [
        {"members": 2, "gpu_count": 3, "gpu_memory_mb": 0, "gpu_model": "", "cpu_cores": 1.0, "memory_mb": 0}
    ]
    assert len(shown["allocated_gpus"]) == 6
    record = cluster.cli("get", job, expected=0).stdout
    assert "2 x 3 GPUs" in record and f"{members[1]['node_name']}: " in record
    native = api.call("GET", f"/v1/jobs/{job}")[1]
    assert native["resources"]["nodes"] == 2 and len(native["members"]) == 2
    (cluster.folder / "gate").touch()
    assert api.wait_for(job)["state"] == "completed"
    for rank in (0, 1):
        said = cluster.cli("logs", job, "--member", str(rank), expected=0).stdout
        assert said == f"from {rank} of 2\n"
    assert "no such member" in cluster.cli("logs", job, "--member", "2").stderr
    assert [one["node_name"] for one in api.job(job)["members"]] == [one["node_name"] for one in members]


def test_gang_scheduling_divides_what_no_node_has(cluster):
    api = cluster.api()
    job = api.submit(hold(cluster, "gate"), gpu_count=7, gang_scheduling=True)
    members = api.wait_for(job, "running")["members"]
    assert sorted(len(one["allocated_gpus"]) for one in members) == [3, 4]
    whole = api.submit("true", gpu_count=4, gang_scheduling=True)
    assert api.wait_for(whole)["state"] == "completed"
    assert "members" not in api.job(whole)
    (cluster.folder / "gate").touch()
    assert api.wait_for(job)["state"] == "completed"


@pytest.mark.own_world
def test_the_command_line_asks_for_nodes_in_one_rack(cluster):
    api = cluster.api()
    words = ("--nodes", "2", "--gpus-per-node", "4", "--domain", "rack", "--domain-required")
    refused = cluster.cli("submit", *words, "--require-feasible", "--", "true")
    assert refused.returncode != 0 and "no node has the label" in refused.stderr
    job = cluster.cli("submit", *words, "--", "true", expected=0).stdout.strip()
    wait_until("it says what it waits for", lambda: api.explain(job)["reason"] == "no_domain")
    for name, rack in zip(NODES, ("a", "b", "b")):
        cluster.cli("node", "label", name, f"topology.rack={rack}", expected=0)
    done = api.wait_for(job)
    assert done["state"] == "completed"
    assert {one["node_name"] for one in done["members"]} == {"n2", "n3"}


def test_an_elastic_gang_takes_what_is_there(cluster):
    api = cluster.api()
    other = api.submit(hold(cluster, "gate"), gpu_count=4)
    api.wait_for(other, "running")
    job = cluster.cli("submit", "--nodes", "1-3", "--gpus-per-node", "4", "--", "sh", "-c", "echo $WORLD_SIZE", expected=0)
    job = job.stdout.strip()
    assert api.wait_for(job)["state"] == "completed"
    assert api.output(job) == "2\n"
    (cluster.folder / "gate").touch()


def test_what_makes_no_sense_is_refused_with_its_sentence(cluster):
    api = cluster.api()
    for fields, field in (
        ({"nodes": 2, "gpu_count": 3}, "gpu_count"),
        ({"gpus_per_node": 2}, "gpus_per_node"),
        ({"nodes": 3, "nodes_max": 2}, "nodes_max"),
        ({"nodes": 2, "domain_required": True}, "domain_required"),
        ({"on_node_loss": "continue"}, "on_node_loss"),
    ):
        status, answer = api.call("POST", "/api/v1/jobs", {"script": "true", **fields})[:2]
        assert status == 422 and answer["field"] == field, answer
    status, answer = api.call("POST", "/api/v1/jobs", {"script": "true", "nodes": 2, "domain": "room"})[:2]
    assert status == 400 and answer["field"] == "domain", answer
    big = {"script": "true", "nodes": 4, "gpus_per_node": 4, "require_feasible": True}
    status, answer = api.call("POST", "/api/v1/jobs", big)[:2]
    assert status == 422 and answer["code"] == "infeasible", answer
    wide = cluster.cli("submit", "--nodes", "8-2", "--", "true")
    assert wide.returncode != 0 and "--nodes" in wide.stderr
