"""Examples in docstrings and in docs/python.md run against a real scheduler and print what they say."""

import doctest
import importlib
import re
import textwrap
import time

import pytest
from conftest import ROOT, need

need("httpx", "grpc", "google.protobuf", "cloudpickle")

import gpu_scheduler  # noqa: E402

PAGE = ROOT / "docs" / "python.md"
MODULES = ("aio", "client", "errors", "executor", "jobs", "tasks")


def names(dev, client, python):
    return {"URL": dev.url, "TASKS_HOST": dev.grpc, "client": client, "time": time, "PYTHON": python}


@pytest.fixture(name="client")
def client_fixture(dev):
    with gpu_scheduler.Client(dev.url) as client:
        yield client


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module(module, dev, client, python):
    found = importlib.import_module("gpu_scheduler." + module)
    outcome = doctest.testmod(found, globs={**vars(found), **names(dev, client, python)}, optionflags=doctest.ELLIPSIS)
    assert outcome.attempted and not outcome.failed


def test_the_examples_of_the_page(dev, python, monkeypatch):
    """Each block is a program; its addresses are those of the test's scheduler. `#>` is what the line before prints."""
    monkeypatch.setenv("GPU_SCHEDULER_URL", dev.url)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        printed = []
        program = textwrap.dedent(block).replace("localhost:50051", dev.grpc).replace("python3", python)
        exec(compile(program, str(PAGE), "exec"),  # pylint: disable=exec-used
             {"print": lambda *words: printed.append(" ".join(map(str, words)))})
        assert printed == re.findall(r"#> (.*)", block), block
