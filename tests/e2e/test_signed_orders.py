"""A node with a certificate obeys the orders that its scheduler signed, as they were signed, and no others."""

import concurrent.futures

import pytest
from harness import wait_until
from security import NEEDS_ROOT
from test_grpc_tls import add_agent
from test_node_identity import IdentitySite
from test_node_life import node_of
from test_reload import events

METHOD = "/gpusched.v1.NodeProtocol/Connect"


class Between:
    """The end of the agent's TLS, with the scheduler's key, and another one to the scheduler, with the node's: it reads all
    that is said and changes what it wants."""

    def __init__(self, site, node):
        grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")
        own = (site.folder / "server.pem").read_bytes()
        shown = (site.world.folder / node / "node.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials(site.ca_file.read_bytes(), shown, shown)
        self.channel = grpc.secure_channel(f"127.0.0.1:{site.port('grpc')}", credentials)
        self.upstream = self.channel.stream_stream(METHOD)
        self.edit = lambda message: [message]
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        handler = grpc.stream_stream_rpc_method_handler(self.relay)
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("gpusched.v1.NodeProtocol",
                                                                                   {"Connect": handler})])
        self.port = self.server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(own, own)]))
        self.server.start()

    def relay(self, requests, context):
        answers = self.upstream(requests)
        context.add_callback(answers.cancel)
        for message in answers:
            yield from self.edit(message)

    def close(self):
        self.server.stop(0)
        self.channel.close()


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = IdentitySite(new_world)
    site.scheduler.start()
    return site


@pytest.fixture(name="between")
def between_fixture(site):
    """A node n1 that has joined and reaches its scheduler by somebody in between."""
    done = site.join("n1", site.token("n1"))
    assert done.returncode == 0, done.stdout + done.stderr
    between = Between(site, "n1")
    agent = add_agent(site, "n1", "--ca", site.fingerprint(), port=between.port)
    agent.start()
    yield between, agent
    agent.kill()
    between.close()


def changed(before, after):
    """Of the same length, so that the message stays a message."""
    assert len(before) == len(after)
    return lambda message: [message.replace(before, after)]


def number(message, at):
    value, shift = 0, 0
    while True:
        value |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return value, at


def without_signature(message):
    """The order in a SignedOrder (110), as a scheduler would send it that signs none."""
    key, at = number(message, 0)
    if key != 110 << 3 | 2:
        return [message]
    _, at = number(message, at)
    while True:
        key, at = number(message, at)
        size, at = number(message, at)
        if key == 3 << 3 | 2:
            return [message[at:at + size]]
        at += size if key & 7 == 2 else 0


def refused(agent):
    return [(event["details"]["order"], event["details"]["why"]) for event in events(agent, "order_not_obeyed")]


def runs_elsewhere(site, job):
    """The job was refused by n1, which is held, and runs on another node with a certificate."""
    wait_until("n1 is held", lambda: node_of(site.world.api())["state"] == "validating")
    assert "does not obey" in node_of(site.world.api())["state_reason"]
    site.joined("n2").start()
    return site.world.api().wait_for(job, "completed")


def test_an_order_whose_command_was_changed_on_the_way_runs_nowhere(site, between):
    between, agent = between
    api = site.world.api()
    first = api.submit("echo it went through")  # Somebody who changes nothing changes nothing.
    assert api.wait_for(first, "completed")["exit_code"] == 0
    assert refused(agent) == []
    between.edit = changed(b"echo good", b"echo evil")
    job = api.submit("echo good")
    wait_until("the order is refused", lambda: refused(agent))
    assert refused(agent)[0][0] == "start" and "not signed" in refused(agent)[0][1], refused(agent)
    done = runs_elsewhere(site, job)
    assert done["exit_code"] == 0 and api.output(job) == "good\n"


@NEEDS_ROOT
def test_an_order_whose_user_was_changed_on_the_way_is_refused(site, between):
    between, agent = between
    between.edit = changed(b"nobody", b"daemon")
    job = site.world.api().submit("id -un", user="nobody")
    wait_until("the order is refused", lambda: refused(agent))
    assert runs_elsewhere(site, job)["exit_code"] == 0
    assert site.world.api().output(job) == "nobody\n"


