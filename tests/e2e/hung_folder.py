"""A file system in a folder whose server takes every question and answers none but the first.

  hung_folder.py FOLDER    mounts it there (as root, by /dev/fuse) and holds it until it is ended

Whoever looks into the folder hangs, and a signal that kills does not help, until this process ends.
"""

import contextlib
import ctypes
import os
import struct
import subprocess
import sys

from harness import IS_ROOT, wait_until

INIT = 26
HEADER = "<IIQQ"


def serve(folder):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40777,user_id=0,group_id=0,allow_other".encode()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"hung", folder.encode(), b"fuse", 0, options) != 0:
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    print("mounted", flush=True)
    while True:
        question = os.read(device, 1 << 20)
        _, kind, number, _ = struct.unpack_from(HEADER, question)
        if kind == INIT:
            body = struct.pack("<IIIIHHI", 7, 31, 0, 0, 0, 0, 4096) + bytes(40)
            os.write(device, struct.pack("<IiQ", 16 + len(body), 0, number) + body)


def why_not():
    if not IS_ROOT:
        return "needs root: mounts a file system"
    if not os.path.exists("/dev/fuse"):
        return "needs /dev/fuse"
    return None


@contextlib.contextmanager
def hung(folder):
    """The folder hangs within; nothing hangs there any more afterwards. Nothing is mounted where that is not permitted."""
    folder.mkdir()
    server = subprocess.Popen([sys.executable, __file__, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True)
    try:
        yield server.stdout.readline() == "mounted\n"
    finally:
        server.kill()
        server.wait()
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)
        wait_until("it is no longer mounted", lambda: not os.path.ismount(folder))


if __name__ == "__main__":
    serve(sys.argv[1])
