"""A shell on a pseudo terminal of 80 columns and 24 rows: what is typed there, and what a person reads afterwards.

pyte is the terminal: what a program wraps, overwrites or draws on another screen is seen as a person sees it.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

import pyte
from harness import PATIENCE_S, wait_until

COLUMNS, ROWS = 80, 24
# The number of prompts and the last exit status are the terminal's title, so that a prompt can be waited for.
TITLE = """printf '\\033]2;%d %d\\007' "$((prompts += 1))" "$?" """.strip()


class TypedShell:
    """Bash as a person has it, with a prompt of `$ `."""

    def __init__(self, environment, folder):
        self.screen = pyte.HistoryScreen(COLUMNS, ROWS, history=10_000)
        self.stream = pyte.ByteStream(self.screen)
        self.master, slave = pty.openpty()
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=folder,
            env={**environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "$ ", "PS2": "> ", "HISTFILE": "",
                 "INPUTRC": "/dev/null", "PROMPT_COMMAND": TITLE},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.wait_prompt(1)

    def _read(self):
        while select.select([self.master], [], [], 0.01)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.stream.feed(data)

    def _title(self):
        self._read()
        words = self.screen.title.split()
        return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)

    def prompts(self):
        """How many prompts it has shown."""
        return self._title()[0]

    def wait_prompt(self, number):
        """Until the prompt of that number: the exit status before it."""
        wait_until("the shell shows its prompt", lambda: self._title()[0] >= number)
        wait_until("the cursor is behind the prompt", lambda: self._read() or self.lines()[-1].endswith("$"))
        return self._title()[1]

    def lines(self):
        """Everything shown so far, scrolled away or not, without blanks at the ends."""
        rows = [*self.screen.history.top, *(self.screen.buffer[row] for row in range(self.screen.cursor.y + 1))]
        return ["".join(row[column].data for column in range(COLUMNS)).rstrip() for row in rows]

    def type(self, text):
        """Types one command, waits for the prompt after it: (exit status, the lines that it left)."""
        number, before = self.prompts(), len(self.lines())
        self.keys(text + "\n")
        return self.wait_prompt(number + 1), self.lines()[before - 1:-1]

    def keys(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, text):
        """Until a line on the screen has the text; for programs that go on."""
        wait_until(f"the terminal shows {text!r}", lambda: self._read() or any(text in line for line in self.lines()))

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)
        os.close(self.master)
