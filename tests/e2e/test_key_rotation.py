"""The key that orders are signed with changes while nodes know both, and no job ends."""

import os
import subprocess

import pytest
from harness import PATIENCE_S, program, wait_until
from test_node_identity import IdentitySite
from test_node_life import node_of
from test_reload import events


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = IdentitySite(new_world)
    site.scheduler.start()
    return site


def order_key(site, word, expected=0):
    done = subprocess.run([program("gpu-scheduler"), "order-key", word, "--data-dir", str(site.scheduler.data_dir)],
                          capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def keys_of(site, node):
    return (site.world.folder / node / "node.pem").read_text().count("BEGIN PUBLIC KEY")


def restart(site, *agents):
    seen = [len(events(agent, "registered")) for agent in agents]
    site.scheduler.restart()
    for agent, before in zip(agents, seen):
        wait_until("the agent is back", lambda one=agent, was=before: len(events(one, "registered")) > was)


def test_the_key_for_orders_changes_without_an_end_of_any_job(site):
    agent = site.joined("n1")
    agent.start()
    api = site.world.api()
    job = api.submit("sleep 1000")
    api.wait_for(job, "running")
    old = (site.folder / "orders.key").read_text()

    assert "no change is under way" in order_key(site, "finish", 1)
    assert "restart the scheduler" in order_key(site, "rotate")
    assert (site.folder / "orders.next.key").stat().st_mode & 0o777 == 0o600
    assert "under way" in order_key(site, "rotate", 1)
    # It goes by what the scheduler noted, not by the times of files.
    (site.scheduler.data_dir / "ports.json").touch()
    assert "no scheduler was started since" in order_key(site, "finish", 1)
    restart(site, agent)
    wait_until("the node knows both", lambda: keys_of(site, "n1") == 2)
    assert (site.folder / "orders.key").read_text() == old
    assert api.wait_for(api.submit("echo good"), "completed")["exit_code"] == 0
    # A new node joins meanwhile, and one that is restarted knows both.
    second = site.joined("n2")
    second.start()
    wait_until("the new node knows both", lambda: keys_of(site, "n2") == 2)
    agent.restart()

    # Whether it runs or not.
    os.utime(site.folder / "orders.next.key", (2_000_000_000, 2_000_000_000))
    site.scheduler.stop()
    assert "the old key is gone" in order_key(site, "finish")
    assert not (site.folder / "orders.told").exists()
    assert (site.folder / "orders.key").read_text() != old and not (site.folder / "orders.next.key").exists()
    restart(site, agent, second)
    for node in ("n1", "n2"):
        wait_until("the node knows the new one alone", lambda one=node: keys_of(site, one) == 1)
    done = api.submit("echo good", nodes=2, gpus_per_node=1)
    assert api.wait_for(done, "completed")["exit_code"] == 0
    assert (api.job(job)["state"], api.job(job)["attempts"]) == ("running", 1)
    assert [events(one, "order_not_obeyed") for one in (agent, second)] == [[], []]
    api.cancel(job)
    api.wait_for(job, "cancelled")

    # Whoever has the old key now is obeyed by nobody.
    site.scheduler.stop()
    (site.folder / "orders.key").write_text(old)
    site.scheduler.start()
    for node in ("n1", "n2"):
        wait_until("it is held", lambda one=node: node_of(api, one)["state"] == "validating")
    assert keys_of(site, "n1") == 1
