""".ci/run and `make test` sum up what their stages did, and let none that failed pass for a good one."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Stands for every tool that is called; what it does is decided by the file WORDS in the tree's folder `does`, WORDS being
# the program's name and its first two arguments, without characters that no file's name has.
FAKE = """#!/bin/bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."
words="$(basename "$0")${1:+ $1}${2:+ $2}"
words="${words//[^a-z._ -]/}"
words="${words%% }"
[[ ! -f "does/$words" ]] || source "does/$words"
"""
MAKE = """#!/bin/bash
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ ! -f does/make ]] || source does/make
"tools/$1" || { status=$?; echo "make: *** [Makefile:1: $1] Error $status"; exit 2; }
"""
RUN_TESTS = """#!/bin/bash
if [[ "$1" == --total || "$1" == --slowest ]]; then exec "%s/tools/run-tests" "$@"; fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
count() { echo "$1 $2" >>"$GPUSCHED_TEST_TALLY"; echo "$1 passed, $2 failed"; (($2 == 0)); }
what="test"
if [[ "${1:-}" == --build ]]; then what+=" $(basename "$2")"; fi
if [[ -f "does/$what" ]]; then source "does/$what"; else count 10 0; fi
""" % ROOT
GOOD = "31 passed, 0 failed"  # Three runs of tests, and the demonstration.


def git(tree, *words):
    done = subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@example.org", *words], cwd=tree,
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    """A committed checkout in which every tool does nothing, and each run of tests has 10 that pass."""
    for folder in (".ci", "tools", "does", "build"):
        (tmp_path / folder).mkdir()
    for name in (".ci/run", "tools/test", "tools/nightly", "tools/stages"):
        shutil.copy(ROOT / name, tmp_path / name)
    fakes = dict.fromkeys(("install-deps", "install-python", "build", "format", "demo.sh", "fuzz", "chaos", "planted",
                           "mutants", "web"), FAKE)
    for name, text in {**fakes, "make": MAKE, "run-tests": RUN_TESTS}.items():
        (tmp_path / "tools" / name).write_text(text)
        (tmp_path / "tools" / name).chmod(0o755)
    (tmp_path / ".gitignore").write_text("/build/\n/does/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def does(tree, words, script):
    (tree / "does" / words).write_text(script + "\n")


def run(tree, program=".ci/run", *words):
    environment = dict(os.environ, PATH=f"{tree}/tools:{os.environ['PATH']}")
    done = subprocess.run([str(tree / program), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, env=environment)
    return done.returncode, done.stdout.splitlines()


def test_everything_is_summed_up(tree):
    does(tree, "test", "echo '2.5 tests/e2e/test_a.py::test_it' >>\"$GPUSCHED_TEST_TIMES\"; count 10 0")
    status, lines = run(tree)
    assert (status, lines[-1]) == (0, GOOD)
    assert "     2.5 s  tests/e2e/test_a.py::test_it" in lines
    times = lines[lines.index("=== wall time"):]
    assert [line.rsplit(maxsplit=2)[0] for line in times[1:8]] == [
        "build", "format", "demonstration", "address sanitizer", "thread sanitizer", "tests", "total"]


def test_a_failed_test_is_counted_and_the_other_stages_go_on(tree):
    does(tree, "test asan", "echo 'the sanitizer says why'; count 9 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "30 passed, 1 failed")
    assert "the sanitizer says why" in lines and "=== tests" in lines


@pytest.mark.parametrize("words, last", [
    ("build release all-tests", "0 passed, 1 failed"), ("format --check", "31 passed, 1 failed"),
    ("demo.sh", "30 passed, 1 failed"), ("build tsan log_test", "21 passed, 1 failed")])
def test_a_stage_that_fails_uncounted_is_one_failure(tree, words, last):
    does(tree, words, "exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, last)


def test_tests_that_count_no_failure_but_end_badly_are_one(tree):
    does(tree, "test asan", "exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "21 passed, 1 failed")


def test_a_run_that_ends_before_it_has_summed_up_is_a_failure(tree):
    does(tree, "make", "echo '10 passed, 0 failed'; exit 1")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "10 passed, 1 failed")
    does(tree, "make", "exit 1")
    assert run(tree)[1][-1] == "0 passed, 1 failed"
    does(tree, "make", "exit 0")
    status, lines = run(tree)
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")


def test_without_the_packages_nothing_is_run(tree):
    does(tree, "install-deps --extra", "exit 1")
    status, lines = run(tree)
    assert (status, lines) == (1, ["0 passed, 1 failed"])


def test_flaky_tests_are_named_in_the_last_lines(tree):
    does(tree, "test", "echo 'flaky: tests/e2e/test_a.py::test_it' >>\"$GPUSCHED_TEST_TALLY\"; count 10 0")
    status, lines = run(tree, "tools/test")
    assert (status, lines[-1]) == (0, GOOD)
    assert lines[-2].startswith("flaky: tests/e2e/test_a.py::test_it")


def test_the_last_test_of_a_clean_checkout_is_kept(tree):
    does(tree, "test", "count 8 2")
    assert run(tree)[1][-1] == "29 passed, 2 failed"
    assert (tree / "build" / "last-test").read_text() == f"{git(tree, 'rev-parse', 'HEAD^{tree}')} 29 2\n"


@pytest.mark.parametrize("when", ["before", "meanwhile", "another commit"])
def test_the_last_test_of_a_changed_checkout_is_not(tree, when):
    change = {"before": "true", "meanwhile": "touch new", "another commit": "touch new; git add new; git -c user.name=a "
              "-c user.email=a@example.org commit -qm two"}[when]
    does(tree, "test", f"{change}; count 10 0")
    if when == "before":
        (tree / "new").write_text("")
    assert run(tree)[1][-1] == GOOD
    assert not (tree / "build" / "last-test").exists()


def test_the_nightly_run_sums_up_what_its_stages_count(tree):
    for name in ("fuzz", "chaos seeds", "chaos kill power", "planted --minutes", "mutants --minutes"):
        does(tree, name, "echo '3 passed, 0 failed'")
    status, lines = run(tree, "tools/nightly")
    runs = 4 if shutil.which("cargo") else 3  # Runs of tests: the consensus of replicas is left out without cargo.
    assert (status, lines[-1]) == (0, f"{10 * runs + 15} passed, 0 failed")
    does(tree, "planted --minutes", "echo '2 passed, 1 failed'; exit 1")
    status, lines = run(tree, "tools/nightly", "fuzz", "planted")
    assert (status, lines[-1]) == (1, "5 passed, 1 failed")
    assert run(tree, "tools/nightly", "nothing")[0] == 2


def test_a_stage_that_counts_only_passes_but_ends_badly_is_a_failure(tree):
    does(tree, "chaos seeds", "echo '3 passed, 0 failed'; exit 134")
    status, lines = run(tree, "tools/nightly", "seeds")
    assert (status, lines[-1]) == (1, "3 passed, 1 failed")


def test_each_nightly_test_exists():
    for line in (ROOT / "tests" / "nightly.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            file, _, name = line.partition("::")
            assert not name or f"def {name}(" in (ROOT / file).read_text(), line
