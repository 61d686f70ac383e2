"""What tools/planted and tools/mutants have in common: patches that break this tree, and commands that must notice.

A fault is a patch with a header of lines above its diff:

  # What is broken: a sentence.
  # Build: engine_test                                the targets that it needs
  # Finds: build/tests/engine_test --gtest_filter=X   a command that must fail with the fault, and pass without it

The patches are applied, one at a time, to a copy of this checkout, which is built beside it (objects come from ccache
where nothing changed). A fault that is not found, a patch that does not apply and a command that fails on the unchanged
tree are failures; the last line is 'N passed, N failed'.
"""

import argparse
import dataclasses
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a shell says of a command that it could not run: no finding.
NOT_RUN = (126, 127)
NEED_CARGO = {"consensus_test", "replication_test", "peers_test"}
CARGO = {"GPUSCHED_RAFT": "ON"} if shutil.which("cargo") else {}


@dataclasses.dataclass
class Kind:
    tool: str     # The program's name below tools/.
    noun: str     # What one patch is called.
    folder: str   # Of the patches.
    copy: str     # Of the checkout.
    hang_s: float

    @property
    def patches(self):
        return ROOT / self.folder

    @property
    def tree(self):
        return ROOT / self.copy


@dataclasses.dataclass
class Fault:
    path: pathlib.Path
    broken: str
    targets: list
    finds: str

    @property
    def name(self):
        return self.path.stem


def read_fault(path):
    header = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        match = re.fullmatch(r"# ([A-Z][a-z ]*): (.+)", line)
        if match:
            header[match[1]] = match[2].strip()
    missing = [field for field in ("What is broken", "Build", "Finds") if field not in header]
    if missing:
        raise ValueError(f"{path.name}: its header has no line '# {missing[0]}: ...'")
    return Fault(path, header["What is broken"], header["Build"].split(), header["Finds"])


def apply_patch(tree, fault, *options):
    # One line of context is enough to know the place: the code around it may change.
    done = subprocess.run(["git", "apply", "-C1", *options, str(fault.path)], cwd=tree, capture_output=True, text=True,
                          check=False)
    return done.stderr.strip() if done.returncode else ""


