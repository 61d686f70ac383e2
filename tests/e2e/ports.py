"""Ports for tests that run side by side."""

import contextlib
import os
import random
import socket

_ports_given = set()


def lane():
    """Which of how many processes that run these tests side by side this one is."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def free_port():
    """A port that neither outgoing connections nor other lanes get by chance: a killed scheduler can have it back."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        ephemeral = int(file.read().split()[0])
    first = min(20_000, ephemeral - 2_000)
    own, lanes = lane()
    for _ in range(1_000):
        port = random.SystemRandom().randrange(first + own, ephemeral, lanes)
        if port in _ports_given:
            continue
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _ports_given.add(port)
        return port
    raise AssertionError("no free port")
