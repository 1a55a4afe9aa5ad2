"""A gang: four processes that start together and know each other, with the environment that torch.distributed reads.

No torch is needed: the members meet at MASTER_ADDR and MASTER_PORT by themselves and add up their ranks, as an
all-reduce would.

    python examples/pool/gang.py
"""

from __future__ import annotations

import os
import socket

import windlass as wl


@wl.compute
def train() -> dict[str, str | int]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    total = head(address, size) if rank == 0 else member(address, rank)
    return {"rank": rank, "of": size, "local_rank": os.environ["LOCAL_RANK"], "sum of ranks": total}


def head(address: tuple[str, int], size: int) -> int:
    with socket.create_server(address) as server:
        members = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(one.recv(16)) for one in members)
        for one in members:
            one.sendall(str(total).encode())
            one.close()
    return total


def member(address: tuple[str, int], rank: int) -> int:
    while True:
        try:
            with socket.create_connection(address, timeout=10) as line:
                line.sendall(str(rank).encode())
                return int(line.recv(16))
        except ConnectionRefusedError:
            continue  # the head starts at the same moment, and may be a little later


def main() -> None:
    with wl.ComputePool(provider=wl.Local(), nodes=(0, 2), slots=2, console="lines") as pool:
        for result in wl.gang(train, size=4)() >> pool:
            print(result)


if __name__ == "__main__":
    main()
