#!/usr/bin/env python3
r"""Counts steps, saves its work when it is told to make room for another job, and goes on from there.

    gpu-cli submit --gpus 1 --preempt-signal USR1 --preempt-grace 1m -- \
        python3 examples/training/checkpointed.py STATE 1000

STATE is a file that every node sees. On SIGUSR1 the step that runs is finished and saved, and GPU_CHECKPOINT_FILE is
touched, which tells the scheduler that the GPU may be taken at once: nothing is lost, and the other job does not wait
for the grace to pass. The next attempt, maybe on another node, begins where the file says.
"""

import os
import pathlib
import signal
import sys
import time


class Training:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.step = int(self.path.read_text()) if self.path.exists() else 0
        self.asked = False
        signal.signal(signal.SIGUSR1, self.on_signal)

    def on_signal(self, *_):
        self.asked = True  # Between two steps: half of one cannot be saved.

    def save(self):
        draft = self.path.with_suffix(".new")
        draft.write_text(str(self.step))
        os.replace(draft, self.path)  # A kill in the middle leaves the last one whole.

    def run(self, steps, seconds):
        print(f"begins at step {self.step}", flush=True)
        while self.step < steps:
            time.sleep(seconds)  # One step of training.
            self.step += 1
            if not self.asked:
                continue
            self.save()
            pathlib.Path(os.environ["GPU_CHECKPOINT_FILE"]).touch()
            print(f"saved at step {self.step}", flush=True)
            signal.pause()  # Nothing more that would be lost; the end comes with SIGTERM.
        print(f"finished {self.step} steps", flush=True)
        self.path.unlink(missing_ok=True)


if __name__ == "__main__":
    Training(sys.argv[1]).run(int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.1)
