"""This module reads CSV files of users, plain or compressed with gzip."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Reader = csv.DictReader[str]
else:
    _Reader = csv.DictReader  # a generic class only from Python 3.12 on


def csv_rows(file: Path, error_type: type[ValueError]) -> csv.DictReader[str]:
    """Return a reader of the rows of a file (``.csv`` or ``.csv.gz``). An unreadable file raises ``error_type``, which
    names the file.
    """
    try:
        data = file.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        remedy = "; check the path" if isinstance(error, FileNotFoundError) else ""
        raise error_type(f"{file}: cannot be read: {reason}{remedy}") from None
    rows = _Rows(io.StringIO(text.removeprefix("\ufeff"), newline=None))
    rows.file, rows.error_type = file, error_type
    return rows


class _Rows(_Reader):
    """Rows of a file. A row that is not CSV, such as one with an endless field, raises ``error_type``."""

    file: Path
    error_type: type[ValueError]

    def __next__(self) -> dict[str | Any, str | Any]:
        try:
            return super().__next__()
        except csv.Error as error:
            raise self.error_type(f"{self.file}: line {self.line_num + 1} cannot be read: {error}") from None
