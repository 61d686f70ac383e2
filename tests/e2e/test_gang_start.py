"""Members of a gang: prepared on every node first, begun together, ended together, whoever is restarted or dies."""

import os
import signal

import pytest
from harness import wait_until

NODES = ("n1", "n2")


@pytest.fixture(name="cluster")
def cluster_fixture(new_world):
    world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=1, AGENT_HEARTBEAT_INTERVAL_MS=300)
    world.scheduler.start()
    return world


def start_nodes(cluster, **arguments):
    """Both nodes, each with arguments of its own; the agents by name."""
    for name in NODES:
        cluster.add_agent(name, arguments=arguments.get(name, [])).start()
        cluster.api().wait_node(name)
    return {agent.node: agent for agent in cluster.agents()}


def script(cluster, name, text):
    path = cluster.folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def gate_of(agent, job, member):
    """What the member's shim says of itself while it waits; empty when there is nothing (any more)."""
    path = agent.data_dir / "attempts" / f"{job.removeprefix('job-')}-1-{member}" / "gate"
    return path.read_text().strip() if path.exists() else ""


def member_logs(cluster, job):
    return [cluster.cli("logs", job, "--member", str(member), expected=0).stdout for member in range(2)]


def test_launchers_find_ranks_hosts_and_a_place_to_meet(cluster):
    start_nodes(cluster, n1=["--address", "127.0.0.1"], n2=["--address", "127.0.0.2"])
    show = (
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $NODE_RANK $GPUS_PER_NODE $MASTER_ADDR $GPU_SCHEDULER_NODES;"
        "echo $MASTER_PORT; cat $GPU_SCHEDULER_HOSTFILE"
    )
    api = cluster.api()
    job = api.submit(show, nodes=2, gpus_per_node=2)
    assert api.wait_for(job)["state"] == "completed"
    logs = [text.splitlines() for text in member_logs(cluster, job)]
    nodes = logs[0][0].split()[-1]
    first = "127.0.0.1" if nodes.startswith("n1") else "127.0.0.2"
    assert logs[0][0] == f"0 2 0 0 2 {first} {nodes}"
    assert logs[1][0] == f"1 2 0 1 2 {first} {nodes}"
    assert logs[0][1] == logs[1][1] and 20000 <= int(logs[0][1]) < 30000
    assert sorted(logs[0][2:]) == ["127.0.0.1 slots=2", "127.0.0.2 slots=2"] and logs[0][2:] == logs[1][2:]


def test_a_real_rendezvous_meets_at_the_place_that_they_are_told(cluster):
    """The members talk to each other over the network, as launchers do."""
    start_nodes(cluster, n1=["--address", "127.0.0.1"], n2=["--address", "127.0.0.1"])
    meet = """
import os, socket, time
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        peer, _ = server.accept()
        print("met rank", peer.recv(10).decode())
else:
    for _ in range(600):
        try:
            with socket.create_connection(place) as to:
                to.sendall(os.environ["RANK"].encode())
            break
        except OSError:
            time.sleep(0.05)
"""
    (cluster.folder / "meet.py").write_text(meet)
    api = cluster.api()
    job = api.submit(f"python3 {cluster.folder}/meet.py", nodes=2, gpus_per_node=1)
    assert api.wait_for(job)["state"] == "completed"
    assert member_logs(cluster, job)[0] == "met rank 1\n"


def test_no_command_runs_before_every_member_is_prepared(cluster):
    slow = script(cluster, "slow", f"while [ ! -e {cluster.folder}/ready ]; do sleep 0.05; done")
    agents = start_nodes(cluster, n2=["--prolog", slow])
    api = cluster.api()
    job = api.submit(f"touch {cluster.folder}/ran-$RANK", nodes=2, gpus_per_node=4)
    waits = {}

    def prepared():
        waits.update({(name, member): gate_of(agents[name], job, member) for name in NODES for member in (0, 1)})
        return [key for key, words in waits.items() if words == "prepared"]

    wait_until("one member is prepared", prepared)
    assert [key[0] for key in prepared()] == ["n1"]
    assert api.job(job)["state"] == "scheduled" and not list(cluster.folder.glob("ran-*"))

    # Whoever is restarted meanwhile kills nothing and begins nothing.
    agents["n1"].restart()
    cluster.scheduler.restart()
    for name in NODES:
        api.wait_node(name)
    assert not list(cluster.folder.glob("ran-*")) and [key[0] for key in prepared()] == ["n1"]

    (cluster.folder / "ready").touch()
    done = api.wait_for(job)
    assert done["state"] == "completed" and done["attempts"] == 1
    assert sorted(path.name for path in cluster.folder.glob("ran-*")) == ["ran-0", "ran-1"]


