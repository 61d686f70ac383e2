"""gpu-cli on a real terminal: what it draws, how it follows the size, and that it gives the terminal back."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios

import pytest
from harness import PATIENCE_S, program, wait_until

pytestmark = pytest.mark.shared_world
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")


class Terminal:
    """A program on a pseudo terminal of so many columns and rows."""

    def __init__(self, world, *words, columns=80, rows=24, shell=None):
        self.ours, theirs = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.ours)
        environment = {**world.cli_environment(), "TERM": "xterm-256color"}
        environment.pop("NO_COLOR", None)
        command = ["bash", "-c", shell] if shell else [program("gpu-cli"), *words]
        self.process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
                                        start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.theirs = theirs
        self.text = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.ours], [], [], 0.02)[0]:
            with contextlib.suppress(OSError):
                self.text += os.read(self.ours, 65536).decode("utf-8", "replace")
                continue
            break
        return self.text

    def frame(self):
        """The lines of the last whole screen."""
        frames = self.read().split("\x1b[H")
        return [ESCAPES.sub("", line).rstrip("\r") for line in frames[-1].split("\n")]

    def wait_for(self, what):
        wait_until(f"the screen shows {what!r}", lambda: any(what in line for line in self.frame()))

    def press(self, keys):
        os.write(self.ours, keys.encode())

    def end(self):
        status = self.process.wait(timeout=PATIENCE_S)
        self.read()
        return status

    def restored(self):
        """Off the alternate screen, with its cursor, keys as they were."""
        text = self.read()
        return text.rfind(LEAVE) > text.rfind(ENTER) and "\x1b[?25h" in text and termios.tcgetattr(self.ours) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture(name="on_terminal")
def on_terminal_fixture(world):
    with contextlib.ExitStack() as stack:

        def start(*words, **size):
            terminal = Terminal(world, *words, **size)
            stack.callback(terminal.close)
            return terminal

        yield start


def test_top_shows_gpus_and_jobs_and_follows_the_size(world, on_terminal):
    job = world.cli("submit", "--gpus", "2", "--name", "train", "--", "sleep", "600", expected=0).stdout.strip()
    top = on_terminal("top", "--interval", "1s")
    top.wait_for("n1-gpu-0")
    top.wait_for(f"{job}")
    top.wait_for("train")
    lines = top.frame()
    assert len(lines) == 24
    assert max(map(len, lines)) <= 80
    top.resize(160, 40)
    os.kill(top.process.pid, signal.SIGWINCH)
    wait_until("it fills the larger screen", lambda: len(top.frame()) == 40)
    assert any("n1-gpu-0" in line and "n1-gpu-2" in line for line in top.frame())
    top.press("h")
    top.wait_for("this help")
    top.press("hb")
    wait_until("the bars are gone", lambda: not any("n1-gpu-0" in line for line in top.frame()))
    top.press("q")
    assert top.end() == 0
    assert top.restored()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGSEGV])
def test_top_gives_the_terminal_back_however_it_ends(on_terminal, how):
    top = on_terminal("top")
    top.wait_for("n1-gpu-0")
    os.kill(top.process.pid, how)
    assert top.end() == -how
    assert top.restored()


def test_top_gives_the_terminal_back_while_it_is_stopped(world, on_terminal):
    stopped, go_on = world.folder / "stopped", world.folder / "go_on"
    # A shell with job control: it has the terminal while its job is stopped.
    top = on_terminal(shell=f"set -m; {program('gpu-cli')} top; touch {stopped}; until [ -e {go_on} ]; do sleep 0.05; done; fg > /dev/null")
    top.wait_for("n1-gpu-0")
    top.press("\x1a")  # Ctrl-Z
    wait_until("the shell goes on", stopped.exists)
    assert top.restored()
    go_on.touch()
    wait_until("it is on its screen again", lambda: top.read().rfind(ENTER) > top.read().rfind(LEAVE))
    top.wait_for("n1-gpu-0")
    top.press("q")
    assert top.end() == 0
    assert top.restored()


@pytest.mark.own_world
def test_top_outlives_a_scheduler_that_is_away(world, on_terminal):
    top = on_terminal("top", "--interval", "1s")
    top.wait_for("n1-gpu-0")
    world.scheduler.stop()
    top.wait_for("no scheduler answers")
    world.scheduler.start()
    top.wait_for("q quit")
    top.press("q")
    assert top.end() == 0


@pytest.mark.own_world
def test_a_watched_list_changes(world, on_terminal):
    watched = on_terminal("list", "--watch", "--interval", "1s", columns=100, rows=20)
    watched.wait_for("No jobs wait, run or ended")
    job = world.cli("submit", "--", "true", expected=0).stdout.strip()
    watched.wait_for(job)
    watched.wait_for("completed")
    watched.press("q")
    assert watched.end() == 0
    assert watched.restored()


def test_colours_are_for_terminals_that_want_them(world, on_terminal):
    world.cli("submit", "--wait", "--", "true", expected=0)
    listed = on_terminal("list")
    assert listed.end() == 0
    assert "\x1b[2mcompleted" in listed.text
    plain = on_terminal("list", "--color", "never")
    assert plain.end() == 0
    assert "\x1b[" not in plain.text
    assert "\x1b[" not in world.cli("list", expected=0).stdout


def test_what_to_type_first_is_said_on_a_terminal(on_terminal):
    lost = on_terminal("--api-url", "http://127.0.0.1:1", "list")
    assert lost.end() == 3
    assert "gpu-scheduler dev" in lost.text
    assert "gpu-cli context set" in lost.text


def test_a_screen_is_not_drawn_into_a_pipe(world):
    text = world.cli("top", expected=0).stdout
    assert "n1-gpu-0" in text and "\x1b" not in text
