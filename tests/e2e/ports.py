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


def _first_port():
    """The lowest that free_port gives, and the first that the system gives to outgoing connections."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        ephemeral = int(file.read().split()[0])
    return min(20_000, ephemeral - 2_000), ephemeral


def _is_free(port):
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def free_range(count):
    """The first of so many ports one behind the other, below all that free_port gives."""
    own, lanes = lane()
    end = _first_port()[0]
    share = (end - 10_000) // lanes
    for _ in range(1_000):
        first = 10_000 + own * share + random.SystemRandom().randrange(share - count)
        ports = range(first, first + count)
        if not _ports_given.intersection(ports) and all(map(_is_free, ports)):
            _ports_given.update(ports)
            return first
    raise AssertionError("no free ports")


def free_port():
    """A port that neither outgoing connections nor other lanes get by chance: a killed scheduler can have it back."""
    first, ephemeral = _first_port()
    own, lanes = lane()
    for _ in range(1_000):
        port = random.SystemRandom().randrange(first + own, ephemeral, lanes)
        if port in _ports_given:
            continue
        if not _is_free(port):
            continue
        _ports_given.add(port)
        return port
    raise AssertionError("no free port")