def copy_tree(tree):
    """Brings the copy to what this checkout holds now; untouched files keep their times, so that little is built."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, check=True).stdout.decode().split("\0")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    if not (tree / ".git").exists():
        tree.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "init", "-q", str(tree)], check=True)  # `git apply` shall not see the checkout above.
    for folder, folders, files in os.walk(tree):
        folders[:] = [name for name in folders if name not in (".git", "build")]
        for file in files:
            path = pathlib.Path(folder) / file
            if str(path.relative_to(tree)) not in wanted:
                path.unlink()
    for name in wanted:
        source, target = ROOT / name, tree / name
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def left_out(fault):
    """Whether a fault is of a room that this machine cannot build; names it."""
    if not NEED_CARGO.intersection(fault.targets):
        return False
    print(f"{fault.name}: left out, there is no cargo", flush=True)
    return True


def build(kind, targets):
    done = subprocess.run(["tools/build", "release", *targets], cwd=kind.tree, capture_output=True, text=True, check=False,
                          env={name: value for name, value in os.environ.items() if name != "GPUSCHED_BUILD_LOCK"} | CARGO)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def run(kind, command):
    """Returns (exit status, output); None as status: it hung, and all that it started was killed."""
    with subprocess.Popen(["/bin/bash", "-c", command], cwd=kind.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
                          env=dict(os.environ, GTEST_FAIL_FAST="1", GTEST_BRIEF="1")) as process:
        try:
            output, _ = process.communicate(timeout=kind.hang_s)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, ""


def finder(output):
    """What found it, for the line that says so: a test, or how many seeds of a simulation were needed."""
    test = re.search(r"^\[  FAILED  \] ([\w./]+)", output, re.MULTILINE)
    if test:
        return f" by {test[1]}"
    seeds = re.search(r"^(\d+) passed, 1 failed$", output, re.MULTILINE)
    return f" by number {int(seeds[1]) + 1}" if seeds else ""


def judge(kind, fault):
    """An empty string when the fault was found."""
    trouble = apply_patch(kind.tree, fault)
    if trouble:
        return f"does not apply: {trouble}"
    started = time.monotonic()
    try:
        trouble = build(kind, fault.targets)
        if trouble:
            return f"does not build:\n{trouble}"
        status, output = run(kind, fault.finds)
    finally:
        apply_patch(kind.tree, fault, "--reverse")
    if status == 0:
        return f"NOT FOUND by: {fault.finds}"
    if status in NOT_RUN:
        return f"could not run: {fault.finds}\n{output[-2000:]}"
    how = "it hangs" if status is None else f"found{finder(output)}"
    print(f"{fault.name}: {how} ({time.monotonic() - started:.0f} s)", flush=True)
    return ""


def check_clean(kind, chosen):
    """Commands that fail without any fault, with what they printed."""
    targets = sorted({target for fault in chosen for target in fault.targets})
    trouble = build(kind, targets)
    if trouble:
        sys.exit(f"tools/{kind.tool}: the unchanged tree does not build:\n{trouble}")
    broken = {}
    for command in sorted({fault.finds for fault in chosen}):
        status, output = run(kind, command)
        if status != 0:
            broken[command] = output[-2000:]
    return broken


def try_all(kind, chosen):
    failed = 0
    copy_tree(kind.tree)
    broken = check_clean(kind, chosen)
    for fault in chosen:
        trouble = judge(kind, fault) if fault.finds not in broken else (
            f"{fault.finds} fails without the {kind.noun} too:\n{broken[fault.finds]}")
        if trouble:
            failed += 1
            print(f"{fault.name}: {trouble}", flush=True)
    return failed


def try_for(kind, chosen, minutes):
    """Tries one after the other, from one drawn with GPUSCHED_SEED or by chance, until the time is over. Returns how many
    were tried, and how many of them failed."""
    seed = int(os.environ.get("GPUSCHED_SEED") or random.SystemRandom().randrange(len(chosen)))
    first = seed % len(chosen)
    ends_at, tried, failed = time.monotonic() + 60 * minutes, 0, 0
    for fault in chosen[first:] + chosen[:first]:
        if time.monotonic() > ends_at:
            print(f"{len(chosen) - tried} of {len(chosen)} are left for another time: {minutes} minutes are over.", flush=True)
            break
        tried += 1
        failed += try_all(kind, [fault])
    return tried, failed


def check_all(chosen):
    failed = 0
    for fault in chosen:
        trouble = apply_patch(ROOT, fault, "--check")
        if trouble:
            failed += 1
            print(f"{fault.name}: {trouble}")
    return failed


def main(kind, description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"a part of a {kind.noun}'s file name")
    parser.add_argument("--list", action="store_true", help=f"name each {kind.noun} and the command that must find it")
    parser.add_argument("--check", action="store_true", help="only whether each patch applies and its header is whole")
    parser.add_argument("--minutes", type=float, help=f"begin no {kind.noun} after so long")
    options = parser.parse_args()
    try:
        chosen = [read_fault(path) for path in sorted(kind.patches.glob("*.patch"))]
    except ValueError as error:
        sys.exit(f"tools/{kind.tool}: {error}")
    if options.names:
        chosen = [fault for fault in chosen if any(name in fault.name for name in options.names)]
    if not chosen:
        sys.exit(f"tools/{kind.tool}: no patch has such a name; --list names them")
    if options.list:
        for fault in chosen:
            print(f"{fault.name}: {fault.broken}\n    {fault.finds}")
        return 0
    if not CARGO and not options.check:
        chosen = [fault for fault in chosen if not left_out(fault)]
    tried = len(chosen)
    if options.check:
        failed = check_all(chosen)
    elif options.minutes is not None:
        tried, failed = try_for(kind, chosen, options.minutes)
    else:
        failed = try_all(kind, chosen)
    print(f"{tried - failed} passed, {failed} failed")
    return 1 if failed else 0
