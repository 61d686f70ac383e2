#!/usr/bin/env python3
"""A persistent worker: stays, and answers one task after the other (docs/reference/agent-tasks.md).

    GPU_SCHEDULER_TASKS_OTHER_COMMAND=/opt/workers/worker.py GPU_SCHEDULER_TASKS_OTHER_WORKER=persistent gpu-scheduler dev

Where nothing gives it frames it is an ordinary command: one payload on its input, the result on its output.
"""

import json
import os
import struct
import sys


def answer(payload, environment):
    """What a task is worth: a model would be loaded once, above, and asked here."""
    return f"{len(payload)} bytes for {environment.get('TASK_USER_ID', 'nobody')}\n".encode()


def main():
    if "GPU_SCHEDULER_WORKER_FD" not in os.environ:
        sys.stdout.buffer.write(answer(sys.stdin.buffer.read(), os.environ))
        return
    with open(int(os.environ["GPU_SCHEDULER_WORKER_FD"]), "r+b", buffering=0) as frames:
        reader = open(frames.fileno(), "rb", closefd=False)  # pylint: disable=consider-using-with
        while length := reader.read(4):
            line, _, payload = reader.read(struct.unpack("<I", length)[0]).partition(b"\n")
            task = json.loads(line)
            result = answer(payload, task["environment"])
            frame = f"{task['id']} 0\n".encode() + result
            frames.write(struct.pack("<I", len(frame)) + frame)


if __name__ == "__main__":
    main()
