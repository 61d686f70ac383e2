"""tools/planted and tools/mutants take nothing for found that was not, and say which patches are out of date."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "# What is broken: two is taken for three.\n# Build: all\n# Finds: {finds}\n"
DIFF = """--- a/number
+++ b/number
@@ -1,3 +1,3 @@
 one
-two
+three
 three
"""


class Checkout:
    """A small checkout whose build does nothing, and the tool that is tried in it."""

    def __init__(self, path, tool):
        self.path = path
        self.tool = tool

    def __truediv__(self, name):
        return self.path / name


@pytest.fixture(name="checkout", params=["planted", "mutants"])
def checkout_fixture(tmp_path, request):
    tool = request.param
    for folder in ("tools", f"tests/{tool}", "build"):
        (tmp_path / folder).mkdir(parents=True)
    for name in (tool, "fault_patches.py"):
        (tmp_path / "tools" / name).write_bytes((ROOT / "tools" / name).read_bytes())
    (tmp_path / "tools" / "build").write_text("#!/bin/sh\nexit 0\n")
    for name in (tool, "build"):
        (tmp_path / "tools" / name).chmod(0o755)
    (tmp_path / "number").write_text("one\ntwo\nthree\n")
    (tmp_path / ".gitignore").write_text("/build/\n")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    return Checkout(tmp_path, tool)


def plant(checkout, name, finds, diff=DIFF):
    (checkout / "tests" / checkout.tool / f"{name}.patch").write_text(HEADER.format(finds=finds) + diff)


def run(checkout, *arguments):
    done = subprocess.run([str(checkout / "tools" / checkout.tool), *arguments], capture_output=True, text=True,
                          check=False, env=dict(os.environ))
    return done.returncode, done.stdout + done.stderr


def test_a_bug_that_its_command_fails_on_is_found(checkout):
    plant(checkout, "one", "grep -q two number")
    status, output = run(checkout)
    assert (status, output.splitlines()[-1]) == (0, "1 passed, 0 failed"), output
    assert (checkout / "number").read_text() == "one\ntwo\nthree\n"


def test_a_bug_that_nothing_notices_is_a_failure(checkout):
    plant(checkout, "one", "grep -q one number")
    plant(checkout, "two", "grep -q two number")
    status, output = run(checkout)
    assert (status, output.splitlines()[-1]) == (1, "1 passed, 1 failed"), output
    assert "one: NOT FOUND" in output


def test_a_command_that_fails_without_the_bug_proves_nothing(checkout):
    plant(checkout, "one", "grep -q four number")
    status, output = run(checkout)
    assert status == 1 and "fails without the" in output


def test_a_command_that_is_not_there_finds_nothing(checkout):
    plant(checkout, "one", "grep -q two number || build/bin/missing")
    status, output = run(checkout)
    assert status == 1 and "could not run" in output


def test_a_patch_that_does_not_apply_is_named(checkout):
    plant(checkout, "one", "grep -q two number", DIFF.replace("two", "deux"))
    status, output = run(checkout, "--check")
    assert (status, output.splitlines()[-1]) == (1, "0 passed, 1 failed")
    assert output.startswith("one:")


def test_a_patch_without_a_header_is_refused(checkout):
    (checkout / "tests" / checkout.tool / "one.patch").write_text(DIFF)
    status, output = run(checkout, "--check")
    assert status == 1 and "its header has no line" in output


def test_the_test_that_found_it_is_named(checkout):
    plant(checkout, "one", "grep -q two number || { echo '[  FAILED  ] Number.IsTwo (0 ms)'; false; }")
    status, output = run(checkout)
    assert status == 0 and "one: found by Number.IsTwo (" in output


def test_within_a_time_as_many_are_tried_as_begin_in_it(checkout, monkeypatch):
    monkeypatch.setenv("GPUSCHED_SEED", "3")  # The second of two.
    plant(checkout, "one", "grep -q two number")
    plant(checkout, "two", "sleep 0.1; grep -q two number")
    status, output = run(checkout, "--minutes", "60")
    assert (status, output.splitlines()[-1]) == (0, "2 passed, 0 failed"), output
    status, output = run(checkout, "--minutes", "0.001")
    assert status == 0 and "two: found" in output and "one: found" not in output
    assert output.splitlines()[-2:] == ["1 of 2 are left for another time: 0.001 minutes are over.", "1 passed, 0 failed"]
