"""gpu-cli jupyter: a notebook server in a job, reached from here."""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request

import pytest
from harness import PATIENCE_S, program, wait_until
from ports import free_port

pytestmark = pytest.mark.shared_world
# Does with its options, environment and files what jupyter-lab does with them, and no more.
STAND_IN = textwrap.dedent("""
    import http.server, json, os, sys, urllib.parse
    options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if "=" in word)
    token = os.environ["JUPYTER_TOKEN"]
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked = urllib.parse.urlparse(self.path)
            allowed = urllib.parse.parse_qs(asked.query).get("token") == [token]
            body = json.dumps({"gpus": os.environ.get("CUDA_VISIBLE_DEVICES"), "words": sys.argv[1:]}).encode()
            self.send_response(200 if allowed else 403)
            self.send_header("Content-Length", str(len(body) if allowed else 0))
            self.end_headers()
            if allowed:
                self.wfile.write(body)
            if allowed and asked.path == "/shutdown":
                os._exit(0)
        def log_message(self, *_):
            pass
    for port in range(int(options["port"]), int(options["port"]) + 1 + int(options["port-retries"])):
        try:
            server = http.server.ThreadingHTTPServer((options["ip"], port), Handler)
            break
        except OSError:
            continue
    file = os.open(os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{os.getpid()}.json"),
                   os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(file, json.dumps({"port": port, "token": token, "base_url": "/", "secure": False}).encode())
    os.close(file)
    print("serves on", options["ip"], port, file=sys.stderr, flush=True)
    server.serve_forever()
""")
# Runs a cell in a kernel that it starts, with the packages that Jupyter itself brings.
CELL = textwrap.dedent("""
    import json, sys, urllib.request, uuid, websocket
    address, token = sys.argv[1:]
    ask = urllib.request.Request(f"{address}/api/kernels", b"{}", {"Authorization": "token " + token})
    kernel = json.load(urllib.request.urlopen(ask, timeout=60))["id"]
    channel = websocket.create_connection(f"ws{address[4:]}/api/kernels/{kernel}/channels?token={token}", timeout=60)
    header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": uuid.uuid4().hex,
              "version": "5.3", "date": ""}
    channel.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "content": {
        "code": "import os; 6 * 7, os.environ['GPU_SCHEDULER_JOB_ID']", "silent": False, "store_history": False}}))
    while True:
        message = json.loads(channel.recv())
        if message["header"]["msg_type"] == "execute_result":
            print(message["content"]["data"]["text/plain"])
            break
""")


class Notebook:
    """A running gpu-cli jupyter."""

    def __init__(self, world, *words):
        self.process = subprocess.Popen([program("gpu-cli"), "--json", "jupyter", *words], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=world.folder,
                                        env=world.cli_environment())
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)
        said = json.loads(line)
        self.job, self.url, self.remote = said["job_id"], said["url"], said["port"]
        found = re.fullmatch(r"(http://127\.0\.0\.1:(\d+))/\?token=([0-9a-f]{48})", self.url)
        assert found and said["local"] == f"127.0.0.1:{found[2]}", said
        self.address, self.port, self.token = found[1], int(found[2]), found[3]

    def end(self, by=signal.SIGINT):
        if self.process.poll() is None:
            self.process.send_signal(by)
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, rest


@pytest.fixture(name="notebook")
def notebook_fixture(world):
    started = []

    def start(*words):
        started.append(Notebook(world, *words))
        return started[-1]

    yield start
    for one in started:
        one.end(signal.SIGKILL)


@pytest.fixture(name="stand_in")
def stand_in_fixture(world):
    """The option that has the job find the server that stands in for Jupyter."""
    place = world.folder / "lab"
    place.mkdir()
    file = place / "jupyter-lab"
    file.write_text(f"#!{sys.executable}\n{STAND_IN}")
    file.chmod(0o755)
    return f"--env=PATH={place}:/usr/bin:/bin"


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return answer.read()


