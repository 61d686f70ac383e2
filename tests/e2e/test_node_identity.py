"""Nodes with certificates: a token that is used once, what a node shows from then on, its renewal, and its end."""

import json
import re
import signal
import ssl
import subprocess
import time

import pytest
from harness import PATIENCE_S, program, wait_until
from test_grpc_tls import add_agent, fingerprint
from test_own_authority import OwnSite
from test_reload import events


class IdentitySite(OwnSite):
    """Its own authority, and nodes that join it."""

    def token(self, node, *words):
        """A node token in a file of its own."""
        file = self.world.folder / f"token-{node}-{time.monotonic_ns()}"
        done = self.admin("node-token", "create", node, "--out", str(file), *words)
        assert done.returncode == 0, done.stderr
        assert file.stat().st_mode & 0o777 == 0o600
        return file

    def admin(self, *words):
        words = [program("gpu-scheduler"), *words, "--api-url", f"https://127.0.0.1:{self.port()}", "--ca-file", str(self.ca_file),
                 "--token-file", str(self.scheduler.data_dir / "token")]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                              env=self.world.environment())

    def join_command(self, node, token, *words):
        folder = self.world.folder / node
        return [program("gpu-agent"), "join", f"127.0.0.1:{self.port('grpc')}", "--token-file", str(token), "--node", node,
                "--config", str(folder / "etc" / "agent.yaml"), "--data-dir", str(folder), "--no-start", "--replace",
                *(words or ("--ca", self.fingerprint()))]

    def join(self, node, token, *words):
        return subprocess.run(self.join_command(node, token, *words), capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, env=self.world.environment())

    def joined(self, node):
        """The agent of a node that has joined."""
        done = self.join(node, self.token(node))
        assert done.returncode == 0, done.stdout + done.stderr
        return add_agent(self, node, "--ca", self.fingerprint())

    def identities(self):
        return {one["node_name"]: one
                for one in json.loads(self.world.cli("--json", "node", "identities", expected=0).stdout)["identities"]}


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = IdentitySite(new_world)
    site.scheduler.start()
    return site


def why_not(agent):
    """Why the scheduler does not take it."""
    agent.launch()
    wait_until("the agent to say why", lambda: events(agent, "scheduler_unreachable"))
    return events(agent, "scheduler_unreachable")[0]["details"]["why"]


def test_a_node_joins_by_a_token_and_runs_jobs_without_the_shared_one(site):
    agent = site.joined("n1")
    folder = site.world.folder / "n1"
    assert (folder / "node.pem").stat().st_mode & 0o777 == 0o600
    assert not (folder / "node.pem.key").exists() and not (folder / "etc" / "agent.token").exists()
    assert "token_file" not in (folder / "etc" / "agent.yaml").read_text()
    agent.start()
    job = site.world.api().submit("echo it ran")
    assert site.world.api().wait_for(job, "completed")["exit_code"] == 0
    found = site.identities()["n1"]
    assert found["state"] == "active" and found["admitted_by"]
    listed = site.world.cli("node", "identities", expected=0).stdout
    assert re.search(r"n1 +active", listed), listed
    # Nothing that was secret is in what is kept or told.
    secret = (folder / "node.pem").read_text().split("-----")[2].strip().splitlines()[0]
    for path in [*site.scheduler.data_dir.rglob("*"), folder / "etc" / "agent.yaml"]:
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
    told = subprocess.run([program("gpu-agent"), "doctor", "--json", "--config", str(folder / "etc" / "agent.yaml")],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=site.world.environment())
    checks = {check["check"]: check for check in json.loads(told.stdout)["checks"]}
    assert checks["certificate"]["verdict"] == "ok", checks["certificate"]
    assert checks["proof"]["detail"] == "the scheduler takes this node's certificate", checks["proof"]


def test_a_token_is_for_one_machine_one_name_and_one_time(site):
    token = site.token("n1")
    refused = site.join("n2", token)
    assert refused.returncode == 1 and "is for another node" in refused.stderr, refused.stderr
    assert site.join("n1", token).returncode == 0
    # The same machine with another key: its pending one is gone with the first success.
    again = site.join("n1", token)
    assert again.returncode == 1 and "was used already" in again.stderr, again.stderr
    assert (site.world.folder / "n1" / "node.pem").exists()

    late = site.token("n3", "--expires", "1s")
    time.sleep(1.5)
    refused = site.join("n3", late)
    assert refused.returncode == 1 and "has expired" in refused.stderr, refused.stderr
    first, second = site.token("n4"), site.token("n4")
    assert "was replaced by a newer one" in site.join("n4", first).stderr
    assert site.join("n4", second).returncode == 0
    made_up = site.world.folder / "made-up"
    made_up.write_text("gsn_" + "a" * 12 + "." + "0" * 64)
    assert "does not exist" in site.join("n5", made_up).stderr
    assert set(site.identities()) == {"n1", "n4"}


