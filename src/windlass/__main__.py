"""``python -m windlass``: the same as the ``windlass`` command."""

from .cli import main

main()
