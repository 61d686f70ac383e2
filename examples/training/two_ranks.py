#!/usr/bin/env python3
"""Two ranks fit one line by gradient descent: each has half of the data, and they average their gradients.

    gpu-cli submit --nodes 2 --gpus-per-node 1 --wait --logs -- python3 examples/training/two_ranks.py

The rendezvous is the scheduler's: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set for each member of a gang, and
all members begin together. Rank 0 listens there and the others connect, as in torch.distributed, whose
`init_process_group("gloo")` reads the same variables. This is plain Python, which runs anywhere.
"""

import json
import os
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, RATE, PATIENCE_S = 400, 0.2, 60


class Group:
    """Sums lists of numbers over all ranks: everybody sends to rank 0, which answers with the sum."""

    def __init__(self):
        place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with socket.create_server(place, backlog=WORLD) as listener:
                listener.settimeout(PATIENCE_S)
                self.peers = [listener.accept()[0].makefile("rw") for _ in range(WORLD - 1)]
        else:
            self.peers = [self.connect(place).makefile("rw")]

    @staticmethod
    def connect(place):
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection(place, timeout=PATIENCE_S)
            except ConnectionRefusedError:  # Rank 0 is about to listen.
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.05)

    def send(self, numbers):
        for peer in self.peers:
            peer.write(json.dumps(numbers) + "\n")
            peer.flush()

    def sum(self, numbers):
        if RANK != 0:
            self.send(numbers)
            return json.loads(self.peers[0].readline())
        for peer in self.peers:
            numbers = [mine + theirs for mine, theirs in zip(numbers, json.loads(peer.readline()))]
        self.send(numbers)
        return numbers


def main():
    group = Group()
    data = [(x / 20, 3 * x / 20 + 1) for x in range(20)][RANK::WORLD]  # Of the line y = 3 x + 1.
    slope = shift = 0.0
    for _ in range(STEPS):
        errors = [(slope * x + shift - y, x) for x, y in data]
        down, sideways, count = group.sum([sum(e * x for e, x in errors), sum(e for e, _ in errors), len(data)])
        slope, shift = slope - 2 * RATE * down / count, shift - 2 * RATE * sideways / count
    print(f"rank {RANK} of {WORLD}: y = {slope:.2f} x + {shift:.2f}", flush=True)


if __name__ == "__main__":
    main()
