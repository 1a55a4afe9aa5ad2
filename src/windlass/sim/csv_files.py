"""Reads CSV files of users, plain or compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path


def csv_rows(file: Path, trouble: type[ValueError]) -> csv.DictReader[str]:
    """The rows of a file (``.csv`` or ``.csv.gz``); one that cannot be read is ``trouble``, with its name."""
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise trouble(f"{file}: cannot be read: {error}") from None
    return csv.DictReader(io.StringIO(text))
