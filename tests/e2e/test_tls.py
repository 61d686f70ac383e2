"""TLS on the HTTP and metrics ports, and https in gpu-cli, with certificates that openssl makes for each test."""

import contextlib
import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import time

import harness
import pytest
from harness import PATIENCE_S, program, wait_until
from test_reload import events, hang_up

HERE = "DNS:localhost,IP:127.0.0.1"
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=PATIENCE_S)


class Authority:
    """A private certificate authority in a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.file, self.key = self.folder / "ca.pem", self.folder / "ca.key"
        openssl("req", "-x509", *NEW_KEY, "-keyout", self.key, "-out", self.file, "-days", 30, "-subj", "/CN=test authority")

    def sign(self, certificate, names=HERE, days=7):
        """Writes a certificate, and its key beside it; the key's path."""
        key, request = certificate.with_suffix(".key"), certificate.with_suffix(".csr")
        openssl("req", "-new", *NEW_KEY, "-keyout", key, "-out", request, "-subj", "/CN=scheduler",
                "-addext", f"subjectAltName={names}")
        openssl("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", self.key, "-days", days, "-copy_extensions",
                "copy", "-out", certificate)
        return key


class TlsApi(harness.Api):
    """Without a look at the certificate, which some tests make a wrong one."""

    def connection(self, timeout_s):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)


class Site:
    """A world whose scheduler speaks TLS."""

    def __init__(self, new_world, **settings):
        self.world = new_world()
        self.authority = Authority(self.world.folder / "ca")
        self.certificate = self.world.folder / "server.pem"
        self.key = self.authority.sign(self.certificate)
        self.scheduler = self.world.scheduler
        self.scheduler.settings = {"API_ENABLE_TLS": "true", "API_TLS_CERT_PATH": self.certificate,
                                   "API_TLS_KEY_PATH": self.key, **settings}
        self.scheduler.api = lambda: TlsApi(self.port(), token=self.scheduler.token())
        self.ca_file = self.authority.file
        self.host = "127.0.0.1"
        self.world.cli_environment = lambda: self.world.environment(
            {"GPU_SCHEDULER_URL": f"https://{self.host}:{self.port()}", "GPU_SCHEDULER_CA_FILE": str(self.ca_file)})

    def port(self, kind="http"):
        return self.scheduler.ports[kind]

    def serial(self, authority=None, name="http"):
        """Of the certificate that a new connection gets from the authority that is trusted."""
        context = ssl.create_default_context(cafile=str((authority or self.authority).file))
        if name == "grpc":
            context.set_alpn_protocols(["h2"])  # Others it lets go at once.
        with socket.create_connection(("127.0.0.1", self.port(name)), PATIENCE_S) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as secure:
            assert secure.version() == "TLSv1.3"
            return secure.getpeercert()["serialNumber"]


def doctor(site, settings=None):
    told = subprocess.run([program("gpu-scheduler"), "doctor", "--json", "--data-dir", site.scheduler.data_dir],
                          capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                          env=site.world.environment(site.scheduler.environment if settings is None else settings))
    return {check["check"]: check for check in json.loads(told.stdout)["checks"]}


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = Site(new_world)
    site.scheduler.start()
    return site


