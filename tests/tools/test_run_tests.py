"""tools/run-tests counts what ran and lets no broken suite pass for a good one."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUNNER = ROOT / "tools" / "run-tests"


def program(folder, name, body):
    path = folder / name
    path.write_text("#!/bin/bash\n" + body + "\n")
    path.chmod(0o755)
    return str(path)


def run(folder, suites, *arguments):
    """Runs the runner on a made-up build folder; suites are (name, kind, shell body)."""
    (folder / "tests").mkdir()
    manifest = [{"name": name, "kind": kind, "fast": True, "command": [program(folder, name, body)]}
                for name, kind, body in suites]
    (folder / "tests" / "suites.json").write_text(json.dumps(manifest))
    command = [str(RUNNER), "--build", str(folder), "--only", *[suite[0] for suite in suites], *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


GTEST_REPORT = {"testsuites": [{"testsuite": [
    {"status": "RUN", "result": "COMPLETED"}, {"status": "RUN", "result": "COMPLETED", "failures": [{}]},
    {"status": "RUN", "result": "SKIPPED"}, {"status": "NOTRUN", "result": "SUPPRESSED"}]}]}


def test_a_line_suite_is_counted_by_its_last_line(tmp_path):
    status, lines = run(tmp_path, [("one", "line", "echo '99 passed, 99 failed'; echo '3 passed, 0 failed'"),
                                   ("two", "line", "echo '4 passed, 0 failed'")])
    assert (status, lines[-1]) == (0, "7 passed, 0 failed")


def test_a_gtest_suite_is_counted_by_its_report(tmp_path):
    body = f"echo '{json.dumps(GTEST_REPORT)}' > \"${{1#--gtest_output=json:}}\"; exit 1"
    status, lines = run(tmp_path, [("unit", "gtest", body)])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")


def test_a_gtest_suite_that_dies_counts_what_it_had_passed_and_one_failure(tmp_path):
    status, lines = run(tmp_path, [("unit", "gtest", "echo '[       OK ] A.B (0 ms)'; kill -ABRT $$")])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert any("SIGABRT" in line for line in lines)


def test_shares_of_a_suite_run_each_of_its_tests_once(tmp_path):
    report = json.dumps({"testsuites": [{"testsuite": [{"status": "RUN", "result": "COMPLETED"}]}]})
    body = (f"echo '{report}' > \"${{1#--gtest_output=json:}}\"\n"
            f"echo \"$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS\" >> '{tmp_path}/shares'")
    status, lines = run(tmp_path, [("api_test", "gtest", body)])
    assert (status, lines[-1]) == (0, "4 passed, 0 failed")
    assert sorted((tmp_path / "shares").read_text().splitlines()) == [f"{index} of 4" for index in range(4)]


def test_a_suite_without_tests_fails(tmp_path):
    status, lines = run(tmp_path, [("empty", "line", "echo '0 passed, 0 failed'"),
                                   ("good", "line", "echo '1 passed, 0 failed'")])
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert any("no test ran" in line for line in lines)


def test_a_suite_that_counts_only_passes_but_exits_badly_fails(tmp_path):
    status, lines = run(tmp_path, [("liar", "line", "echo '5 passed, 0 failed'; exit 3")])
    assert (status, lines[-1]) == (1, "5 passed, 1 failed")


def test_a_suite_that_does_not_count_fails(tmp_path):
    status, lines = run(tmp_path, [("mute", "line", "echo hello")])
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")


def test_a_program_that_is_not_there_fails(tmp_path):
    (tmp_path / "tests").mkdir()
    manifest = [{"name": "gone", "kind": "gtest", "fast": True, "command": [str(tmp_path / "gone")]}]
    (tmp_path / "tests" / "suites.json").write_text(json.dumps(manifest))
    done = subprocess.run([str(RUNNER), "--build", str(tmp_path), "--only", "gone"], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "0 passed, 1 failed")


def test_a_suite_that_hangs_is_stopped_and_fails(tmp_path):
    status, lines = run(tmp_path, [("slow", "line", "sleep 600 & wait")], "--limit", "1")
    assert (status, lines[-1]) == (1, "0 passed, 1 failed")
    assert any("stopped after 1 s" in line for line in lines)


def test_suites_end_with_the_runner(tmp_path):
    (tmp_path / "tests").mkdir()
    hanging = program(tmp_path, "hanging", f"echo $$ >{tmp_path}/begun.new; mv {tmp_path}/begun.new {tmp_path}/begun; "
                                           "exec sleep 3600")
    (tmp_path / "tests" / "suites.json").write_text(
        json.dumps([{"name": "hanging", "kind": "line", "fast": True, "command": [hanging]}]))
    with subprocess.Popen([str(RUNNER), "--build", str(tmp_path), "--only", "hanging"],
                          stdout=subprocess.DEVNULL) as runner:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        runner.terminate()
    suite = pathlib.Path("/proc", (tmp_path / "begun").read_text().strip(), "cmdline")
    while suite.exists() and suite.read_bytes():  # A zombie has none.
        time.sleep(0.05)
    assert runner.returncode == 128 + signal.SIGTERM


def test_only_failures_show_their_output(tmp_path):
    _, lines = run(tmp_path, [("good", "line", "echo quiet; echo '1 passed, 0 failed'"),
                              ("bad", "line", "echo loud; echo '0 passed, 1 failed'")])
    assert "loud" in lines and "quiet" not in lines


def test_a_tally_sums_several_runs(tmp_path):
    tally = tmp_path / "tally"
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        run(folder, [("one", "line", f"echo '{number} passed, 1 failed'")], "--tally", str(tally))
    done = subprocess.run([str(RUNNER), "--total", str(tally)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (1, "3 passed, 2 failed")


def test_what_fails_now_and_then_is_named_with_how_often(tmp_path):
    flaky = f"echo >> {tmp_path}/runs; if (( $(wc -l < {tmp_path}/runs) == 2 )); then echo '0 passed, 1 failed'; " \
            "else echo '1 passed, 0 failed'; fi"
    status, lines = run(tmp_path, [("steady", "line", "echo '1 passed, 0 failed'"), ("flaky", "line", flaky)],
                        "--repeat", "3")
    assert (status, lines[-1]) == (1, "5 passed, 1 failed")
    assert "failed in 1 of 3 runs: flaky" in lines
    assert not any("runs: steady" in line for line in lines)


def test_random_tests_start_from_the_same_number_unless_one_is_given(tmp_path, monkeypatch):
    body = f"echo $GPUSCHED_SEED > {tmp_path}/seen; echo '1 passed, 0 failed'"
    monkeypatch.delenv("GPUSCHED_SEED", raising=False)
    run(tmp_path, [("one", "line", body)])
    assert (tmp_path / "seen").read_text().strip() == "1"
    monkeypatch.setenv("GPUSCHED_SEED", "123")
    (tmp_path / "again").mkdir()
    run(tmp_path / "again", [("one", "line", body)])
    assert (tmp_path / "seen").read_text().strip() == "123"


# --- Tests that fail and pass when they are run again ---

# A test of a module's fixture: it fails, in its body or in its fixture, until it was run `times` times.
FLAKY = """
import pathlib, pytest

