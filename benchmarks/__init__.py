"""What Windlass is measured against: its own growth, Karpenter's published mix, the price that no set of machines can
undercut, and Ray's own scheduler.

Each module is one question and has a ``measure`` function that gives plain data: ``rows`` (what was measured) and
``checks`` (what was to be reached, see ``targets``), and a ``tables`` function that shows it. ``python -m benchmarks``
(or ``run.py``) asks them all and keeps the answers in ``results``; ``plot`` draws them, ``document`` writes
``docs/benchmarks.md`` from what lies on disk, so that the text never disagrees with a measurement.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # set before numpy is imported, so that every side uses one thread