def test_jobs_run_and_their_output_is_followed_over_tls(site):
    site.world.add_agent(arguments=["--ca-file", str(site.authority.file)]).start()
    out = site.world.cli("submit", "--wait", "--logs", "--", "sh", "-c", "echo one; sleep 0.3; echo two", expected=0).stdout
    assert "one\ntwo\n" in out
    site.host = "localhost"  # By name as by address.
    api = site.world.api()
    gate = site.world.folder / "gate"
    job = api.submit(f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; seq 200000; echo last")
    follower = site.world.cli_start("logs", "-f", job)
    assert follower.stdout.readline() == b"first\n"
    gate.touch()
    followed, errors = follower.communicate(timeout=PATIENCE_S)
    assert follower.returncode == 0, errors
    assert followed.endswith(b"200000\nlast\n") and followed.count(b"\n") == 200001
    assert json.loads((site.scheduler.data_dir / "ports.json").read_text())["https"] is True


def test_a_session_and_a_copy_pass_a_megabyte_each_way(site):
    site.world.add_agent(arguments=["--ca-file", str(site.authority.file)]).start()
    job = site.world.api().submit("sleep 1000")
    site.world.api().wait_for(job, "running")
    data = harness.noise(3 * 1024 * 1024) + b"\0\xff\r\n\x04"
    done = subprocess.run([program("gpu-cli"), "exec", job, "-i", "--", "cat"], input=data, capture_output=True,
                          timeout=PATIENCE_S, env=site.world.cli_environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == data
    (site.world.folder / "up").write_bytes(data)
    site.world.cli("cp", str(site.world.folder / "up"), f"{job}:there", expected=0)
    site.world.cli("cp", f"{job}:there", str(site.world.folder / "down"), expected=0)
    assert (site.world.folder / "down").read_bytes() == data
    # A session of a terminal that waits: what the server sends behind its handshake is not missed.
    assert site.world.cli("exec", job, "--", "echo", "at once", expected=0).stdout == "at once\n"


def refused(site, *words):
    done = site.world.cli(*words, expected=3)
    assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    assert "(certificate_refused)" in done.stderr and f"nothing was sent to https://{site.host}:{site.port()}: " in done.stderr
    return done.stderr


def test_a_server_that_is_not_trusted_is_told_nothing(site):
    stranger = Authority(site.world.folder / "stranger")
    site.ca_file = stranger.file
    assert "not signed by an authority that is trusted here" in refused(site, "list")
    assert "give the authority's certificate with --ca-file" in refused(site, "submit", "--", "true")
    # Of the machine's own authorities none knows it.
    site.world.cli_environment = lambda: site.world.environment({"GPU_SCHEDULER_URL": f"https://127.0.0.1:{site.port()}"})
    assert "--ca-file" in refused(site, "list")
    assert site.world.cli("--ca-file", str(site.authority.file), "list", expected=0)
    assert site.world.api().jobs() == []


def test_a_certificate_for_another_name_is_refused_and_both_are_named(site):
    site.authority.sign(site.certificate, "DNS:gpu.example,IP:10.9.8.7")
    hang_up(site.scheduler, "config_reloaded", 1)
    assert "its certificate is for gpu.example, 10.9.8.7 and not for 127.0.0.1" in refused(site, "list")
    site.host = "localhost"
    assert "and not for localhost" in refused(site, "list")


def test_an_expired_certificate_is_refused_by_both_sides(site):
    # The file that is served was good when it was read.
    site.authority.sign(site.certificate, days=-1)
    details = hang_up(site.scheduler, "config_not_reloaded", 1)
    assert " expired at " in details["why"] and str(site.certificate) in details["why"]
    assert site.world.cli("list", expected=0)
    told = doctor(site)["certificate"]
    assert told["verdict"] == "fail" and " expired at " in told["detail"]
    site.scheduler.stop()
    ended = subprocess.run(site.scheduler.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                           env=site.world.environment(site.scheduler.environment))
    assert ended.returncode != 0 and " expired at " in ended.stderr and "renew it" in ended.stderr

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(site.certificate, site.key)
    with socket.create_server(("127.0.0.1", site.port())) as server:
        asking = site.world.cli_start("list")
        for _ in range(2):  # The question for the token's place comes first.
            with server.accept()[0] as plain, pytest.raises((ssl.SSLError, ConnectionError)):
                context.wrap_socket(plain, server_side=True).recv(1)
        _, errors = asking.communicate(timeout=PATIENCE_S)
    assert asking.returncode == 3 and b"its certificate has expired" in errors


def start_fails(site, expected, **settings):
    site.scheduler.settings.update(settings)
    done = subprocess.run(site.scheduler.command(), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env=site.world.environment(site.scheduler.environment))
    assert done.returncode != 0 and expected in done.stderr, done.stderr


def test_a_start_with_wrong_files_says_which_and_why(new_world):
    site = Site(new_world)
    folder = site.world.folder
    start_fails(site, f"cannot read the certificate {folder}/nowhere.pem", API_TLS_CERT_PATH=folder / "nowhere.pem")
    start_fails(site, "api.enable_tls is true and api.tls_cert_path is empty", API_TLS_CERT_PATH="")
    start_fails(site, f"is not the key of the certificate {site.certificate}", API_TLS_CERT_PATH=site.certificate,
                API_TLS_KEY_PATH=site.authority.key)
    shutil.copy(site.key, folder / "open.key")
    (folder / "open.key").chmod(0o644)
    start_fails(site, f"{folder}/open.key can be read by every user", API_TLS_KEY_PATH=folder / "open.key")
    openssl("pkey", "-in", site.key, "-aes256", "-passout", "pass:secret", "-out", folder / "locked.key")
    start_fails(site, "without a passphrase", API_TLS_KEY_PATH=folder / "locked.key")


def test_hangup_changes_the_certificate_of_new_connections_alone(site):
    before = site.serial()
    follower = http.client.HTTPSConnection("localhost", site.port(), timeout=PATIENCE_S,
                                           context=ssl.create_default_context(cafile=str(site.authority.file)))
    follower.request("GET", "/health")
    assert follower.getresponse().read()
    site.authority.sign(site.certificate)
    details = hang_up(site.scheduler, "config_reloaded", 1)
    assert details["changes"] == 0
    after = site.serial()
    assert after != before and site.serial(name="metrics") == after
    assert [line["details"]["file"] for line in events(site.scheduler, "certificate_loaded")] == [str(site.certificate)] * 2
    follower.request("GET", "/health")
    assert follower.getresponse().read()

    # Half of a renewal: the new certificate is there and its key is not.
    kept = site.key.read_bytes()
    other = Authority(site.world.folder / "other")
    other.sign(site.certificate)
    site.key.write_bytes(kept)
    details = hang_up(site.scheduler, "config_not_reloaded", 1)
    assert "is not the key of the certificate" in details["why"]
    assert site.serial() == after

    # Another authority takes over, and a restart keeps it.
    other.sign(site.certificate)
    hang_up(site.scheduler, "config_reloaded", 2)
    taken = site.serial(other)
    site.scheduler.restart()
    assert site.serial(other) == taken


def offers(site, version, ciphers="ALL:@SECLEVEL=0"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(site.authority.file)
    context.set_ciphers(ciphers)
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", site.port()), PATIENCE_S) as plain, \
            context.wrap_socket(plain, server_hostname="localhost") as secure:
        return secure.version()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_and_weak_ciphers_are_refused(site):
    assert offers(site, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        offers(site, ssl.TLSVersion.TLSv1_1)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        offers(site, ssl.TLSVersion.TLSv1_2, "NULL:@SECLEVEL=0")
    site.scheduler.settings["API_TLS_MINIMUM_VERSION"] = "1.3"
    site.scheduler.restart()
    assert offers(site, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        offers(site, ssl.TLSVersion.TLSv1_2)


def test_plain_http_is_told_what_to_do_on_both_ports(site):
    for kind in ("http", "metrics"):
        plain = http.client.HTTPConnection("127.0.0.1", site.port(kind), timeout=PATIENCE_S)
        plain.request("GET", "/health")
        answer = plain.getresponse()
        assert answer.status == 400 and "https://" in json.loads(answer.read())["error"]
    site.world.cli_environment = lambda: site.world.environment({"GPU_SCHEDULER_URL": f"http://127.0.0.1:{site.port()}"})
    done = site.world.cli("list", expected=4)
    assert "this port speaks TLS: begin the URL with https://" in done.stderr
    context = ssl.create_default_context(cafile=str(site.authority.file))
    secure = http.client.HTTPSConnection("localhost", site.port("metrics"), timeout=PATIENCE_S, context=context)
    secure.request("GET", "/metrics")
    assert b"gpu_scheduler_build_info" in secure.getresponse().read()


def test_https_to_a_plain_scheduler_is_told_what_to_do(new_world):
    world = new_world()
    world.scheduler.start()
    url = f"https://127.0.0.1:{world.scheduler.ports['http']}"
    done = world.cli("--api-url", url, "list", expected=2)
    assert "the server does not speak TLS there; use http:// in the URL" in done.stderr
    assert "https" not in json.loads((world.scheduler.data_dir / "ports.json").read_text())


def test_a_handshake_that_does_not_go_on_is_ended_and_holds_up_nobody(site):
    began = time.monotonic()

    def passed_by():
        """Whether a client is answered while the last of a crowd still has its time."""
        with contextlib.ExitStack() as stack:
            crowd = [stack.enter_context(socket.create_connection(("127.0.0.1", site.port()), 2 * PATIENCE_S))
                     for _ in range(601)]
            crowd[0].sendall(b"\x16\x03\x01\x02\x00")
            site.world.cli("list", expected=0)
            still_open = not select.select([crowd[-1]], [], [], 0)[0]
            # Nobody of the crowd is kept.
            assert crowd[0].recv(100) == b"" and crowd[-1].recv(100) == b""
        return still_open

    wait_until("a client is held up by nobody", passed_by)  # A busy machine may need another try.
    assert time.monotonic() - began > 5  # The last one had its time.


def test_a_context_keeps_its_authority_and_gives_it_to_no_other_scheduler(site):
    home = site.world.folder / "home"
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": ""}
    site.world.cli_environment = lambda: site.world.environment(environment)
    site.world.cli("context", "set", "lab", "--api-url", f"https://localhost:{site.port()}", "--ca-file",
                   str(site.authority.file), "--token-file", str(site.scheduler.data_dir / "token"), expected=0)
    assert site.world.cli("list", "--all", expected=0)
    assert json.loads((home / ".config/gpu-scheduler/contexts.json").read_text())["contexts"]["lab"]["ca_file"] == \
        str(site.authority.file)
    environment["GPU_SCHEDULER_URL"] = f"https://127.0.0.1:{site.port()}"
    assert "--ca-file" in site.world.cli("list", expected=3).stderr


def test_the_schedulers_own_commands_speak_tls(site):
    found = doctor(site)
    assert found["health"]["verdict"] == "ok" and f"https://127.0.0.1:{site.port()}" in found["health"]["detail"]
    assert found["certificate"]["verdict"] == "warn"
    # Seven within the second in which it was signed.
    assert re.search("CN=scheduler is valid for [67] more days", found["certificate"]["detail"])
    # Without the scheduler's configuration it knows no certificate.
    found = doctor(site, {})
    assert found["health"]["verdict"] == "warn" and "--config" in found["health"]["fix"]
    listed = subprocess.run([program("gpu-scheduler"), "admin", "get"], capture_output=True, text=True, check=False,
                            timeout=PATIENCE_S, env=site.world.cli_environment())
    assert listed.returncode == 0 and "tenants" in listed.stdout, listed.stderr
    site.ca_file = Authority(site.world.folder / "stranger").file
    listed = subprocess.run([program("gpu-scheduler"), "admin", "get"], capture_output=True, text=True, check=False,
                            timeout=PATIENCE_S, env=site.world.cli_environment())
    assert listed.returncode != 0 and "--ca-file" in listed.stderr


def test_a_scheduler_that_others_reach_says_that_grpc_stays_plain(new_world):
    site = Site(new_world, API_ADDRESS="0.0.0.0", API_GRPC_TLS="false")
    site.scheduler.address = "0.0.0.0"
    site.scheduler.start()
    wait_until("the warning", lambda: events(site.scheduler, "grpc_without_tls"))
    for settings in ({"API_ADDRESS": "0.0.0.0"}, {"API_GRPC_TLS": "false"}):
        quiet = Site(new_world, **settings)
        quiet.scheduler.address = settings.get("API_ADDRESS", "127.0.0.1")
        quiet.scheduler.start()
        wait_until("its start", lambda quiet=quiet: events(quiet.scheduler, "scheduler_started"))
        assert events(quiet.scheduler, "grpc_without_tls") == []


def test_a_stop_ends_what_is_open_in_order(site):
    context = ssl.create_default_context(cafile=str(site.authority.file))
    with socket.create_connection(("127.0.0.1", site.port()), PATIENCE_S) as plain, \
            context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=True) as secure:
        os.kill(site.scheduler.pid(), signal.SIGTERM)
        assert secure.recv(100) == b""
        assert site.scheduler.ended() in (0, 128 + signal.SIGTERM)
