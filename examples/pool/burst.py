"""Burst and idle: a pool that has no node until there is work, grows with it, and goes back to none.

python examples/pool/burst.py
"""

from __future__ import annotations

import time

import windlass as wl


@wl.compute
def work(number: int) -> int:
    time.sleep(0.3)
    return number


def main() -> None:
    with wl.ComputePool(
        provider=wl.Local(price="$0.50/h"),
        nodes=(0, 3),
        budget="$1/h",
        autoscale_cooldown=1.0,
        autoscale_idle_timeout=2.0,
        console="lines",
    ) as pool:
        for burst in range(2):
            print(f"burst {burst + 1}: {len(pool.status().nodes)} nodes before")
            wl.gather(*[work(number) for number in range(12)]) >> pool
            print(f"burst {burst + 1}: {pool.status().count('ready')} nodes at its end; the budget is for two")
            while pool.status().nodes:
                time.sleep(0.1)
        print(f"idle: {len(pool.status().nodes)} nodes, ${pool.status().dollars:.4f} spent")


if __name__ == "__main__":
    main()
