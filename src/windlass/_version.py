"""This module holds the version. It imports nothing, so every layer may read it."""

from __future__ import annotations

__version__ = "0.1.0"
