"""Prometheus and promtool for the end-to-end tests: where they are, and a server that scrapes a world."""

import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import harness
import pytest
from ports import free_port

SCRAPE_S = 1


def tool(name):
    """The path of `prometheus` or `promtool`. Where it is missing the test is skipped by name; in CI it fails."""
    unpacked = harness.ROOT / "build" / "prometheus" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if not found and os.environ.get("CI"):
        pytest.fail(f"{name} is not here: tools/install-prometheus")
    return found or pytest.skip(f"{name} is not here: tools/install-prometheus")


def promtool(*words, text_in=None, expected=0):
    """What promtool says; `words` begin with a command such as `check`."""
    done = subprocess.run([tool("promtool"), *words], capture_output=True, text=True, input=text_in, check=False,
                          timeout=harness.PATIENCE_S)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """A server in `folder` with `config`, a dictionary as its file has it; `end` ends it."""

    def __init__(self, folder, config):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.port = free_port()
        file = self.folder / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML.
        words = [tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={self.folder / 'data'}",
                 f"--web.listen-address=127.0.0.1:{self.port}"]
        self.log = self.folder / "log"
        with open(self.log, "wb") as sink:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                                            cwd=self.folder)

    def wait_ready(self):
        def look():
            assert self.process.poll() is None, self.log.read_text()
            try:
                return self.get("/-/ready") is not None
            except (urllib.error.URLError, ConnectionError):
                return False

        harness.wait_until("Prometheus is ready", look)
        return self

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=harness.PATIENCE_S) as answer:
            return answer.read().decode()

    def query(self, expression, at=None):
        """[(labels, value)] of an instant query, at a time in seconds since 1970; now if none is given."""
        when = {} if at is None else {"time": at}
        try:
            answer = json.loads(self.get("/api/v1/query", query=expression, **when))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        assert answer["data"]["resultType"] == "vector", expression
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def label_values(self, metric, label):
        return json.loads(self.get(f"/api/v1/label/{label}/values", **{"match[]": metric}))["data"]

    def end(self):
        self.process.kill()
        self.process.wait()
