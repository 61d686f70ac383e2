"""TLS on the gRPC port: agents by a file or a fingerprint, and what each is told that does not fit."""

import json
import shutil
import socket
import ssl
import subprocess
import threading

import pytest
from harness import PATIENCE_S, program, wait_until
from test_reload import events, hang_up
from test_tls import Authority, Site


def fingerprint(certificate):
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n")
    printed = subprocess.run(["openssl", "x509", "-inform", "der", "-noout", "-fingerprint", "-sha256"], input=der, check=True,
                             capture_output=True, timeout=PATIENCE_S).stdout.decode()
    return "sha256:" + printed.strip().partition("=")[2]


def add_agent(site, node="n1", *words, at=None, port=None):
    agent = site.world.add_agent(node, arguments=list(map(str, words)))
    of_scheduler = agent.command

    def command():
        agent.scheduler = f"{at or '127.0.0.1'}:{port or site.port('grpc')}"
        return of_scheduler()

    agent.command = command
    return agent


def trouble(agent):
    """Why it has no connection, as its log says first."""
    agent.launch()
    wait_until("the agent to say why", lambda: events(agent, "scheduler_unreachable"))
    return events(agent, "scheduler_unreachable")[0]["details"]["why"]


@pytest.fixture(name="site")
def site_fixture(new_world):
    site = Site(new_world)
    site.scheduler.start()
    return site


def test_agents_join_by_file_and_by_fingerprint_and_run_jobs(new_world):
    site = Site(new_world)
    # Behind the server's own, so that agents that know the authority's fingerprint see it.
    site.certificate.write_text(site.certificate.read_text() + site.authority.file.read_text())
    site.scheduler.start()
    assert json.loads((site.scheduler.data_dir / "ports.json").read_text())["grpc_tls"] is True
    assert site.scheduler.wait_event("certificate_loaded")["details"]["fingerprint"].upper() == \
        fingerprint(site.certificate).replace(":", "").replace("sha256", "sha256:").upper()
    assert not events(site.scheduler, "grpc_without_tls")
    agents = [add_agent(site, "n1", "--ca-file", site.authority.file),
              add_agent(site, "n2", "--ca", fingerprint(site.authority.file), at="localhost"),
              add_agent(site, "n3", "--ca", fingerprint(site.certificate))]
    for agent in agents:
        agent.start()
    assert {node["name"] for node in site.world.api().get("/nodes")["nodes"]} == {"n1", "n2", "n3"}
    # Two MB of output on the way, in both directions' least favourable order: all at once.
    jobs = [site.world.api().submit("seq 300000", gpu_count=4) for _ in agents]
    for job in jobs:
        assert site.world.api().wait_for(job, "completed")["exit_code"] == 0
        assert site.world.cli("logs", job, expected=0).stdout.endswith("\n300000\n")


def test_an_agent_obeys_nobody_whose_certificate_it_does_not_believe(site):
    stranger = Authority(site.world.folder / "stranger")
    why = trouble(add_agent(site, "n1", "--ca-file", stranger.file))
    assert "not signed by an authority that is trusted here" in why and "--ca-file" in why, why
    why = trouble(add_agent(site, "n2", "--ca", fingerprint(stranger.file)))
    assert "none of the certificates that it shows has the fingerprint" in why, why
    why = trouble(add_agent(site, "n3", "--tls"))  # No authority of the machine signed it.
    assert "not signed by an authority that is trusted here" in why, why
    site.authority.sign(site.certificate, "DNS:gpu.example,IP:10.9.8.7")
    hang_up(site.scheduler, "config_reloaded", 1)
    why = trouble(add_agent(site, "n4", "--ca-file", site.authority.file))
    assert why.startswith("its certificate is for gpu.example, 10.9.8.7 and not for 127.0.0.1"), why
    assert site.world.api().get("/nodes")["nodes"] == []


