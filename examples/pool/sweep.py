"""A hyperparameter sweep with early stopping: results are looked at as they come, and what cannot win is not run.

python examples/pool/sweep.py
"""

from __future__ import annotations

import math
import time

import windlass as wl

GOOD_ENOUGH = 0.05


@wl.compute
def trial(rate: float, decay: float) -> dict[str, float]:
    """Stands for a training run: a loss that depends on two numbers, and some time."""
    time.sleep(0.05)
    loss = (math.log10(rate) + 2) ** 2 + (decay - 0.3) ** 2
    return {"rate": rate, "decay": decay, "loss": loss}


def main() -> None:
    grid = [(10.0**-power, decay / 10) for decay in range(10) for power in range(8)]
    best: dict[str, float] = {"loss": math.inf}
    seen = 0
    with wl.ComputePool(provider=wl.Local(), nodes=(1, 4), console="lines") as pool:
        # Closing the stream cancels what has not run yet.
        for result in wl.gather(*[trial(*point) for point in grid], stream=True, ordered=False) >> pool:
            seen += 1
            if result["loss"] < best["loss"]:
                best = result
                print(f"best so far: {best['loss']:.3f} with rate {best['rate']:g}, decay {best['decay']:g}")
            if best["loss"] < GOOD_ENOUGH:
                break
        print(pool.status())
    print(f"stopped after {seen} of {len(grid)} trials: loss {best['loss']:.3f}")


if __name__ == "__main__":
    main()
