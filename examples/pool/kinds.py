"""Several kinds of machine in one pool: each task goes to the cheapest kind that has what it needs.

The devices are only declared, so this runs on any computer; each task gets the numbers of its devices.

    python examples/pool/kinds.py
"""

from __future__ import annotations

import os
import time

import windlass as wl


@wl.compute
def prepare(number: int) -> str:
    time.sleep(0.2)
    return os.environ["WINDLASS_NODE"]


@wl.compute(needs={"gpu": 1})
def train(number: int) -> str:
    time.sleep(0.2)
    return f"{os.environ['WINDLASS_NODE']} with GPU {os.environ['CUDA_VISIBLE_DEVICES']}"


@wl.compute(needs={"gpu": 8})
def impossible() -> None: ...


def main() -> None:
    kinds = [
        wl.group("small", slots=2, max=2, price=0.10),
        wl.group("gpu", slots=2, gpu=2, max=1, price=2.00),
    ]
    with wl.ComputePool(provider=wl.Local(pretend=True), groups=kinds, budget="$3/h", console="lines") as pool:
        where = wl.gather(*[prepare(number) for number in range(4)]) >> pool
        print(f"prepared on {sorted(set(where))}")
        for line in sorted(set(wl.gather(*[train(number) for number in range(4)]) >> pool)):
            print(f"trained on {line}")
        try:
            impossible() >> pool
        except ValueError as error:
            print(f"refused at once: {error}")
        print(pool.status())


if __name__ == "__main__":
    main()
