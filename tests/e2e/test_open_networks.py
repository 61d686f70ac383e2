"""Callers without a credential from other machines: let in from networks that are named, and from nowhere else."""

import json
import re
import subprocess

import pytest
from cable import ApiInside, Cable, cannot, can_lay_cables, NEEDS_NAMESPACES
from harness import IS_ROOT, PATIENCE_S, program, wait_until

pytestmark = pytest.mark.skipif(not IS_ROOT, reason=NEEDS_NAMESPACES)


@pytest.fixture(name="cable")
def cable_fixture(session_folder):
    if not can_lay_cables():
        cannot(NEEDS_NAMESPACES)
    cable = Cable("o" + session_folder.name.rpartition("-")[2])
    try:
        cable.lay()
        yield cable
    finally:
        cable.take_away()


class Place:
    """A scheduler at one end of the cable, and callers at both."""

    def __init__(self, cable, world):
        self.cable, self.world = cable, world
        world.scheduler.prefix = cable.inside(0)
        world.scheduler.address = "0.0.0.0"
        self.start()
        world.scheduler.api = lambda token=None: self.at(0, token or self.token())

    def start(self):
        self.world.scheduler.start()

    def token(self):
        return (self.world.scheduler.data_dir / "token").read_text().strip()

    def at(self, side, token=None, kind="http"):
        """Calls from that end of the cable."""
        return ApiInside(self.cable.names[side], self.world.scheduler.ports[kind], self.cable.addresses[0], token)

    def add_agent(self, **options):
        address = f"{self.cable.addresses[0]}:{self.world.scheduler.ports['grpc']}"
        agent = self.world.add_agent("n1", scheduler=address, prefix=self.cable.inside(1), allow_root_jobs=False,
                                     arguments=["--token-file", str(self.world.scheduler.data_dir / "token"),
                                                "--default-user", "nobody"], **options)
        agent.launch()
        return agent.wait_registered()

    def ended_with(self, settings):
        """The words with which a scheduler with these settings does not start."""
        scheduler = self.world.add_scheduler({**self.world.scheduler.settings, **settings}, name="refused",
                                             prefix=self.cable.inside(0), address="0.0.0.0")
        scheduler.launch()
        assert scheduler.ended() != 0
        return scheduler.log_since_start()


@pytest.fixture(name="place")
def place_fixture(cable, new_world):
    return lambda **settings: Place(cable, new_world(**settings))


def refused(answer, status, *words):
    assert answer[0] == status, answer
    for word in words:
        assert word in answer[1]["error"], answer
    return answer[1]


FAR = "10.77.0.2/32"


def test_callers_from_a_named_network_are_anonymous_and_all_others_need_a_credential(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR)
    far, near = here.at(1), here.at(0)
    job = far.submit("true", name="mine")
    assert far.job(job)["state"] == "pending" and far.get("/jobs")["total"] == 1
    assert far.call("GET", "/v1/nodes")[0] == 200
    refused(far.call("POST", "/v1/nodes/n1/drain", {}), 403)
    refused(far.call("POST", "/api/v1/jobs", {"script": "true", "user": "root"}), 403)
    assert far.call("GET", "/api/v1/jobs", headers={"Authorization": "Bearer wrong"})[0] == 401
    # The address is the connection's: what a header says of another one changes nothing.
    for headers in ({}, {"X-Forwarded-For": "10.77.0.2"}, {"Forwarded": "for=10.77.0.2"}, {"X-Real-IP": "10.77.0.2"},
                    {"X-Forwarded-For": "10.77.0.2, 10.77.0.1", "Via": "1.1 proxy"}):
        refused(near.call("GET", "/api/v1/jobs", headers=headers), 401, "api.anonymous_networks", "10.77.0.1")
    for headers in ({"X-Forwarded-For": "8.8.8.8"}, {"Forwarded": "for=10.77.0.1"}):
        assert far.call("GET", "/api/v1/jobs", headers=headers)[0] == 200
    # A name that a page could have given the address is none of the scheduler's.
    refused(far.call("GET", "/api/v1/jobs", headers={"Host": "rebound.example:8080"}), 403, "api.host_names")
    host = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    assert far.call("GET", "/api/v1/jobs", headers={"Host": f"{host}:8080"})[0] == 200
    refused(far.call("GET", "/api/v1/jobs", headers={"Origin": "http://elsewhere.example"}), 403)
    said = here.world.scheduler.wait_event("callers_without_credential")
    assert "10.77.0.2/32" in json.dumps(said)


def test_health_is_one_word_for_strangers_and_counts_in_no_rate(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR, API_RATE_LIMIT_RPS=2, API_CALLER_RATE_LIMIT_RPS=2)
    for side in (0, 1):
        for path in ("/health", "/api/v1/health"):
            for _ in range(10):
                status, body, _ = here.at(side).call("GET", path)
                assert (status, body) == (200, {"status": "healthy"})
    assert [here.at(1).call("GET", "/api/v1/jobs")[0] for _ in range(2)] == [200, 200]
    wait_until("it counts", lambda: here.at(1).call("GET", "/api/v1/jobs")[0] == 429)
    assert here.at(1).call("GET", "/health")[0] == 200
    assert here.at(1).call("GET", "/health", headers={"Authorization": "Bearer wrong"})[0] in (401, 429)


def test_metrics_stay_closed_unless_they_are_opened(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR)
    for side in (0, 1):
        assert here.at(side, kind="metrics").call("GET", "/metrics")[0] == 401
        assert here.at(side, here.token(), "metrics").call("GET", "/metrics")[0] == 200
    here.world.scheduler.settings["METRICS_OPEN"] = "true"
    here.world.scheduler.kill()
    here.start()
    for side in (0, 1):
        status, text, _ = here.at(side, kind="metrics").call("GET", "/metrics")
        assert status == 200 and b"gpu_scheduler_queue_size" in text
    refused(here.at(0).call("GET", "/api/v1/jobs"), 401)
    assert here.world.scheduler.wait_event("metrics_without_credential")


