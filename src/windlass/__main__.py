"""``python -m windlass``: the same as the ``windlass`` command."""

from windlass.cli import main

main()