def test_a_token_goes_to_the_scheduler_that_is_believed_and_over_tls_alone(site, new_world):
    token = site.token("n1")
    wrong = "sha256:" + "0" * 64
    refused = site.join("n1", token, "--ca", wrong)
    assert refused.returncode == 1 and "none of the certificates that it shows has the fingerprint" in refused.stdout
    other = subprocess.run([program("gpu-agent"), "join", f"127.0.0.1:{site.port('grpc')}", "--token-file", str(token), "--node",
                            "n1", "--config", str(site.world.folder / "n1" / "etc" / "agent.yaml"), "--data-dir",
                            str(site.world.folder / "n1"), "--no-start"], capture_output=True, text=True, check=False,
                           timeout=PATIENCE_S, env=site.world.environment())
    assert other.returncode == 2 and "over TLS only" in other.stderr, other.stderr
    assert not (site.world.folder / "n1" / "node.pem").exists()
    assert site.join("n1", token).returncode == 0  # It was shown to nobody.


def test_who_has_a_certificate_must_show_it(site):
    agent = site.joined("n1")
    # The shared token, which an agent on this machine finds by itself, is not enough for that name any more.
    (site.world.folder / "n1" / "node.pem").rename(site.world.folder / "kept.pem")
    why = why_not(agent)
    assert "must show it over TLS: the shared token is not enough" in why, why
    agent.kill()
    # Another node by that certificate.
    other = add_agent(site, "n2", "--ca", site.fingerprint())
    other.data_dir.mkdir()
    (site.world.folder / "kept.pem").rename(other.data_dir / "node.pem")
    why = why_not(other)
    assert "is another one than that of the certificate that was shown, n1" in why, why
    other.kill()
    # One that never had one is a node by the shared token, as before.
    add_agent(site, "n3", "--ca", site.fingerprint()).start()


def test_a_setting_demands_certificates_of_all(new_world):
    site = IdentitySite(new_world, AGENT_REQUIRE_CERTIFICATES="true")
    site.scheduler.start()
    why = why_not(add_agent(site, "n1", "--ca", site.fingerprint()))
    assert "agent.require_certificates" in why, why
    site.joined("n2").start()


def test_a_revoked_node_is_unreachable_at_once_and_gets_no_job(site):
    agent = site.joined("n1")
    agent.start()
    api = site.world.api()
    api.wait_for(api.submit("true", gpu_count=1), "completed")
    site.world.cli("node", "revoke", "n1", expected=0)
    jobs = [api.submit("true", gpu_count=1) for _ in range(20)]
    api.wait_node("n1", "unreachable", timeout_s=3)
    time.sleep(2)
    assert {api.job(job)["state"] for job in jobs} == {"pending"}
    agent.kill()
    assert site.join("n1", site.token("n1")).returncode == 0
    agent.start()
    for job in jobs:
        api.wait_for(job, "completed")


def test_jobs_that_are_on_their_way_to_a_revoked_node_do_not_stay_there(site):
    site.joined("n1").start()
    api = site.world.api()
    jobs = [api.submit("true") for _ in range(200)]
    site.world.cli("node", "revoke", "n1", expected=0)
    api.wait_node("n1", "unreachable", timeout_s=3)
    site.joined("n2").start()
    later = [api.submit("true") for _ in range(20)]
    for job in later:
        api.wait_for(job, "completed")
    left = [job for job in jobs if api.job(job)["state"] not in ("completed", "running", "scheduled")]
    for job in left:
        api.wait_for(job, "completed")


def test_revocation_ends_the_connection_and_stays(site):
    agent = site.joined("n1")
    agent.start()
    job = site.world.api().submit("sleep 1000")
    site.world.api().wait_for(job, "running")
    assert "node n1 is revoked" in site.world.cli("node", "revoke", "n1", expected=0).stdout
    wait_until("the agent to be cut off", lambda: events(agent, "registration_refused"))
    assert events(agent, "registration_refused")[0]["details"]["code"] == "node_revoked"
    assert site.identities()["n1"]["state"] == "revoked"
    assert site.world.api().job(job)["state"] == "running"  # As of any node that is silent.
    assert site.world.cli("node", "revoke", "n1", expected=None).returncode != 0
    site.scheduler.restart()
    agent.kill()
    assert "was revoked" in why_not(agent)
    agent.kill()
    assert site.identities()["n1"]["state"] == "revoked"
    # A new token lets it in again, and its job with it.
    assert site.join("n1", site.token("n1")).returncode == 0
    agent.start()
    assert site.world.api().job(job)["state"] == "running" and site.world.api().job(job)["attempts"] == 1


def test_joining_elsewhere_ends_the_older_machine(site):
    agent = site.joined("n1")
    agent.start()
    elsewhere = site.world.folder / "elsewhere"
    done = subprocess.run([program("gpu-agent"), "join", f"127.0.0.1:{site.port('grpc')}", "--token-file", str(site.token("n1")),
                           "--node", "n1", "--config", str(elsewhere / "agent.yaml"), "--data-dir", str(elsewhere / "data"),
                           "--no-start", "--ca", site.fingerprint()], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=site.world.environment())
    assert done.returncode == 0, done.stderr
    wait_until("the older one to be told", lambda: "has joined anew" in str(events(agent, "scheduler_unreachable")))


