"""gpu-cli on a pseudo terminal of the test's, as it is for sessions: what is typed there, and what it shows."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

from harness import program, wait_until

READ_MAX = 1 << 16


class Screen:
    """gpu-cli on a pseudo terminal of ours, which also shows how it leaves the terminal."""

    def __init__(self, world, *words, rows=24, columns=80):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        environment = {**world.cli_environment(), "TERM": "xterm-256color"}
        self.process = subprocess.Popen([program("gpu-cli"), *words], stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, env=environment, start_new_session=True)

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # What is typed is echoed too, so that tests type the prompt in other words than the shell then shows it.
    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds=0.05):
        """All that was shown. Waits so long for more, and then as long as it flows, up to 64 kB."""
        before = len(self.seen)
        while len(self.seen) < before + READ_MAX and select.select([self.master], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.master, 65536)
                seconds = 0.01
                continue
            break
        return self.seen.decode("utf-8", "replace")

    def wait_for(self, text):
        return wait_until(f"the screen shows {text!r}", lambda: text in self.read() and self.read(0))

    def forget(self):
        self.read()
        self.seen = b""

    def wait_end(self):
        def ended():
            self.read()
            return self.process.poll() is not None

        wait_until("gpu-cli ends", ended)
        while True:
            before = len(self.seen)
            self.read()
            if len(self.seen) == before:
                return self.process.returncode

    def restored(self):
        return termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)
