"""What a loss of power at any moment could have left of a folder, drawn from a record of disk_recorder.cc.

A file has its bytes twice: as programs read them, in the page cache, and as the device has them. A write makes sectors
of 512 bytes dirty; a sync takes them to the device; when the power goes, each dirty sector is there or not, and so is
each name whose folder was not synced. A sync that failed leaves its sectors clean, some of them never on the device.
"""

import dataclasses
import os
import pathlib
import re

SECTOR = 512
ZEROS = bytes(SECTOR)


@dataclasses.dataclass
class File:
    cached: dict = dataclasses.field(default_factory=dict)  # Sector number to bytes; what is missing is zeros.
    device: dict = dataclasses.field(default_factory=dict)
    dirty: set = dataclasses.field(default_factory=set)
    size: int = 0
    device_size: int = 0

    def write(self, offset, data):
        end = offset + len(data)
        self.size = max(self.size, end)
        at = offset
        while at < end:
            number = at // SECTOR
            begin = at - number * SECTOR
            piece = data[at - offset:at - offset + SECTOR - begin]
            if len(piece) == SECTOR:
                whole = bytes(piece)
            else:
                old = self.cached.get(number, ZEROS)
                whole = old[:begin] + piece + old[begin + len(piece):]
            self.cached[number] = whole
            self.dirty.add(number)
            at += len(piece)

    def zero(self, offset, length):
        """Like `write` of zero bytes, which are most of a journal."""
        end = offset + length
        first, last = -(-offset // SECTOR), end // SECTOR
        if first >= last:
            return self.write(offset, bytes(length))
        self.write(offset, bytes(first * SECTOR - offset))
        for number in range(first, last):
            self.cached.pop(number, None)
            self.dirty.add(number)
        self.write(last * SECTOR, bytes(end - last * SECTOR))
        self.size = max(self.size, end)
        return None

    def reach(self, number):
        data = self.cached.get(number)
        if data is None:
            self.device.pop(number, None)
        else:
            self.device[number] = data
        self.device_size = max(self.device_size, min(self.size, (number + 1) * SECTOR))

    def sync(self):
        for number in self.dirty:
            self.reach(number)
        self.dirty.clear()
        self.device_size = self.size

    def write_back(self, rng):
        """What of the dirty sectors the device has, when nobody waits for it."""
        mood = rng.choice(["all", "none", "some", "first", "last"])
        numbers = sorted(self.dirty)
        bound = rng.randrange(len(numbers) + 1)
        for place, number in enumerate(numbers):
            if mood == "all" or (mood == "some" and rng.random() < 0.5) or (mood == "first" and place < bound) or \
                    (mood == "last" and place >= bound):
                self.reach(number)
        if rng.random() < 0.5:
            self.device_size = max(self.device_size, self.size)

    def fail_sync(self, rng):
        self.write_back(rng)
        self.dirty.clear()

    def store(self, path):
        with open(path, "wb") as out:
            for number in sorted(self.device):
                out.seek(number * SECTOR)
                out.write(self.device[number][:max(0, self.device_size - number * SECTOR)])
            out.truncate(self.device_size)


class Disk:
    """The state after some of a record."""

    def __init__(self, rng):
        self.rng = rng
        self.files = {}    # By the number that the record gives them, which a new file may have again.
        self.names = {}    # Path to file, as programs see them,
        self.durable = {}  # and as the device has them.
        self.folders = set()
        self.durable_folders = set()
        self.changes = []  # Of names, not durable yet: (folder, {path: file or None}, folder that was made).
        self.found = {}    # Path to file, as a process that began found them.

    def change(self, names, made=None):
        for path, file in names.items():
            if file is None:
                self.names.pop(path, None)
            else:
                self.names[path] = file
        if made:
            self.folders.add(made)
        path = made or list(names)[-1]
        self.changes.append((os.path.dirname(path), names, made))

    def settle(self, change):
        _, names, made = change
        for path, file in names.items():
            if file is None:
                self.durable.pop(path, None)
            else:
                self.durable[path] = file
        if made:
            self.durable_folders.add(made)

    def take(self, line, data):
        """Applies one record."""
        kind, _, rest = line.partition(" ")
        words = rest.split(" ", 1)
        if kind == "make":
            self.files[words[0]] = File()
            self.change({words[1]: self.files[words[0]]})
        elif kind == "empty":
            # Like a new file under the name: what the old one had may come back.
            self.files[words[0]] = File()
            self.change({words[1]: self.files[words[0]]})
        elif kind in ("write", "zeros"):
            number, offset, length = rest.split(" ")
            file = self.files.setdefault(number, File())
            if kind == "write":
                file.write(int(offset), data)
            else:
                file.zero(int(offset), int(length))
        elif kind == "grow":
            self.files[words[0]].size = max(self.files[words[0]].size, int(words[1]))
        elif kind == "sync":
            self.files[words[0]].sync()
        elif kind == "failed":
            self.files[words[0]].fail_sync(self.rng)
        elif kind == "rename":
            source, target = rest.split("\t")
            if source in self.names:  # Else by calls that are not recorded, as those of streams: no matter here.
                self.change({source: None, target: self.names[source]})
        elif kind == "unlink":
            self.change({rest: None})
        elif kind == "mkdir":
            self.change({}, made=rest)
        elif kind == "syncdir":
            for change in self.changes:
                if change[0] == rest:
                    self.settle(change)
            self.changes = [change for change in self.changes if change[0] != rest]
        elif kind == "begins":
            self.found = {}
        elif kind == "have":
            self.found[words[1]] = self.files.setdefault(words[0], File())
        elif kind == "found":
            self.reconcile()
        else:
            assert kind == "killed", line

    def reconcile(self):
        """Names that changed in a call whose record was lost with its process."""
        for path, file in self.found.items():
            if self.names.get(path) is not file:
                self.change({path: file})
        folders = {os.path.dirname(path) for path in self.found}
        for path in [path for path in self.names if os.path.dirname(path) in folders and path not in self.found]:
            self.change({path: None})

    def lose_power(self):
        mood = self.rng.choice(["all", "none", "some"])
        for change in self.changes:
            if mood == "all" or (mood == "some" and self.rng.random() < 0.5):
                self.settle(change)
        for file in {id(file): file for file in self.durable.values()}.values():
            file.write_back(self.rng)


def read_record(path):
    """[(line, bytes, offset behind it)], without what a killed process did not finish."""
    data = pathlib.Path(path).read_bytes()
    lives = [match.start() for match in re.finditer(rb"\n\nbegins\n", data)] + [len(data)]
    found = []
    for begin, end in zip(lives, lives[1:]):
        at = begin + 2
        while at < end:
            newline = data.find(b"\n", at, end)
            if newline == -1:
                break
            line = data[at:newline].decode()
            length = int(line.rpartition(" ")[2]) if line.startswith("write ") else 0
            at = newline + 1 + length
            if at <= end:
                found.append((line, data[newline + 1:at], at))
    return found


def draw_image(record, cut, rng, folder, target):
    """Writes to `target` what a loss of power behind record number `cut` may have left of `folder`."""
    disk = Disk(rng)
    disk.durable_folders.add(str(folder))
    for line, data, _ in record[:cut]:
        disk.take(line, data)
    disk.lose_power()
    target = pathlib.Path(target)
    target.mkdir(parents=True)
    for made in sorted(disk.durable_folders):
        if os.path.dirname(made) in disk.durable_folders:
            (target / os.path.relpath(made, folder)).mkdir(exist_ok=True)
    for path, file in disk.durable.items():
        # What lies beside the journal and the snapshots is made anew, or was never recorded whole.
        if os.path.dirname(path) in disk.durable_folders and os.path.dirname(path) != str(folder):
            file.store(target / os.path.relpath(path, folder))
