#!/usr/bin/env python3
"""Progress lines of a build that no terminal shows: reads what ninja prints, and prints a line now and then.

tools/build sets NINJA_STATUS to STATUS, so that a finished step is a line "@step DONE TOTAL DESCRIPTION". All other
lines are what compilers and failed steps say: they pass through at once.
"""

import os
import re
import selectors
import sys
import time

STATUS = "@step %f %t "
LINE_EVERY_S = 15  # However little was done,
SHARE_EVERY = 0.1  # or when so much more of the whole is done,
SHARE_LINE_MIN_S = 5  # but no line follows the one before any sooner.
ESTIMATE_MIN_S = 10  # The first steps tell too little of the rest.

STEP = re.compile(r"@step (\d+) (\d+) (.*)")
OBJECT = re.compile(r"Building CXX object (?:src/)?([\w-]+)/CMakeFiles/([\w-]+)\.dir/")
LINKED = re.compile(r"Linking CXX (?:executable|static library|shared library|shared module) (?:.*/)?([\w.-]+)")


def what_was_done(description):
    """Returns a few words for ninja's description of a step: "compiled api", "linked gpu-cli"."""
    if found := OBJECT.match(description):
        folder, target = found.groups()
        return f"compiled tests of {folder}" if target.endswith("_test") else f"compiled {folder}"
    if found := LINKED.match(description):
        return "linked " + re.sub(r"^libgpusched_(.*)\.a$", r"\1", found[1])
    return description[:1].lower() + description[1:]


def span_text(seconds):
    """Returns "40 s" below two minutes, else "5 min"."""
    return f"{round(seconds)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def line_of(done, total, elapsed_s, what):
    """Returns the line that tells how far a build is. The rest is taken to go as fast as the steps before it."""
    left = ""
    if elapsed_s >= ESTIMATE_MIN_S and 0 < done < total:
        left = f", about {span_text(elapsed_s / done * (total - done))} left"
    last = f"; last step: {what}" if what else ""
    return f"{done} of {total} steps ({100 * done // total} %) in {span_text(elapsed_s)}{left}{last}"


class Progress:
    """What is to be printed of what ninja says; times are seconds since the build began."""

    def __init__(self):
        self.done = self.total = 0
        self.what = ""
        self.told_at = 0.0
        self.told_share = 0.0

    def read(self, line, now):
        """Takes one line of ninja's without its end, and returns the lines to print."""
        if found := STEP.fullmatch(line):
            self.done, self.total = int(found[1]), int(found[2])
            self.what = what_was_done(found[3])
            return self.tick(now)
        return [] if line.startswith("ninja: Entering directory") or line == "ninja: no work to do." else [line]

    def tick(self, now):
        """Returns the lines to print because so much time has passed."""
        if self.total == 0:
            return []
        share, since = self.done / self.total, now - self.told_at
        if since < LINE_EVERY_S and (since < SHARE_LINE_MIN_S or share - self.told_share < SHARE_EVERY):
            return []
        self.told_at, self.told_share = now, share
        return [line_of(self.done, self.total, now, self.what)]


def main():
    begun, progress, rest = time.monotonic(), Progress(), b""
    with selectors.DefaultSelector() as ready:
        ready.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            piece = os.read(sys.stdin.fileno(), 65536) if ready.select(timeout=1) else None
            *lines, rest = (rest + (piece or b"")).split(b"\n")
            if piece == b"" and rest:
                lines.append(rest)
            now = time.monotonic() - begun
            texts = [out for line in lines for out in progress.read(line.decode(errors="replace"), now)]
            for text in texts + progress.tick(now):
                print(text, flush=True)
            if piece == b"":
                return


if __name__ == "__main__":
    main()