def test_what_is_refused_names_the_setting_that_lets_it(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR)
    far = here.at(1)
    create = ("POST", "/api/v1/tenants", {"name": "lab", "priority_tier": "critical"})
    quota = ("PUT", "/api/v1/quota", {"online_percent": 0.5})
    refused(far.call(*create), 403, "create_tenant", "api.anonymous_may")
    refused(far.call(*quota), 403, "set_quota", "api.anonymous_may")
    refused(far.call("POST", "/api/v1/jobs", {"script": "true", "priority": 5000}), 403, "api.anonymous_priority_tier")
    open_one = here.at(0, here.token()).post("/tenants", {"name": "open", "anonymous": True}, 201)["id"]
    for method in ("PUT", "DELETE"):
        refused(far.call(method, f"/api/v1/tenants/{open_one}", {"max_gpus": 1}), 403, "create_tenant")
    here.world.scheduler.settings["API_ANONYMOUS_MAY"] = "create_tenant"
    here.world.scheduler.kill()
    here.start()
    refused(far.call(*create), 403, "api.anonymous_priority_tier", "priority_critical")
    here.world.scheduler.settings["API_ANONYMOUS_MAY"] = "create_tenant, set_quota, priority_critical"
    here.world.scheduler.kill()
    here.start()
    assert far.call(*create)[0] == 201 and far.call(*quota)[0] == 200
    assert far.call("PUT", f"/api/v1/tenants/{open_one}", {"max_gpus": 1})[0] == 200
    refused(far.call("PUT", f"/api/v1/tenants/{open_one}", {"guaranteed_gpus": 1}), 403)
    refused(far.call("PUT", "/api/v1/tenants/default", {"max_gpus": 1}), 403)


def test_addresses_of_nodes_are_left_out_also_before_their_agents_come_back(place):
    here = place(API_ANONYMOUS_NETWORKS="10.77.0.0/24")
    far = here.at(1)
    assert far.get("/jobs")["total"] == 0
    agent = here.add_agent()
    refused(far.call("GET", "/api/v1/jobs"), 401, "api.anonymous_nodes", "10.77.0.2")
    assert far.call("GET", "/health")[0] == 200
    assert here.at(0).get("/jobs")["total"] == 0, "the scheduler's machine has no agent"
    # A job there is no other caller.
    agent.kill()
    here.world.scheduler.kill()
    here.start()
    refused(far.call("GET", "/api/v1/jobs"), 401, "api.anonymous_nodes")
    here.world.scheduler.settings["API_ANONYMOUS_NODES"] = "true"
    here.world.scheduler.kill()
    here.start()
    assert far.get("/jobs")["total"] == 0


def test_another_address_of_a_node_is_a_nodes_too(place, cable):
    here = place(API_ANONYMOUS_NETWORKS="10.77.0.0/24, 10.78.0.0/24")
    for side, address in enumerate(("10.78.0.1/24", "10.78.0.2/24")):
        done = subprocess.run([*cable.inside(side), "ip", "addr", "add", address, "dev", "veth0"], check=False)
        assert done.returncode == 0
    other = ApiInside(cable.names[1], here.world.scheduler.ports["http"], "10.78.0.1", None)
    assert other.get("/jobs")["total"] == 0
    here.add_agent()
    refused(other.call("GET", "/api/v1/jobs"), 401, "10.78.0.2", "api.anonymous_nodes")


def test_a_configuration_that_lets_everybody_in_is_refused_with_what_to_do(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR, API_CORS_ENABLED="true", API_CORS_ORIGINS="*")
    # With the networks the file of an existing client starts; without them it is told of the setting.
    assert here.at(1).call("GET", "/api/v1/jobs", headers={"Origin": "http://10.77.0.9:3000"})[0] == 200
    refused(here.at(1).call("GET", "/api/v1/jobs", headers={"Origin": "http://elsewhere.example"}), 403)
    told = here.ended_with({"API_ANONYMOUS_NETWORKS": ""})
    assert "api.cors_origins" in told and "api.anonymous_networks" in told
    for networks in ("0.0.0.0/0", "::/0", "10.77.0.0/24, 8.8.8.0/24", "10.0.0.0/7"):
        assert "api.anonymous_public_networks" in here.ended_with({"API_ANONYMOUS_NETWORKS": networks}), networks
    for networks in ("10.77.0.2/16", "everybody", "10.77.0.0/33"):
        told = here.ended_with({"API_ANONYMOUS_NETWORKS": networks})
        assert "api.anonymous_networks" in told and networks in told
    assert "api.token_required" in here.ended_with({"API_TOKEN_REQUIRED": "true"})
    assert "set_quota" in here.ended_with({"API_ANONYMOUS_MAY": "everything"})


def test_doctor_names_who_is_let_in(place):
    here = place(API_ANONYMOUS_NETWORKS=FAR, API_ANONYMOUS_MAY="set_quota", METRICS_OPEN="true")
    told = subprocess.run([*here.cable.inside(0), program("gpu-scheduler"), "doctor", "--json", "--data-dir",
                           here.world.scheduler.data_dir], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=here.world.environment(here.world.scheduler.environment))
    found = {check["check"]: check["detail"] for check in json.loads(told.stdout)["checks"]}
    assert re.search(r"from 10\.77\.0\.2/32 \(api\.anonymous_networks\), but not from addresses of nodes",
                     found["anonymous"]), found
    assert "divide the cluster" in found["anonymous"] and "metrics.open" in found["metrics"]
