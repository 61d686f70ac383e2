"""tools/fuzz --inputs runs a fuzzer's function on the same inputs each time, and keeps one that ends the process."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUZZER = """
#include <cstddef>
#include <cstdint>
#include <cstdlib>
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size > 5 && data[0] == LETTER) std::abort();
  return 0;
}
"""


@pytest.fixture(name="tree")
def tree_fixture(tmp_path):
    """A checkout without any fuzzer."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "fuzz", tmp_path / "tools" / "fuzz")
    return tmp_path


@pytest.fixture(name="fuzzers")
def fuzzers_fixture(tree):
    """Two fuzzers: one ends on an input that begins as the committed one, one never does."""
    (tree / "build" / "fuzzers").mkdir(parents=True)
    for name, letter in (("ends_fuzz", "'h'"), ("good_fuzz", "300")):
        (tree / "tests" / "fuzz" / "corpus" / name).mkdir(parents=True)
        (tree / "tests" / "fuzz" / "corpus" / name / "first").write_text("hello")
        (tree / f"{name}.cc").write_text(FUZZER.replace("LETTER", letter))
        subprocess.run(["g++", "-std=c++20", f"{name}.cc", str(ROOT / "tests" / "fuzz" / "run_inputs.cc"), "-o",
                        f"build/fuzzers/{name}"], cwd=tree, check=True)


def run(tree, *words):
    environment = {name: value for name, value in os.environ.items() if name != "GPUSCHED_BUILD"}
    done = subprocess.run([str(tree / "tools" / "fuzz"), "--inputs", *words], capture_output=True, text=True, check=False,
                          env=environment)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.usefixtures("fuzzers")
def test_an_input_that_ends_the_process_is_a_failure_and_is_kept(tree):
    kept = tree / "build" / "fuzz" / "found" / "ends_fuzz-input"
    found = []
    for _ in range(2):
        status, lines = run(tree, "1000")
        assert (status, lines[-1]) == (1, "1 passed, 1 failed")
        assert any(line.startswith("good_fuzz: 1001 inputs in ") for line in lines)
        found.append(kept.read_bytes())
    assert found[0] == found[1] and found[0][:1] == b"h" and len(found[0]) > 5
    # The committed inputs run without any change of them, too.
    (tree / "tests" / "fuzz" / "corpus" / "ends_fuzz" / "second").write_bytes(found[0])
    assert run(tree, "0", "ends_fuzz")[1][-1] == "0 passed, 1 failed"
    assert run(tree, "0", "good_fuzz")[0] == 0


def test_a_fuzzer_that_is_not_built_is_a_failure(tree):
    assert run(tree, "1", "gone_fuzz")[1] == ["gone_fuzz: not built", "0 passed, 1 failed"]