def wait_expired(file):
    """Until the certificate in it is over."""
    shown = subprocess.run(["openssl", "x509", "-in", str(file), "-noout", "-enddate"], capture_output=True, text=True,
                           check=True).stdout
    end = ssl.cert_time_to_seconds(shown.strip().partition("=")[2])
    time.sleep(max(0, end + 1 - time.time()))


@pytest.fixture(scope="module", name="short_lived")
def short_lived_fixture(new_module_world):
    """A site whose certificates are soon over, and the agents of two nodes that have joined, not started."""
    site = IdentitySite(new_module_world, AGENT_CERTIFICATE_SECONDS="24")
    site.scheduler.start()
    return site, site.joined("n1"), site.joined("n2")


def test_a_certificate_is_renewed_over_the_living_stream(short_lived):
    site, agent, _ = short_lived
    file = site.world.folder / "n1" / "node.pem"
    first = file.read_text()  # Before a slow start of the agent takes half of its time.
    (site.world.folder / "first.pem").write_text(first)
    agent.start()
    job = site.world.api().submit("sleep 1000")
    site.world.api().wait_for(job, "running")
    wait_until("the certificate is renewed", lambda: events(agent, "certificate_renewed"))
    second = file.read_text()
    assert second.split("CERTIFICATE")[0] != first.split("CERTIFICATE")[0]  # Another key, too.
    assert file.stat().st_mode & 0o777 == 0o600
    assert site.identities()["n1"]["renewed_at"]
    # What was renewed is shown at the next connection, and no connection was needed for it.
    assert len(events(agent, "registered")) == 1
    wait_expired(site.world.folder / "first.pem")
    assert not events(agent, "scheduler_unreachable")
    site.scheduler.restart()
    agent.restart()
    assert site.world.api().job(job)["state"] == "running" and site.world.api().job(job)["attempts"] == 1


def test_who_was_not_renewed_is_let_in_no_more(short_lived):
    site, _, agent = short_lived
    wait_expired(site.world.folder / "n2" / "node.pem")
    why = why_not(agent)
    assert "the certificate has expired" in why and "join the node anew" in why, why
    assert site.identities()["n2"]["state"] == "expired"


def test_a_join_that_is_killed_is_done_again_with_the_same_token(site):
    """Wherever it is cut off, there is no node.pem or a whole one, and the same token leads there."""
    token = site.token("n1")
    folder = site.world.folder / "n1"
    for pause_ms in (0, 2, 5, 10, 20, 30, 45, 60, 80, 110, 150, 200):
        if (folder / "node.pem").exists():
            break
        process = subprocess.Popen(site.join_command("n1", token), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=site.world.environment())
        time.sleep(pause_ms / 1_000)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    if not (folder / "node.pem").exists():
        done = site.join("n1", token)
        assert done.returncode == 0, done.stderr
    text = (folder / "node.pem").read_text()
    assert text.count("BEGIN PRIVATE KEY") == 1 and text.count("BEGIN CERTIFICATE") == 2
    add_agent(site, "n1", "--ca", site.fingerprint()).start()


def test_a_scheduler_that_is_killed_right_after_a_join_knows_the_node(site):
    agent = site.joined("n1")
    site.scheduler.kill()
    site.scheduler.start()
    assert site.identities()["n1"]["state"] == "active"
    agent.start()


def test_a_scheduler_with_an_organisations_certificate_signs_its_nodes_too(new_world):
    site = IdentitySite(new_world)
    site.scheduler.settings.update({"API_TLS_CERT_PATH": site.certificate, "API_TLS_KEY_PATH": site.key})
    site.ca_file = site.world.folder / "ca" / "ca.pem"
    site.certificate.write_text(site.certificate.read_text() + site.ca_file.read_text())
    site.scheduler.start()
    assert site.join("n1", site.token("n1"), "--ca", fingerprint(site.ca_file)).returncode == 0
    add_agent(site, "n1", "--ca-file", site.ca_file).start()


def test_what_is_done_about_nodes_is_in_the_audit(site):
    site.joined("n1")
    site.world.cli("node", "revoke", "n1", expected=0)

    def told(action):
        whole = (site.scheduler.data_dir / "audit.log").read_text().split("\n")[:-1]
        lines = [json.loads(line) for line in whole]
        return (action, "n1", "applied") in [(line["action"], line.get("resource"), line["outcome"]) for line in lines]

    for action in ("admit_node", "revoke_node"):
        wait_until(f"{action} is in the audit", lambda action=action: told(action))
    assert "gsn_" not in (site.scheduler.data_dir / "audit.log").read_text()
    site.scheduler.kill()
    printed = subprocess.run([program("gpu-scheduler"), "journal", "audit", str(site.scheduler.data_dir)], capture_output=True,
                             text=True, check=True, timeout=PATIENCE_S).stdout
    assert "admit_node" in printed and "revoke_node" in printed, printed
