"""Which version this is; apart from the package's own file, so that every layer may ask."""

from __future__ import annotations

__version__ = "0.1.0"