def test_a_node_that_cannot_prepare_frees_all_and_nothing_ran(cluster):
    bad = script(cluster, "bad", "echo 'scratch is not mounted' >&2; exit 7")
    start_nodes(cluster, n2=["--prolog", bad])
    cluster.add_agent("n3").start()
    api = cluster.api()
    api.wait_node("n3")
    job = api.submit(f"touch {cluster.folder}/ran-$GPU_SCHEDULER_NODES", nodes=3, gpus_per_node=4)
    wait_until("it was tried", lambda: "scratch is not mounted" in str(api.call("GET", "/v1/nodes")[1]))
    wait_until("all GPUs are free", lambda: all(api.gpu(name, i)["state"] == "free" for name in ("n1", "n3") for i in range(4)))
    assert not list(cluster.folder.glob("ran-*"))
    assert api.cancel(job)
    two = api.submit(f"touch {cluster.folder}/ran-$GPU_SCHEDULER_NODES", nodes=2, gpus_per_node=4)
    assert api.wait_for(two)["state"] == "completed"
    assert [path.name for path in cluster.folder.glob("ran-*")] in (["ran-n1,n3"], ["ran-n3,n1"])


def test_a_member_that_fails_ends_its_gang(cluster):
    start_nodes(cluster)
    api = cluster.api()
    command = "if [ $RANK = 1 ]; then sleep 0.3; exit 9; fi; trap 'echo told to end; exit 0' TERM; while :; do sleep 0.05; done"
    job = api.submit(command, nodes=2, gpus_per_node=1)
    done = api.wait_for(job)
    assert (done["state"], done["exit_code"]) == ("failed", 9)
    assert member_logs(cluster, job)[0] == "told to end\n"
    wait_until("all GPUs are free", lambda: all(gpu["state"] == "free" for node in NODES for gpu in api.node(node)["gpus"]))


def test_members_that_are_done_leave_the_others_at_work(cluster):
    start_nodes(cluster)
    api = cluster.api()
    gate = cluster.folder / "gate"
    job = api.submit(f"if [ $RANK = 0 ]; then exit 0; fi; while [ ! -e {gate} ]; do sleep 0.05; done", nodes=2, gpus_per_node=1)
    api.wait_for(job, "running")
    wait_until("one is done", lambda: sum(gpu["state"] == "held" for node in NODES for gpu in api.node(node)["gpus"]) == 1)
    assert api.job(job)["state"] == "running"
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"


def test_a_gang_whose_member_is_lost_begins_again_as_a_whole(cluster):
    agents = start_nodes(cluster)
    api = cluster.api()
    gate = cluster.folder / "gate"
    count = f"echo x >> {cluster.folder}/begun-$RANK; while [ ! -e {gate} ]; do sleep 0.05; done"
    job = api.submit(count, nodes=2, gpus_per_node=1)
    api.wait_for(job, "running")
    begun = [cluster.folder / f"begun-{rank}" for rank in (0, 1)]
    wait_until("both began", lambda: all(file.read_text() == "x\n" for file in begun))
    os.kill(agents["n2"].shim_of(job), signal.SIGKILL)
    wait_until("the second attempt runs", lambda: api.job(job)["state"] == "running" and api.job(job)["attempts"] == 2)
    wait_until("both began again", lambda: all(file.read_text() == "x\nx\n" for file in begun))
    gate.touch()
    assert api.wait_for(job)["state"] == "completed"


def test_a_gang_that_asked_for_it_goes_on_without_a_lost_member(cluster):
    agents = start_nodes(cluster)
    api = cluster.api()
    gate = cluster.folder / "gate"
    count = f"echo x >> {cluster.folder}/begun-$RANK; while [ ! -e {gate} ]; do sleep 0.05; done; echo done $RANK"
    words = ("--nodes", "1-2", "--gpus-per-node", "4", "--on-node-loss", "continue", "--retries", "0")
    job = cluster.cli("submit", *words, "--", "sh", "-c", count, expected=0).stdout.split()[-1]
    api.wait_for(job, "running")
    members = api.job(job)["members"]
    assert len(members) == 2
    wait_until("both began", lambda: all((cluster.folder / f"begun-{rank}").read_text() == "x\n" for rank in (0, 1)))
    os.kill(agents[members[1]["node_name"]].shim_of(job), signal.SIGKILL)
    wait_until("it is told", lambda: api.job(job)["members"][1]["state"] == "ended")
    assert api.job(job)["state"] == "running" and api.job(job)["attempts"] == 1
    assert "continues on the remaining nodes" in cluster.cli("get", job, expected=0).stdout
    gate.touch()
    ended = api.wait_for(job)
    assert ended["state"] == "completed" and ended["attempts"] == 1
    assert member_logs(cluster, job)[0].splitlines() == ["done 0"]
    assert (cluster.folder / "begun-1").read_text() == "x\n"


def test_a_cancelled_gang_that_waits_never_begins(cluster):
    slow = script(cluster, "slow", "sleep 600")
    agents = start_nodes(cluster, n2=["--prolog", slow, "--hook-timeout-s", "2"])
    api = cluster.api()
    job = api.submit(f"touch {cluster.folder}/ran", nodes=2, gpus_per_node=1)
    wait_until("one member is prepared", lambda: "prepared" in [gate_of(agents["n1"], job, member) for member in (0, 1)])
    api.cancel(job)
    assert api.wait_for(job)["state"] == "cancelled"
    assert not (cluster.folder / "ran").exists()
