"""A pipeline with phases of different width: many small tasks, a few large ones, one report. The pool follows.

python examples/pool/phases.py
"""

from __future__ import annotations

import time
from collections import Counter

import windlass as wl

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(24)]


@wl.compute
def tokenize(text: str) -> list[str]:
    time.sleep(0.1)
    return text.split()


@wl.compute(retries=2)
def count(words: list[list[str]]) -> Counter[str]:
    time.sleep(0.2)
    return Counter(word for some in words for word in some)


@wl.compute
def report(counts: list[Counter[str]]) -> list[tuple[str, int]]:
    return sum(counts, Counter[str]()).most_common(3)


@wl.compute
def warm_up() -> str:
    """Once on every node: load a model, fill a cache."""
    return "warm"


def main() -> None:
    with wl.ComputePool(provider=wl.Local(), nodes=(1, 4), autoscale_cooldown=2.0, console="lines") as pool:
        print(f"warm nodes: {len(warm_up() @ pool)}")
        words = wl.gather(*[tokenize(text) for text in TEXTS]) >> pool
        parts = [words[start::4] for start in range(4)]
        counts = wl.gather(*[count(part) for part in parts]) >> pool
        top, total = (report(counts) & count(words)) >> pool
        print(f"most frequent: {top}; {sum(total.values())} words in all")
        print(pool.why())


if __name__ == "__main__":
    main()