def test_an_agent_refuses_a_certificate_that_has_expired(site):
    late = site.world.folder / "late.pem"
    key = site.authority.sign(late, days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(late, key)
    context.set_alpn_protocols(["h2"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with server.accept()[0] as plain:
                try:
                    context.wrap_socket(plain, server_side=True).recv(1)
                except (ssl.SSLError, ConnectionError):
                    pass
        serving = threading.Thread(target=serve)
        serving.start()
        why = trouble(add_agent(site, "n1", "--ca-file", site.authority.file, port=server.getsockname()[1]))
        serving.join()
    assert why.startswith("its certificate has expired"), why


def test_a_plain_agent_and_a_plain_scheduler_are_told_what_to_do(site, new_world):
    why = trouble(add_agent(site, "n1"))
    assert "if the scheduler speaks TLS, give this agent --ca-file or --ca" in why, why
    told = agent_doctor(site.world, "--scheduler", f"127.0.0.1:{site.port('grpc')}")["scheduler"]
    assert told["verdict"] == "fail" and "speaks TLS, and this agent does not" in told["detail"]

    plain = new_world()
    plain.scheduler.start()
    agent = plain.add_agent("n1", arguments=["--ca-file", str(site.authority.file)])
    why = trouble(agent)
    assert why.startswith("the server does not speak TLS there; set api.enable_tls"), why
    assert plain.api().get("/nodes")["nodes"] == []


def agent_doctor(world, *words):
    told = subprocess.run([program("gpu-agent"), "doctor", "--json", "--sim-gpus", "1xA100-SXM4-80GB", "--data-dir",
                           str(world.folder / "doctored"), *map(str, words)], capture_output=True, text=True, check=False,
                          timeout=PATIENCE_S, env=world.environment())
    return {check["check"]: check for check in json.loads(told.stdout)["checks"]}


def test_doctor_warns_of_a_plain_way_to_another_machine(site):
    # An address of nobody's, to which no packet is sent for long.
    there = ("--scheduler", "192.0.2.1:9090", "--token-file", site.scheduler.data_dir / "token")
    told = agent_doctor(site.world, *there)
    assert told["network"]["verdict"] == "warn" and "without TLS" in told["network"]["detail"]
    assert "ca_file" in told["network"]["fix"]
    assert "network" not in agent_doctor(site.world, *there, "--ca-file", site.authority.file)
    here = agent_doctor(site.world, "--scheduler", f"localhost:{site.port('grpc')}", "--ca-file", site.authority.file)
    assert "over TLS, with a certificate that is trusted here" in here["scheduler"]["detail"]
    assert "network" not in here


def test_options_that_do_not_fit_are_refused_at_the_start(site):
    def start_fails(*words):
        agent = add_agent(site, "n1", *words)
        done = subprocess.run(agent.command(), capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                              env=site.world.environment())
        assert done.returncode != 0
        return done.stderr

    assert "give either --ca-file or --ca" in start_fails("--ca-file", site.authority.file, "--ca", fingerprint(site.certificate))
    assert "is no fingerprint" in start_fails("--ca", "sha256:0123")
    assert "cannot read a certificate from /nowhere.pem" in start_fails("--ca-file", "/nowhere.pem")
    assert "there is none in it" in start_fails("--ca-file", site.key)


def test_a_reload_ends_no_connection_and_the_next_one_has_the_new_certificate(site):
    agent = add_agent(site, "n1", "--ca-file", site.authority.file)
    agent.start()
    gate = site.world.folder / "gate"
    job = site.world.api().submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo through")
    site.world.api().wait_for(job, "running")
    before = site.serial(name="grpc")
    site.authority.sign(site.certificate)
    hang_up(site.scheduler, "config_reloaded", 1)
    after = site.serial(name="grpc")
    assert after != before and after == site.serial()
    gate.touch()
    ended = site.world.api().wait_for(job, "completed")
    assert ended["attempts"] == 1 and ended["exit_code"] == 0
    assert len(events(agent, "registered")) == 1 and not events(agent, "scheduler_unreachable")

    # Another authority takes over: the connection stays, and the file of the agent is read at the next one.
    other = Authority(site.world.folder / "other")
    other.sign(site.certificate)
    hang_up(site.scheduler, "config_reloaded", 2)
    assert site.serial(other, "grpc") != after
    assert not events(agent, "scheduler_unreachable")
    job = site.world.api().submit("sleep 1000")
    site.world.api().wait_for(job, "running")
    shutil.copy(other.file, site.authority.file)
    site.scheduler.restart()
    wait_until("the agent is back", lambda: len(events(agent, "registered")) == 2)
    assert site.world.api().job(job)["state"] == "running" and site.world.api().job(job)["attempts"] == 1


def test_without_grpc_tls_agents_stay_as_they_are(new_world):
    site = Site(new_world, API_GRPC_TLS="false")
    site.scheduler.start()
    add_agent(site, "n1").start()
    assert "grpc_tls" not in json.loads((site.scheduler.data_dir / "ports.json").read_text())
    assert site.serial()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        site.serial(name="grpc")


def test_join_writes_what_it_believes(site):
    def join(name, *words):
        folder = site.world.folder / name
        done = subprocess.run([program("gpu-agent"), "join", f"127.0.0.1:{site.port('grpc')}", "--token-file",
                               str(site.scheduler.data_dir / "token"), "--node", name, "--config", str(folder / "agent.yaml"),
                               "--data-dir", str(folder / "data"), "--sim-gpus", "1xA100-SXM4-80GB", "--no-start",
                               *map(str, words)], capture_output=True, text=True, check=False, timeout=PATIENCE_S,
                              env=site.world.environment())
        return folder / "agent.yaml", done

    config, done = join("plain")
    assert done.returncode == 1 and "speaks TLS, and this agent does not" in done.stdout and not config.exists()
    stranger = Authority(site.world.folder / "stranger")
    config, done = join("wrong", "--ca-file", stranger.file)
    assert done.returncode == 1 and "not signed by an authority" in done.stdout and not config.exists()

    config, done = join("by-file", "--ca-file", site.authority.file)
    assert done.returncode == 0, done.stdout + done.stderr
    copy = config.parent / "agent.ca.pem"
    assert f'ca_file: "{copy}"' in config.read_text() and copy.read_bytes() == site.authority.file.read_bytes()
    config, done = join("by-print", "--ca", fingerprint(site.certificate))
    assert done.returncode == 0 and f'ca: "{fingerprint(site.certificate)}"' in config.read_text()
    for name in ("by-file", "by-print"):
        agent = site.world.add_agent(name, data_dir=site.world.folder / name / "data")
        agent.command = lambda name=name: [program("gpu-agent"), "--config", str(site.world.folder / name / "agent.yaml")]
        agent.start()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_are_refused(site):
    def speaks(version):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(site.authority.file)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.set_alpn_protocols(["h2"])
        context.minimum_version = context.maximum_version = version
        with socket.create_connection(("127.0.0.1", site.port("grpc")), PATIENCE_S) as plain, \
                context.wrap_socket(plain, server_hostname="localhost") as secure:
            return secure.version(), secure.selected_alpn_protocol()

    assert speaks(ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "h2")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        speaks(ssl.TLSVersion.TLSv1_1)
    site.scheduler.settings["API_TLS_MINIMUM_VERSION"] = "1.3"
    site.scheduler.restart()
    assert speaks(ssl.TLSVersion.TLSv1_3) == ("TLSv1.3", "h2")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        speaks(ssl.TLSVersion.TLSv1_2)


def test_a_thousand_handshakes_that_do_not_go_on_hold_up_nobody(site):
    first = add_agent(site, "n1", "--ca-file", site.authority.file)
    first.start()
    crowd = [socket.create_connection(("127.0.0.1", site.port("grpc")), PATIENCE_S) for _ in range(1000)]
    try:
        for number, one in enumerate(crowd):
            one.sendall((b"", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\n")[number % 3])
        add_agent(site, "n2", "--ca-file", site.authority.file).start()
        job = site.world.api().submit("echo well", gpu_count=4)
        assert site.world.api().wait_for(job, "completed")["exit_code"] == 0
        assert not events(first, "scheduler_unreachable")
        for one in crowd:  # Nobody of them is kept.
            try:
                while one.recv(100):
                    pass
            except ConnectionResetError:
                pass
    finally:
        for one in crowd:
            one.close()
