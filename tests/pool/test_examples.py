"""The examples run, and do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pool"

SAID = {
    "sweep": ("stopped after", "loss 0.0"),
    "phases": ("warm nodes: 1", "most frequent: [('the', 48)", "264 words in all"),
    "burst": ("burst 1: 0 nodes before", "burst 2: 2 nodes at its end", "idle: 0 nodes"),
    "gang": ("{'rank': 3, 'of': 4, 'local_rank': '1', 'sum of ranks': 6}",),
    "kinds": ("with GPU 0", "with GPU 1", "refused at once: impossible can never run in this pool: it needs 8 gpu"),
}


def test_every_example_is_tried():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_does_what_it_says(name):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for text in SAID[name]:
        assert text in done.stdout, f"{done.stdout}\n{done.stderr}"
