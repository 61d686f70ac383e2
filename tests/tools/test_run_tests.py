"""tools/run-tests counts what ran and lets no broken suite pass for a good one."""

import json
import pathlib
import signal
import subprocess
import time

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
