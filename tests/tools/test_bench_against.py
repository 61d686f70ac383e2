"""tools/bench-against builds two trees and compares their figures; the trees here are stand-ins of a few lines."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Builds each target: a program says its tree's rate, a benchmark prints what bench/ has for it.
BUILD = """#!/bin/bash
cd "$(dirname "$0")/.." && shift && mkdir -p build/bin build/bench || exit 1
echo "$*" >>build/targets
for name; do
  case "$name" in
    *_bench) cp "bench/$name.cc" "build/bench/$name" ;;
    *) cp rate "build/bin/$name" ;;
  esac
done
"""
DRIVEN = """#!/bin/bash
: '
// rooms: bench_load
'
read -r rate <"$(dirname "$0")/../bin/gpu-scheduler"
echo "figure  $rate submissions/s, p99 2.00 ms, medians (driver DRIVER)" | tee -a "$SAID"
"""
CONTAINED = """#!/bin/bash
: '
// rooms: bench_support engine base
'
echo "lives   10 in 1.00 s: RATE jobs/s; in 0.50 s of CPU: 1000 jobs/s" | tee -a "$SAID"
"""


class World:
    """A repository of two commits: the older says 1,000 submissions a second, the checkout 900."""

    def __init__(self, folder):
        self.root = folder / "checkout"
        self.load = folder / "loadavg"
        self.said = folder / "said"
        self.load.write_text("0.10 0.20 0.30 1/100 4711\n")
        (self.root / "tools").mkdir(parents=True)
        shutil.copy2(ROOT / "tools" / "bench-against", self.root / "tools" / "bench-against")
        self.write("tools/build", BUILD)
        (self.root / ".gitignore").write_text("build/\n")
        self.write("rate", "1000\n")
        self.write("bench/rest_bench.cc", DRIVEN.replace("DRIVER", "old"))
        self.write("bench/engine_bench.cc", CONTAINED.replace("RATE", "1000"))
        self.git("init", "--quiet")
        self.base = self.commit()
        (self.root / "bench" / "rest_bench.cc").unlink()
        self.write("bench/doors/rest_bench.cc", DRIVEN.replace("DRIVER", "new"))
        self.write("tools/build", BUILD.replace("bench/$name.cc", "bench/doors/$name.cc"))
        self.write("bench/doors/engine_bench.cc", CONTAINED.replace("RATE", "990"))
        self.commit()
        self.write("rate", "900\n")

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def git(self, *words):
        command = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@example", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a commit")
        return self.git("rev-parse", "HEAD")

    def run(self, *arguments):
        return subprocess.run([self.root / "tools" / "bench-against", *arguments], capture_output=True, text=True,
                              check=False, env={**os.environ, "GPUSCHED_LOADAVG": str(self.load),
                                                "SAID": str(self.said)})

    def refused(self, *arguments):
        done = self.run(*arguments)
        assert done.returncode != 0 and done.stdout == ""
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture(name="world")
def fixture_world(tmp_path):
    return World(tmp_path)


def figures(done):
    assert done.returncode == 0, done.stderr
    return {row["figure"]: row for row in json.loads(done.stdout)["figures"]}


def test_both_trees_are_measured_and_a_loss_is_marked(world):
    done = world.run(world.base, "rest", "--rounds", "2")
    assert done.returncode == 0, done.stderr
    lines = [[cell.strip() for cell in line.strip("|").split("|")]
             for line in done.stdout.splitlines() if line.startswith("|")]
    assert lines[0][3:5] == [world.base[:8], world.git("rev-parse", "--short=8", "HEAD") + " and changes"]
    assert lines[2] == ["rest", "submissions by REST", "1/s", "1000", "900", "0.900", "0.900 .. 0.900", "LOST"]
    assert lines[3] == ["rest", "its p99", "ms", "2", "2", "1.000", "1.000 .. 1.000", ""]


def test_the_programs_of_both_trees_meet_the_benchmark_of_this_one(world):
    assert figures(world.run(world.base, "rest", "--rounds", "1", "--json"))["submissions by REST"]["ratio"] == 0.9
    assert "driver old" not in world.said.read_text()
    world.said.unlink()
    figures(world.run(world.base, "rest", "--rounds", "1", "--json", "--own-drivers"))
    assert "driver old" in world.said.read_text()


def test_who_begins_alternates(world):
    figures(world.run(world.base, "rest", "--rounds", "3", "--json"))
    rates = [line.split()[1] for line in world.said.read_text().splitlines()]
    assert rates == ["1000", "900", "900", "1000", "1000", "900"]


def test_a_benchmark_that_contains_what_it_measures_is_each_trees_own(world):
    row = figures(world.run(world.base, "engine", "--rounds", "2", "--json"))["engine in process"]
    assert (row["base_rounds"], row["here_rounds"], row["lost"]) == ([1000, 1000], [990, 990], False)
    assert (world.root / "build" / "targets").read_text() == "engine_bench\n"


def test_a_second_run_takes_the_checkout_of_the_first(world):
    folder = world.root / "build" / "against" / world.base[:12]
    figures(world.run(world.base, "rest", "--rounds", "1", "--json"))
    (folder / "rate").write_text("450\n")
    assert figures(world.run(world.base, "rest", "--rounds", "1", "--json"))["submissions by REST"]["ratio"] == 2


def test_a_folder_of_another_commit_is_refused(world, tmp_path):
    (tmp_path / "other").mkdir()
    assert "is no checkout of" in world.refused(world.base, "rest", "--folder", str(tmp_path / "other"))


def test_an_unknown_commit_is_named(world):
    assert "no commit 'nosuch'" in world.refused("nosuch", "rest")


def test_an_unknown_benchmark_is_named_with_those_there_are(world):
    stderr = world.refused(world.base, "nosuch")
    assert "'nosuch'" in stderr and "lifecycle" in stderr


def test_a_benchmark_that_the_other_commit_lacks_is_refused_before_anything_is_built(world):
    world.git("rm", "--quiet", "bench/engine_bench.cc", "bench/doors/engine_bench.cc")
    without = world.commit()
    world.write("bench/engine_bench.cc", CONTAINED)
    assert f"{without[:8]} has no benchmark 'engine'" in world.refused(without, "engine")
    assert not (world.root / "build" / "targets").exists()


def test_a_busy_machine_is_refused_unless_told(world):
    world.load.write_text("0.93 0.20 0.30 1/100 4711\n")
    assert "0.93" in world.refused(world.base, "rest")
    assert not (world.root / "build").exists()
    assert world.run(world.base, "rest", "--busy", "--rounds", "1").returncode == 0


def test_a_benchmark_that_fails_shows_what_it_said(world):
    world.write("bench/doors/rest_bench.cc", DRIVEN + "echo 'failed: no disk' >&2; exit 1\n")
    stderr = world.refused(world.base, "rest")
    assert "failed: no disk" in stderr and "exit status 1" in stderr


def test_a_benchmark_without_its_figure_is_an_error(world):
    world.write("bench/doors/rest_bench.cc", DRIVEN.replace("submissions/s", "calls"))
    assert "printed no figure 'submissions by REST'" in world.refused(world.base, "rest")


def test_a_tree_that_does_not_build_is_named(world):
    world.write("tools/build", "#!/bin/sh\nexit 1\n")
    assert "and changes does not build" in world.refused(world.base, "rest")


def test_every_benchmark_it_knows_is_in_this_tree():
    listed = subprocess.run([ROOT / "tools" / "bench-against", "--list"], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        assert list(ROOT.glob(f"bench/**/{line.split()[0]}_bench.cc")), line
