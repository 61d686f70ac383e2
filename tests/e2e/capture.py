"""Every frame that a network namespace sends or gets, and the streams of bytes in them."""

import collections
import ipaddress
import socket
import struct
import threading

from cable import entered

ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS = 263, 6
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
TCP, UDP, ICMPV6, HOP_BY_HOP = 6, 17, 58, 0
SYN = 2
# How an IPv6 kernel finds its neighbours and joins groups: solicitations, advertisements, redirects, reports.
NEIGHBOURS = (133, 134, 135, 136, 137, 143)

# Both ends are (address, port); the port is 0 where there is none.
Packet = collections.namedtuple("Packet", "protocol source target sequence flags payload")


class Capture:
    """Keeps all frames on all interfaces of a namespace, loopback too, from its making to its end()."""

    def __init__(self, namespace):
        self.frames, self.is_over = [], False
        with entered(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.socket.settimeout(0.2)
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while True:
            try:
                self.frames.append(self.socket.recv(1 << 17))
            except TimeoutError:
                if self.is_over:
                    return

    def end(self):
        """All frames, of which the kernel dropped none."""
        self.is_over = True
        self.thread.join()
        seen, dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        self.socket.close()
        assert (seen, dropped) == (len(self.frames), 0)
        return self.frames


def packet_of(frame):
    """Nothing for what neighbours say to find each other."""
    kind, body = struct.unpack_from("!H", frame, 12)[0], frame[14:]
    if kind == ARP:
        return None
    assert kind in (IPV4, IPV6), f"neither ARP nor IP: {frame[:64].hex()}"
    if kind == IPV4:
        protocol, addresses = body[9], (body[12:16], body[16:20])
        rest = body[(body[0] & 15) * 4:struct.unpack_from("!H", body, 2)[0]]
    else:
        protocol, addresses = body[6], (body[8:24], body[24:40])
        rest = body[40:40 + struct.unpack_from("!H", body, 4)[0]]
        if protocol == HOP_BY_HOP:
            protocol, rest = rest[0], rest[8 * (rest[1] + 1):]
        if protocol == ICMPV6 and rest[0] in NEIGHBOURS:
            return None
    ports = struct.unpack_from("!HH", rest) if protocol in (TCP, UDP) else (0, 0)
    source, target = ((str(ipaddress.ip_address(address)), port) for address, port in zip(addresses, ports))
    if protocol != TCP:
        return Packet(protocol, source, target, 0, 0, rest[8:])
    sequence, flags = struct.unpack_from("!I", rest, 4)[0], rest[13]
    return Packet(protocol, source, target, sequence, flags, rest[(rest[12] >> 4) * 4:])


def packets_of(frames):
    return [packet for packet in map(packet_of, frames) if packet is not None]


class Stream:
    """What one end of a TCP connection sent."""

    def __init__(self, source, target, first):
        self.source, self.target, self.first, self.pieces = source, target, first, []

    def bytes(self):
        whole = b""
        for at, piece in sorted(self.pieces):
            assert at <= len(whole), "the capture lacks a piece"
            whole += piece[len(whole) - at:]
        return whole


def streams_of(packets):
    """The streams in the order of their begin. Loopback shows each packet twice, and so may a retransmission."""
    streams, current = [], {}
    for packet in packets:
        if packet.protocol != TCP:
            continue
        ends = packet.source, packet.target
        first = (packet.sequence + 1) & 0xFFFFFFFF
        if packet.flags & SYN and (ends not in current or current[ends].first != first):
            current[ends] = Stream(*ends, first)
            streams.append(current[ends])
        if packet.payload:
            current[ends].pieces.append(((packet.sequence - current[ends].first) & 0xFFFFFFFF, packet.payload))
    return streams