def runs(name):
    path = pathlib.Path(__file__).with_name(name + ".runs")
    count = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count

"""
OFTEN = "class TestIt:\n    @pytest.mark.parametrize('how', ['a/b', 'c.d'])\n    def test_often(self, how): assert runs('often') > 2\n"
SETUP = "@pytest.fixture(scope='module')\ndef world(): assert runs('world') > 1\ndef test_in_setup(world): pass\n"


def run_e2e(folder, files, *arguments, made_up="e2e"):
    """Runs a copy of the runner in a checkout that has only these end-to-end tests."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "run-tests").write_bytes(RUNNER.read_bytes())
    (folder / "tests" / made_up).mkdir(parents=True)
    for name, text in files.items():
        (folder / "tests" / made_up / name).write_text(FLAKY + text)
    (folder / "build" / "tests").mkdir(parents=True)
    (folder / "build" / "tests" / "suites.json").write_text("[]")
    done = subprocess.run([sys.executable, str(folder / "tools" / "run-tests"), *arguments], capture_output=True, text=True,
                          check=False)
    return done.returncode, done.stdout.splitlines()


def flaky(lines):
    return [line.removeprefix("flaky: ").split(" ")[0] for line in lines if line.startswith("flaky: ")]


def flaky_tests(count):
    return "\n".join(f"def test_{i}(): assert runs('{i}') > 1" for i in range(count)) + "\n"