def test_an_order_without_its_signature_is_refused(site, between):
    between, agent = between
    between.edit = without_signature
    job = site.world.api().submit("echo good")
    wait_until("the order is refused", lambda: refused(agent))
    assert refused(agent)[0] == ("start", "it is not signed, and this node, which has a certificate, obeys signed orders alone")
    between.edit = lambda message: [message]
    assert runs_elsewhere(site, job)["exit_code"] == 0


def test_an_order_that_comes_twice_is_carried_out_once(site, between):
    between, agent = between
    between.edit = lambda message: [message] * 2 if b"echo good" in message else [message]
    job = site.world.api().submit("echo good")
    assert site.world.api().wait_for(job, "completed")["attempts"] == 1
    assert site.world.api().output(job) == "good\n"
    assert refused(agent) == [("start", "it was sent before on this connection")]


def test_the_members_of_a_gang_begin_by_signed_orders(site):
    """What all nodes of a gang are sent is packed once, and each node's signature is over that, too."""
    agents = [site.joined(node) for node in ("n1", "n2")]
    for agent in agents:
        agent.start()
    job = site.world.api().submit("echo good", nodes=2, gpus_per_node=3)
    assert site.world.api().wait_for(job, "completed")["exit_code"] == 0
    assert [refused(agent) for agent in agents] == [[], []]


def test_a_session_whose_command_was_changed_on_the_way_is_refused(site, between):
    between, agent = between
    job = site.world.api().submit("sleep 1000")
    site.world.api().wait_for(job, "running")
    assert site.world.cli("exec", job, "--", "echo", "good", expected=0).stdout == "good\n"
    between.edit = changed(b"good", b"evil")
    done = site.world.cli("exec", job, "--", "echo", "good", expected=None)
    assert done.returncode != 0 and "does not obey" in done.stderr, done.stdout + done.stderr
    wait_until("its log says so", lambda: refused(agent))
    assert refused(agent)[0][0] == "open_session"
    assert site.world.api().job(job)["state"] == "running"
    between.edit = lambda message: [message]
    site.world.api().cancel(job)
    site.world.api().wait_for(job, "cancelled")


def test_a_scheduler_with_the_certificate_and_without_the_key_starts_nothing(site):
    """As whoever stole the certificate is, and as a scheduler that lost its key is until the node joins anew."""
    agent = site.joined("n1")
    agent.start()
    api = site.world.api()
    job = api.submit("sleep 1000")
    api.wait_for(job, "running")
    key = site.folder / "orders.key"
    assert key.stat().st_mode & 0o777 == 0o600
    good = key.read_text()
    site.scheduler.restart()
    wait_until("the agent is back", lambda: len(events(agent, "registered")) == 2)
    assert key.read_text() == good and refused(agent) == []

    site.scheduler.stop()
    key.unlink()
    site.scheduler.start()
    wait_until("n1 is held", lambda: node_of(api)["state"] == "validating" and "orders.key" in node_of(api)["state_reason"])
    assert {order for order, _ in refused(agent)} == {"registered"}
    waiting = api.submit("echo good", gpu_count=1)
    assert api.job(job)["state"] == "running"
    assert "does not obey" in site.world.cli("node", "show", "n1", expected=0).stdout
    assert api.job(waiting)["state"] == "pending"

    agent.kill()
    assert site.join("n1", site.token("n1")).returncode == 0
    agent.start()
    assert api.wait_for(waiting, "completed")["exit_code"] == 0
    assert api.job(job)["state"] == "running" and api.job(job)["attempts"] == 1
    api.cancel(job)
    api.wait_for(job, "cancelled")


def test_a_node_whose_file_has_no_key_for_orders_does_not_start(site):
    agent = site.joined("n1")
    file = site.world.folder / "n1" / "node.pem"
    file.write_text(file.read_text().split("-----BEGIN PUBLIC KEY")[0])
    agent.launch()
    wait_until("the agent has ended", lambda: not agent.alive())
    assert "does not hold the key that the scheduler signs its orders with" in agent.log_text()