def test_a_server_that_stands_in_for_jupyter_has_gpus_and_a_token_that_is_nowhere_else(world, notebook, stand_in):
    one = notebook("--gpus", "1", stand_in, "--", "--ServerApp.root_dir=.")
    said = json.loads(get(one.url))
    assert re.fullmatch(r"\d+", said["gpus"]) or said["gpus"].startswith("GPU-"), said
    assert "--ip=127.0.0.1" in said["words"] and "--ServerApp.root_dir=." in said["words"]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{one.address}/?token={one.token[:-1]}")
    # Neither what was submitted nor what the job wrote has the token; its file is the job's user's alone.
    wait_until("its output is there", lambda: "serves on" in world.cli("logs", one.job).stderr)
    assert one.token not in world.cli("--json", "get", one.job, expected=0).stdout + world.cli("logs", one.job).stderr
    seen = world.cli("exec", one.job, "--", "sh", "-c", 'stat -c %a "$TMPDIR"/gpu-cli-jupyter-* "$TMPDIR"/*/jpserver-*',
                     expected=0)
    assert seen.stdout.split() == ["700", "600"]
    code, rest = one.end()
    assert code == 130 and f"gpu-cli: {one.job} is cancelled" in rest, rest
    assert world.api().wait_for(one.job)["state"] == "cancelled"


def test_a_kept_job_goes_on_and_says_how_to_come_back_to_the_same_address(world, notebook, stand_in):
    one = notebook("--keep", stand_in)
    get(one.url)
    code, rest = one.end()
    assert code == 0 and f"gpu-cli: {one.job} continues" in rest, rest
    assert world.api().job(one.job)["state"] == "running"
    words = re.search(r"come back to it with: gpu-cli (.*)\n", rest)[1].split()
    with subprocess.Popen([program("gpu-cli"), *words], stderr=subprocess.PIPE, text=True,
                          env=world.cli_environment()) as back:
        assert f"127.0.0.1:{one.port} is port {one.remote}" in back.stderr.readline()
        get(one.url)
        back.send_signal(signal.SIGINT)


def test_a_server_that_ends_itself_ends_the_command_well(world, notebook, stand_in):
    port = free_port()
    one = notebook("--port", str(port), stand_in)
    assert one.port == port
    with contextlib.suppress(OSError):  # The answer may end with the job.
        get(f"{one.address}/shutdown?token={one.token}")
    code, rest = one.process.wait(PATIENCE_S), one.end()[1]
    assert code == 0 and f"gpu-cli: {one.job} completed" in rest, rest


def test_a_job_without_jupyter_in_its_path_says_what_to_install(world):
    done = world.cli("jupyter", "--env=PATH=/usr/bin:/bin", "--env=HOME=/nonexistent", expected=127)
    job = re.search(r"gpu-cli: (job-\d+) submitted", done.stderr)[1]
    assert "neither jupyter-lab nor jupyter-notebook is in the job's PATH" in done.stderr
    assert "Install one there: pip install --user jupyterlab." in done.stderr and done.stdout == ""
    assert world.api().job(job)["state"] == "failed"


@pytest.fixture(name="lab", scope="module")
def lab_fixture(session_folder):
    """JupyterLab in a virtual environment, from the package index."""
    place = pathlib.Path(session_folder) / "jupyterlab"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    subprocess.run([place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "3", "jupyterlab"],
                   check=True)
    return place


def test_a_cell_runs_in_the_job_by_jupyterlab_itself(world, notebook, lab):
    one = notebook("--gpus", "1", f"--env=PATH={lab}/bin:/usr/bin:/bin")
    assert b"JupyterLab" in get(one.url)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        get(f"{one.address}/api/kernels")
    done = subprocess.run([lab / "bin" / "python", "-c", CELL, one.address, one.token], capture_output=True, text=True,
                          check=False, timeout=PATIENCE_S, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"(42, '{one.job}')"
    assert one.token not in world.cli("logs", one.job).stderr
    assert one.end()[0] == 130