def test_a_test_that_passes_when_it_is_run_again_is_passed_and_named(tmp_path):
    tally = tmp_path / "tally"
    status, lines = run_e2e(tmp_path, {"test_a.py": OFTEN, "test_b.py": SETUP + "def test_good(): pass\n"},
                            "--tally", str(tally))
    # Each test of the class fails once, and passes as the third and fourth run.
    assert (status, lines[-1]) == (0, "4 passed, 0 failed")
    named = ["tests/e2e/test_a.py::TestIt::test_often[a/b]", "tests/e2e/test_a.py::TestIt::test_often[c.d]",
             "tests/e2e/test_b.py::test_in_setup"]
    assert flaky(lines) == named and flaky(lines[-4:]) == named
    done = subprocess.run([str(RUNNER), "--total", str(tally)], capture_output=True, text=True, check=False)
    assert (done.returncode, flaky(done.stdout.splitlines())) == (0, named)
    assert done.stdout.splitlines()[-1] == "4 passed, 0 failed"


def test_a_test_that_fails_again_is_a_failure(tmp_path):
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(1) + "def test_never(): assert runs('never') > 9\n"})
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")
    assert flaky(lines) == ["tests/e2e/test_a.py::test_0"]
    assert (tmp_path / "tests/e2e/never.runs").read_text() == "2"


@pytest.mark.parametrize("count, last", [(3, "3 passed, 0 failed"), (4, "0 passed, 4 failed")])
def test_more_than_three_flaky_tests_are_failures(tmp_path, count, last):
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(count)})
    assert (status, lines[-1]) == (0 if count == 3 else 1, last)
    assert len(flaky(lines)) == count


def test_none_of_many_failures_is_run_again(tmp_path):
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(11)})
    assert (status, lines[-1]) == (1, "0 passed, 11 failed")
    assert (tmp_path / "tests/e2e/0.runs").read_text() == "1"


def test_a_test_of_a_promise_is_not_run_again(tmp_path):
    names = ["chaos", "power_loss", "restart", "security_box"]
    status, lines = run_e2e(tmp_path, {f"test_{name}.py": f"def test_it(): assert runs('{name}') > 1\n" for name in names})
    assert (status, lines[-1], flaky(lines)) == (1, "0 passed, 4 failed", [])
    assert [(tmp_path / f"tests/e2e/{name}.runs").read_text() for name in names] == ["1"] * 4


def test_no_test_of_a_file_that_is_run_by_itself_is_run_again(tmp_path):
    path = str(tmp_path / "tests" / "e2e" / "test_a.py")
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(1)}, "--path", path)
    assert (status, lines[-1], flaky(lines)) == (1, "0 passed, 1 failed", [])


def test_a_run_that_ends_before_its_tests_do_is_a_failure_whatever_passes_again(tmp_path):
    # As pytest ends by an error of its own.
    conftest = "def pytest_sessionfinish(session):\n    if session.testsfailed: session.exitstatus = 3\n"
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(1), "conftest.py": conftest})
    assert (status, lines[-1]) == (1, "1 passed, 1 failed")


def test_only_end_to_end_tests_are_run_again(tmp_path):
    status, lines = run_e2e(tmp_path, {"test_a.py": flaky_tests(1)}, made_up="api")
    assert (status, lines[-1], flaky(lines)) == (1, "0 passed, 1 failed", [])


def test_a_file_that_cannot_be_read_is_a_failure_and_is_not_run_again(tmp_path):
    status, lines = run_e2e(tmp_path, {"test_a.py": "assert runs('import') > 4\ndef test_it(): pass\n"})
    assert (status, flaky(lines)) == (1, [])
    assert lines[-1].startswith("0 passed, ")


