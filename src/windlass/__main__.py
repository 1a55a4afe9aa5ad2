"""``python -m windlass`` runs the ``windlass`` command."""

from .cli import main

main()
