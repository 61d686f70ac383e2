"""tools/build tells how far it is where no terminal shows it, and ends as ninja does."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from build_progress import Progress, line_of, what_was_done  # noqa: E402


def step(done, total, description="Building CXX object src/api/CMakeFiles/gpusched_api.dir/batch/api__0.cc.o"):
    return f"@step {done} {total} {description}"


def test_a_step_is_named_by_its_room_or_its_program():
    objects = "Building CXX object "
    assert what_was_done(objects + "src/api/CMakeFiles/gpusched_api.dir/batch/api__0.cc.o") == "compiled api"
    assert what_was_done(objects + "src/api/CMakeFiles/api_test.dir/a_test.cc.o") == "compiled tests of api"
    assert what_was_done(objects + "proto/CMakeFiles/gpusched_proto.dir/t.pb.cc.o") == "compiled proto"
    assert what_was_done("Linking CXX executable bin/gpu-cli") == "linked gpu-cli"
    assert what_was_done("Linking CXX static library src/api/libgpusched_api.a") == "linked api"
    assert what_was_done("Generating man/gpu-cli.1") == "generating man/gpu-cli.1"


def test_a_line_tells_how_far_and_how_long_still():
    assert line_of(50, 200, 100, "compiled api") == (
        "50 of 200 steps (25 %) in 100 s, about 5 min left; last step: compiled api")
    assert line_of(150, 200, 90, "") == "150 of 200 steps (75 %) in 90 s, about 30 s left"
    assert line_of(1, 200, 2, "") == "1 of 200 steps (0 %) in 2 s", "too early to say"
    assert line_of(200, 200, 300, "") == "200 of 200 steps (100 %) in 5 min"


def test_a_short_build_has_no_lines():
    progress = Progress()
    assert [progress.read(step(done, 10), done / 4) for done in range(1, 11)] == [[]] * 10
    assert progress.read("ninja: Entering directory `build'", 3) == []


def test_a_line_comes_after_a_tenth_or_a_quarter_of_a_minute():
    progress = Progress()
    assert progress.read(step(10, 200), 14) == []
    assert len(progress.read(step(11, 200), 15)) == 1
    assert progress.read(step(40, 200), 19) == [], "a tenth, and too soon after the line before"
    assert len(progress.read(step(41, 200), 20)) == 1
    assert progress.tick(34) == []
    assert len(progress.tick(35)) == 1, "one step may take longer"
    assert progress.read(step(42, 200), 36) == []


def test_before_the_first_step_there_is_nothing_to_tell():
    assert Progress().tick(100) == []


def test_what_compilers_say_passes_through():
    progress = Progress()
    for line in ("FAILED: a.o", "a.cc:1:1: error: no", "ninja: build stopped: subcommand failed.", ""):
        assert progress.read(line, 1) == [line]


def build_with(tmp_path, ninja):
    """Runs a copy of tools/build with a stand-in for ninja."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "build.ninja").touch()  # Configured already.
    for name in ("build", "build_progress.py"):
        (tmp_path / "tools" / name).symlink_to(ROOT / "tools" / name)
    (tmp_path / "bin" / "ninja").write_text("#!/bin/bash\n" + ninja)
    (tmp_path / "bin" / "ninja").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    environment.pop("GPUSCHED_BUILD_LOCK", None)
    return subprocess.run([tmp_path / "tools" / "build", "release", "x"], capture_output=True, text=True, check=False,
                          env=environment)


def test_a_build_that_fails_fails_with_what_was_said(tmp_path):
    status = 'status=${NINJA_STATUS//%f/1}; echo "${status//%t/9}Building CXX object a.o"; '
    failed = build_with(tmp_path, status + "echo FAILED: a.o; echo a.cc:1: error; exit 3")
    assert failed.returncode == 3
    assert failed.stdout.splitlines()[1:] == ["FAILED: a.o", "a.cc:1: error"]


def test_a_build_that_works_says_so(tmp_path):
    built = build_with(tmp_path, "echo \"ninja: Entering directory 'build'\"; echo 'ninja: no work to do.'")
    assert built.returncode == 0
    assert [line.split()[0] for line in built.stdout.splitlines()] == ["Building", "Built"]
