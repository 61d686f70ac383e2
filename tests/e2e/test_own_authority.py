"""A scheduler that makes its own authority and certificate: TLS in one line of its configuration."""

import json
import shutil
import ssl
import subprocess

import pytest
from harness import PATIENCE_S, wait_until
from test_grpc_tls import add_agent
from test_reload import events, hang_up
from test_tls import Site, doctor


class OwnSite(Site):
    """Whose configuration names no file."""

    def __init__(self, new_world, **settings):
        super().__init__(new_world, API_TLS_CERT_PATH="", API_TLS_KEY_PATH="", **settings)
        self.folder = self.scheduler.data_dir / "ca"
        self.ca_file = self.authority.file = self.folder / "ca.pem"

    def fingerprint(self):
        return (self.folder / "fingerprint").read_text().strip()


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = OwnSite(new_world)
    site.scheduler.start()
    return site


def test_one_line_is_enough_for_people_and_agents(site):
    assert {path.name: path.stat().st_mode & 0o777 for path in site.folder.iterdir()} == \
        {"ca.key": 0o600, "ca.pem": 0o644, "fingerprint": 0o644, "orders.key": 0o600, "server.pem": 0o600}
    loaded = site.scheduler.wait_event("certificate_loaded")["details"]
    assert loaded["file"] == str(site.folder / "server.pem")
    agent = add_agent(site, "n1", "--ca", site.fingerprint())
    agent.start()
    for host in ("127.0.0.1", "localhost"):
        site.host = host
        assert "it ran" in site.world.cli("submit", "--wait", "--logs", "--", "echo", "it ran", expected=0).stdout
    found = doctor(site)
    assert found["health"]["verdict"] == "ok"
    assert found["certificate"]["verdict"] == "ok" and "is valid for 89 more days" in found["certificate"]["detail"] \
        or "is valid for 90 more days" in found["certificate"]["detail"]

    # A restart keeps what is good.
    before, serial = site.fingerprint(), site.serial()
    site.scheduler.restart()
    wait_until("the agent is back", lambda: len(events(agent, "registered")) == 2)
    assert (site.fingerprint(), site.serial(), site.serial(name="grpc")) == (before, serial, serial)


def test_the_certificate_is_for_the_names_of_the_configuration_and_strict_clients_take_it(site):
    site.scheduler.settings["API_HOST_NAMES"] = "gpu.example, *.lab.example"
    before, serial = site.fingerprint(), site.serial()
    site.scheduler.restart()
    assert site.fingerprint() == before and site.serial() != serial
    shown = subprocess.run(["openssl", "x509", "-in", site.folder / "server.pem", "-noout", "-ext", "subjectAltName"],
                           capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    for name in ("DNS:gpu.example", "DNS:*.lab.example", "DNS:localhost", "IP Address:127.0.0.1"):
        assert name in shown, shown
    strict = subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", site.folder / "ca.pem",
                             site.folder / "server.pem"], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert strict.returncode == 0, strict.stdout + strict.stderr


def test_an_old_certificate_is_made_anew_while_the_scheduler_runs(site):
    agent = add_agent(site, "n1", "--ca", site.fingerprint())
    agent.start()
    serial = site.serial()
    (site.folder / "server.pem").unlink()  # As one of which a third of its time is left: see the unit test.
    hang_up(site.scheduler, "config_reloaded", 1)
    assert site.serial() != serial and site.serial(name="grpc") == site.serial()
    assert len(events(agent, "registered")) == 1 and not events(agent, "scheduler_unreachable")


def test_a_lost_authority_is_not_replaced_behind_anybodys_back(site):
    site.scheduler.stop()
    shutil.move(site.folder / "ca.pem", site.world.folder / "ca.pem")
    ended = subprocess.run(site.scheduler.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                           env=site.world.environment(site.scheduler.environment))
    assert ended.returncode != 0 and "restore them from a backup" in ended.stderr
    (site.folder / "ca.key").chmod(0o644)
    ended = subprocess.run(site.scheduler.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                           env=site.world.environment(site.scheduler.environment))
    assert ended.returncode != 0 and "ca.key can be read by others" in ended.stderr
    # Without a key there is none to lose, and everybody hears of another one.
    before = site.fingerprint()
    shutil.rmtree(site.folder)
    site.scheduler.start()
    assert site.fingerprint() != before
    assert site.serial()
    site.authority.file = site.world.folder / "ca.pem"  # The lost one.
    with pytest.raises(ssl.SSLCertVerificationError):
        site.serial()
    assert json.loads((site.scheduler.data_dir / "ports.json").read_text())["grpc_tls"] is True
