""".ci/run judges its stages and the steps behind them: what failed shows its output, what came too late is named."""

import os
import pathlib
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Stands for every tool that .ci/run calls; what it does is decided by the file WORDS in the tree's folder `does`, WORDS
# being the program's name and its first two arguments, without characters that no file's name has.
FAKE = """#!/bin/bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."
words="$(basename "$0") $1 $2"
words="${words//[^a-z -]/}"
words="${words%% }"
[[ ! -f "does/$words" ]] || source "does/$words"
"""
RUN_TESTS = """#!/bin/bash
if [[ "$1" == --total ]]; then exec "%s/tools/run-tests" "$@"; fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count() { echo "$1 $2" >>"$GPUSCHED_TEST_TALLY"; echo "$1 passed, $2 failed"; (($2 == 0)); }
build="$(basename "$2")"
if [[ -f "does/test $build" ]]; then source "does/test $build"; else count 10 0; fi
""" % ROOT


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    """A checkout in which every tool does nothing, and each step's tests pass: 10 of each sanitizer, 3 fuzzers."""
    for folder in (".ci", "tools", "does"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    for name in ("install-deps", "install-python", "build", "format", "fuzz", "make"):
        (tmp_path / "tools" / name).write_text(FAKE)
        (tmp_path / "tools" / name).chmod(0o755)
    (tmp_path / "tools" / "run-tests").write_text(RUN_TESTS)
    (tmp_path / "tools" / "run-tests").chmod(0o755)
    does(tmp_path, "fuzz --fixed", "echo '3 passed, 0 failed'")
    does(tmp_path, "make test", "echo '100 0' >>\"$GPUSCHED_TEST_TALLY\"")
    return tmp_path


def does(tree, words, script):
    (tree / "does" / words).write_text(script + "\n")


def run(tree, **settings):
    environment = dict(os.environ, PATH=f"{tree}/tools:{os.environ['PATH']}", **settings)
    done = subprocess.run([str(tree / ".ci" / "run")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env=environment)
    return done.returncode, done.stdout.splitlines()


def left_out(lines):
    return [line.removeprefix("left out: ") for line in lines if line.startswith("left out: ")]


def test_everything_is_summed_up(tree):
    status, lines = run(tree)
    assert (status, lines[-1]) == (0, "124 passed, 0 failed")  # The demonstration is one test.
    assert not left_out(lines)


def test_a_failing_suite_of_a_step_shows_its_output_and_the_other_steps_go_on(tree):
    does(tree, "test asan", "echo 'the sanitizer says why'; count 9 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "123 passed, 1 failed")
    assert "the sanitizer says why" in lines


@pytest.mark.parametrize("preset, passed", [("asan", 114), ("fuzz", 121), ("tsan-core", 114)])
def test_a_step_that_does_not_build_is_one_failure_and_the_others_run(tree, preset, passed):
    does(tree, f"build {preset}" + (" all-tests" if preset == "tsan-core" else ""), "echo 'x.cc:1: error: no'; exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, f"{passed} passed, 1 failed")
    assert "x.cc:1: error: no" in lines


def test_a_step_that_counts_no_failure_but_ends_badly_is_one(tree):
    does(tree, "test asan", "count 0 0; exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "114 passed, 1 failed")


def test_a_stage_that_fails_uncounted_is_one_failure_whatever_the_steps_count_meanwhile(tree):
    does(tree, "test asan", "count 10 0; touch counted")
    does(tree, "make demo", "until [[ -f counted ]]; do sleep 0.1; done; exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "123 passed, 1 failed")


def test_what_has_not_begun_by_the_first_limit_is_named_and_no_failure(tree):
    status, lines = run(tree, GPUSCHED_CI_LATEST_BEGIN_S="-1")
    assert (status, lines[-1]) == (0, "101 passed, 0 failed")
    assert left_out(lines) == [f"{name}, which had not begun after -1 s" for name in ("asan", "fuzz", "tsan-core")]


def test_what_is_under_way_at_the_second_limit_is_ended_and_named_and_no_failure(tree):
    does(tree, "fuzz --fixed", "sleep 3600 & echo $! >hanging; wait")
    does(tree, "make test", "until [[ -s hanging ]]; do sleep 0.1; done; echo '100 0' >>\"$GPUSCHED_TEST_TALLY\"")
    status, lines = run(tree, GPUSCHED_CI_LATEST_END_S="0")
    assert (status, lines[-1]) == (0, "111 passed, 0 failed")
    assert left_out(lines) == ["fuzz, which was under way after 0 s", "tsan-core, which had not begun after 4320 s"]
    hanging = pathlib.Path("/proc", (tree / "hanging").read_text().strip())
    while (hanging / "cmdline").exists() and (hanging / "cmdline").read_bytes():  # A zombie has none.
        time.sleep(0.05)


def test_a_failure_before_the_second_limit_counts_though_a_later_step_is_ended(tree):
    does(tree, "test asan", "echo 'the sanitizer says why'; count 9 1")
    does(tree, "fuzz --fixed", "touch hanging; sleep 3600")
    does(tree, "make test", "until [[ -f hanging ]]; do sleep 0.1; done; echo '100 0' >>\"$GPUSCHED_TEST_TALLY\"")
    status, lines = run(tree, GPUSCHED_CI_LATEST_END_S="0")
    assert (status, lines[-1]) == (1, "110 passed, 1 failed")
    assert "the sanitizer says why" in lines
