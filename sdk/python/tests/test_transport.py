"""Repetitions, several addresses and TLS: what a client does when the way to the scheduler is bad."""

import http.server
import json
import os
import random
import subprocess
import threading

import pytest
from conftest import PATIENCE_S, bin_folder, need, wait_until

need("httpx")

import gpu_scheduler  # noqa: E402
from gpu_scheduler import Client, _operations  # noqa: E402

OK = (200, {"job_id": "job-1", "state": "pending", "job_ids": ["job-1"]}, {})
BUSY = (503, {"error": "no leader", "code": "no_leader"}, {})
BROKEN = None  # The connection is closed without an answer.


class Flaky(http.server.ThreadingHTTPServer):
    """Answers each request with the next of its answers, the last for ever."""

    def __init__(self, *answers):
        self.answers, self.seen = list(answers), []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:{}".format(self.server_address[1])
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.seen.append((self.command, self.path, dict(self.headers), body))
        found = self.server.answers[0]
        if len(self.server.answers) > 1:
            self.server.answers.pop(0)
        if found is BROKEN:
            self.close_connection = True
            return
        status, answer, headers = found
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.fixture(name="serve")
def serve_fixture():
    servers = []

    def begin(*answers):
        servers.append(Flaky(*answers))
        return servers[-1]

    yield begin
    for one in servers:
        one.shutdown()
        one.server_close()


def client_of(*servers, **settings):
    return Client([one if isinstance(one, str) else one.url for one in servers], token="token-of-a-test", **settings)


def keys(server):
    return [headers.get("Idempotency-Key") for method, _, headers, _ in server.seen if method == "POST"]


def test_a_submission_whose_answer_was_lost_is_repeated_with_its_key(serve):
    server = serve(BROKEN, BUSY, OK)
    assert client_of(server).submit("true").id == "job-1"
    assert len(keys(server)) == 3 and len(set(keys(server))) == 1 and keys(server)[0]


def test_what_must_not_happen_twice_is_not_repeated_where_the_outcome_is_unknown(serve):
    server = serve(BROKEN, OK)
    with pytest.raises(gpu_scheduler.OutcomeUnknownError):
        client_of(server).requeue("job-1")
    assert len(server.seen) == 1
    server = serve(BUSY, OK)  # Here the scheduler said that it was not carried out.
    assert client_of(server).requeue("job-1").id == "job-1"


def test_a_refusal_is_not_repeated(serve):
    server = serve((403, {"error": "no", "code": "permission_denied"}, {}), OK)
    with pytest.raises(gpu_scheduler.PermissionDeniedError):
        client_of(server).get("job-1")
    assert len(server.seen) == 1


def test_a_long_retry_after_is_not_waited_for(serve):
    server = serve((429, {"error": "spent", "code": "daily_exceeded"}, {"Retry-After": "40000"}), OK)
    with pytest.raises(gpu_scheduler.RateLimitedError) as caught:
        client_of(server).submit("true")
    assert caught.value.retry_after_s == 40000 and len(server.seen) == 1


def test_repetitions_end(serve):
    server = serve(BUSY)
    with pytest.raises(gpu_scheduler.UnavailableError, match="no leader"):
        client_of(server, retry_s=0.4).get("job-1")
    assert 1 < len(server.seen) < 10


def test_the_next_address_is_tried_at_once_and_kept(serve):
    standby, leader = serve(BUSY), serve(OK)
    client = client_of("http://127.0.0.1:1", standby, leader)
    for _ in range(2):
        assert client.get("job-1").id == "job-1"
    assert (len(standby.seen), len(leader.seen)) == (1, 2)


def test_pauses_grow_with_jitter_and_stop():
    random.seed(1)
    retries = _operations.Retries(_operations.Call("GET", "/"), 1000)
    pauses = [retries.pause_after(gpu_scheduler.UnavailableError("")) for _ in range(10)]
    for number, pause in enumerate(pauses):
        most = min(0.1 * 2 ** number, 2.0)
        assert most / 2 <= pause <= most
    assert len(set(pauses)) == 10


def test_what_is_no_scheduler_is_told_so(serve):
    with pytest.raises(gpu_scheduler.BadAnswerError, match="not as a scheduler does"):
        client_of(serve((404, ["nothing"], {}))).get("job-1")


@pytest.fixture(name="secure", scope="module")
def secure_fixture(tmp_path_factory):
    """A scheduler that speaks TLS alone, with a certificate for 127.0.0.1 that nobody else trusts."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=localhost", "-days", "2", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1"], cwd=str(folder), check=True,
                   stderr=subprocess.DEVNULL)
    settings = {"API_HTTP_PORT": 0, "API_GRPC_PORT": 0, "METRICS_PORT": 0, "API_ENABLE_TLS": "true",
                "API_TLS_CERT_PATH": folder / "cert.pem", "API_TLS_KEY_PATH": folder / "key.pem"}
    environment = {**os.environ, **{"GPU_SCHEDULER_" + name: str(value) for name, value in settings.items()}}
    with open(str(folder / "log"), "wb") as log:
        process = subprocess.Popen([str(bin_folder() / "gpu-scheduler"), "--data-dir", str(folder / "data")],
                                   env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        ports = folder / "data" / "ports.json"
        wait_until("it serves", lambda: ports.exists() or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield "https://127.0.0.1:{}".format(json.loads(ports.read_text())["http"]), folder
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def test_a_certificate_is_checked_against_the_file_that_is_given(secure):
    url, folder = secure
    client = Client(url, verify=str(folder / "cert.pem"))
    assert client.cluster()["total_nodes"] == 0
    job = client.submit("true")
    with pytest.raises(gpu_scheduler.NotFoundError, match="has not started yet"):
        client.write_file(job, "f", b"")  # Sessions are asked for over TLS, too; it does not run.
    assert Client(url, verify=False).get(job).id == job.id
    with pytest.raises(gpu_scheduler.GpuSchedulerError, match="verify needs an address that begins with https://"):
        Client([url, url.replace("https", "http")], verify=str(folder / "cert.pem"))


def test_nothing_is_sent_to_one_that_is_not_trusted(secure):
    url, _ = secure
    for act in (lambda client: client.cluster(), lambda client: client.write_file("job-1", "f", b"")):
        with pytest.raises(gpu_scheduler.UnreachableError) as caught:
            act(Client(url, token="a-secret-token-of-a-test"))
        assert caught.value.code == "certificate_refused"


def test_a_token_is_not_sent_to_another_persons_port(serve, monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-secret-token-of-a-test\n")
    server = serve(OK)
    assert Client(server.url, token_file=str(token)).get("job-1").id == "job-1"
    monkeypatch.setattr("gpu_scheduler._settings.listening_users", lambda port: [54321])
    with pytest.raises(gpu_scheduler.PermissionDeniedError, match="belongs to user 54321"):
        Client(server.url, token_file=str(token))