def test_a_test_that_fails_and_cannot_clean_up_is_one_failure(tmp_path):
    text = "@pytest.fixture\ndef world():\n    yield\n    assert False\ndef test_it(world): assert False\n"
    assert run_e2e(tmp_path, {"test_a.py": text})[1][-1] == "0 passed, 1 failed"


# --- Tests that are for the night, and the time of each ---


def test_tests_for_the_night_are_left_out_unless_they_are_asked_for(tmp_path):
    files = {"test_a.py": "@pytest.mark.parametrize('how', [1, 2])\ndef test_long(how): assert False\ndef test_short(): pass\n",
             "test_b.py": "def test_it(): assert False\n"}
    for folder, arguments, last in (("day", [], "1 passed, 0 failed"), ("night", ["--nightly"], "1 passed, 3 failed")):
        (tmp_path / folder / "tests").mkdir(parents=True)
        (tmp_path / folder / "tests" / "nightly.txt").write_text(
            "# Long ones.\ntests/e2e/test_a.py::test_long\n\ntests/e2e/test_b.py\n")
        assert run_e2e(tmp_path / folder, files, *arguments)[1][-1] == last


def test_each_tests_time_is_kept_and_the_longest_are_shown(tmp_path, monkeypatch):
    times = tmp_path / "times"
    monkeypatch.setenv("GPUSCHED_TEST_TIMES", str(times))
    report = {"testsuites": [{"testsuite": [{"status": "RUN", "result": "COMPLETED", "classname": "A", "name": name, "time": time}
                                            for name, time in (("Short", "0.001s"), ("Long", "7200.5s"))]}]}
    (tmp_path / "units").mkdir()
    run(tmp_path / "units", [("unit", "gtest", f"echo '{json.dumps(report)}' > \"${{1#--gtest_output=json:}}\""),
                             ("one", "line", "echo '1 passed, 0 failed'")])
    (tmp_path / "e2e").mkdir()
    run_e2e(tmp_path / "e2e", {"test_a.py": "".join(f"def test_{i}(): pass\n" for i in range(30))})
    done = subprocess.run([str(RUNNER), "--slowest", str(times)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(times.read_text().splitlines()) == 33 and len(lines) == 20
    assert lines[0].split() == ["7200.5", "s", "A.Long"]
    assert any("tests/e2e/test_a.py::test_" in line for line in lines)
    assert any("one (all of it)" in line for line in times.read_text().splitlines())


# --- Suites that need what is not everywhere ---

def run_kube(folder, check, *arguments):
    """Runs the runner in a checkout that has one Kubernetes test, where tools/control-plane is the shell text `check`."""
    (folder / "tools").mkdir()
    program(folder / "tools", "control-plane", check)
    (folder / "tests" / "house").mkdir(parents=True)
    (folder / "tests" / "house" / "test_house.py").write_text("def test_it(): pass\n")
    return run_e2e(folder, {"test_a.py": "def test_it(): pass\n"}, *arguments, made_up="kube")


def test_a_suite_whose_needs_are_missing_is_left_out_by_name(tmp_path):
    tally = tmp_path / "tally"
    status, lines = run_kube(tmp_path, "echo 'not built: kubectl'; exit 1", "--tally", str(tally))
    assert (status, lines[-2:]) == (0, ["left out: kube (not built: kubectl)", "1 passed, 0 failed"])
    done = subprocess.run([str(RUNNER), "--total", str(tally)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["left out: kube (not built: kubectl)", "1 passed, 0 failed"]


def test_a_suite_whose_needs_are_there_runs(tmp_path):
    status, lines = run_kube(tmp_path, 'test "$*" = check')
    assert (status, lines[-1]) == (0, "2 passed, 0 failed")
    assert not [line for line in lines if line.startswith("left out")]


def test_a_suite_that_was_asked_for_and_is_left_out_is_no_success(tmp_path):
    status, lines = run_kube(tmp_path, "echo 'no Go'; exit 1", "--only", "kube")
    assert (status, lines[-2:]) == (1, ["left out: kube (no Go)", "0 passed, 0 failed"])
