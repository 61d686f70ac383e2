"""What a stranger makes the scheduler keep in memory is bounded in bytes, before anything is known of him."""

import contextlib
import select
import socket
import struct
import time

import pytest
from harness import PATIENCE_S, wait_until

CALLS = 48
UNFINISHED = 7_900_000  # Of a message of 8,000,000 bytes, the largest that is taken.
MIB = 1 << 20


@pytest.fixture(name="world")
def world_fixture(new_world):
    world = new_world()
    world.scheduler.start()
    return world


def resident(world):
    with open(f"/proc/{world.scheduler.pid()}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def field(name, value):
    """A header as HPACK writes it that uses no table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


class UnfinishedCall:
    """A gRPC call that sends nearly all of a message, as the server's windows let it, and then nothing."""

    def __init__(self, port, path=b"/gpusched.v1.Scheduler/SubmitJobs"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.socket.setblocking(False)
        self.windows = {0: 65_535, 1: 65_535}
        self.left, self.received, self.ended = UNFINISHED, b"", False
        headers = b"".join(field(*one) for one in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"),
            (b"content-type", b"application/grpc")))
        start = struct.pack(">BI", 0, 8_000_000)
        self.windows = {stream: window - len(start) for stream, window in self.windows.items()}
        self.sending = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, b"") + self.frame(1, 4, 1, headers)
                        + self.frame(0, 0, 1, start))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def go_on(self):
        """Sends and receives what can be now. False once there is nothing more to do, or the server ended it."""
        with contextlib.suppress(BlockingIOError):
            data = self.socket.recv(65_536)
            if not data:
                return False
            self.received += data
        self.read_frames()
        size = min(16_384, self.left, *self.windows.values())
        if not self.sending and size > 0:
            self.sending = self.frame(0, 0, 1, b"x" * size)
            self.left -= size
            self.windows = {stream: window - size for stream, window in self.windows.items()}
        with contextlib.suppress(BlockingIOError):
            self.sending = self.sending[self.socket.send(self.sending):] if self.sending else b""
        return self.left > 0 or bool(self.sending)

    def read_frames(self):
        while len(self.received) >= 9:
            size = int.from_bytes(self.received[:3], "big")
            if len(self.received) < 9 + size:
                return
            kind, flags, stream = self.received[3], self.received[4], int.from_bytes(self.received[5:9], "big")
            payload, self.received = self.received[9:9 + size], self.received[9 + size:]
            if kind == 3 or (kind == 1 and flags & 1):
                self.ended = True
            if kind == 8:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
            if kind == 4 and not flags & 1:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at:at + 6])
                    if name == 4:
                        self.windows[1] += value - 65_535
                self.sending += self.frame(4, 1, 0, b"")
            if kind == 6 and not flags & 1:
                self.sending += self.frame(6, 1, 0, payload)


def send_what_can_be(calls, quiet_s=3):
    """Until no call has got any further for a while."""
    last, left = time.monotonic(), {call: call.left for call in calls}
    busy = set(calls)
    while busy and time.monotonic() - last < quiet_s:
        for call in list(busy):
            try:
                if not call.go_on():
                    busy.discard(call)
            except OSError:
                busy.discard(call)
            if call.left < left[call]:
                last, left[call] = time.monotonic(), call.left
        select.select([call.socket for call in busy], [], [], 0.01)


@pytest.mark.parametrize("path", [b"/gpusched.v1.Scheduler/SubmitJobs", b"/gpusched.v1.Scheduler/WatchJob",
                                  b"/scheduler.SchedulerService/GetJobStatus", b"/gpusched.v1.NodeProtocol/Connect"])
def test_calls_whose_message_comes_a_byte_at_a_time_are_ended(world, path):
    """The connection is kept alive all the while, and the message is never whole."""
    began = time.monotonic()
    calls = [UnfinishedCall(world.scheduler.ports["grpc"], path) for _ in range(20)]
    try:
        while not all(call.ended for call in calls) and time.monotonic() - began < 2 * PATIENCE_S:
            for call in calls:
                call.left = 1 if not call.ended else 0
                with contextlib.suppress(OSError):
                    call.go_on()
            time.sleep(0.2)
        assert all(call.ended for call in calls), sum(not call.ended for call in calls)
        assert time.monotonic() - began > 25  # They had their time.
    finally:
        for call in calls:
            call.socket.close()
    assert world.api().call("GET", "/health")[0] == 200


def test_unfinished_messages_of_strangers_cost_little(world):
    before = resident(world)
    calls = [UnfinishedCall(world.scheduler.ports["grpc"]) for _ in range(CALLS)]
    try:
        send_what_can_be(calls)
        assert sum(UNFINISHED - call.left for call in calls) > 50 * MIB, "the attack does not attack"
        assert resident(world) - before < 200 * MIB
        assert world.api().call("GET", "/health")[0] == 200
        agent = world.add_agent("n1").start()
        job = world.api().submit("true")
        assert world.api().wait_for(job)["state"] == "completed"
        wait_until("the agent is still there", lambda: world.api().node(agent.node)["state"] == "ready")
    finally:
        for call in calls:
            call.socket.close()
