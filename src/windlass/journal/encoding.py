"""This module encodes canonical JSON: equal data has equal bytes in every database.

Keys are sorted, there is no white space, and all text is ASCII, so that text which a database would refuse (such as
NUL) can be stored. Data that JSON cannot hold is refused with its path. Only tuples become lists, and enumerations of
text or numbers their values.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from .protocol import BadEntry, Entry, JournalCorrupt, Record

DEPTH = 100
"""Most levels of nested lists and mappings: more than real data has, and far below the interpreter's limit."""


def encode(value: Any, where: str) -> str:
    """Return canonical JSON. ``where`` names the value in an error."""
    if isinstance(value, Mapping):
        value = dict(value)  # a lazy mapping is read only once
    data = value if _is_plain(value, 0) else _plain(value, where, 0)
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except ValueError as error:
        if isinstance(error, BadEntry):
            raise
        # The remaining case: an integer with more digits than Python converts.
        raise BadEntry(f"{where} cannot be written as JSON: {error}") from error


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a value can be encoded without conversion. Nearly all can, and this check is cheaper than a copy."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    if kind is float:
        return math.isfinite(value)
    if depth == DEPTH:
        return False
    if kind is dict:
        return all(type(key) is str for key in value) and all(_is_plain(one, depth + 1) for one in value.values())
    if kind is list or kind is tuple:
        return all(_is_plain(one, depth + 1) for one in value)
    return False


def _plain(value: Any, where: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BadEntry(f"{where} is {value}: only finite numbers can be kept; write null or leave it out")
        return float(value)
    if depth == DEPTH:
        raise BadEntry(f"{where} is nested deeper than {DEPTH} levels, or contains itself")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise BadEntry(f"{where} has the key {key!r}: only text can be a key; use str(...)")
        return {str.__str__(key): _plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise BadEntry(
        f"{where} is a {type(value).__qualname__}: only text, numbers, true, false, null, lists and mappings"
    )


def encode_entry(entry: Entry, index: int) -> tuple[str, str, float, str]:
    """Return kind, subject, time and data of an entry after validation."""
    where = f"entry {index}"
    for name, text in (("kind", entry.kind), ("subject", entry.subject)):
        check_text(text, f"{name} of {where}")
    where = f"{where} ({entry.kind} of {entry.subject})"
    if not isinstance(entry.data, Mapping):
        raise BadEntry(f"data of {where} is a {type(entry.data).__qualname__}: only a mapping")
    return entry.kind, entry.subject, finite(entry.at, f"at of {where}"), encode(entry.data, f"data of {where}")


def check_text(text: object, where: str) -> None:
    """Return text that every database can store, or raise."""
    if not isinstance(text, str):
        raise BadEntry(f"{where} is a {type(text).__qualname__}: only text")
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise BadEntry(f"{where} is {text!r}: text without NUL and without half characters (surrogates)")


def check_holder(holder: str) -> None:
    """Check that the holder of a lease is storable text and not empty."""
    check_text(holder, "holder")
    if not holder:
        raise ValueError("holder is empty: give a name that is unique to the process")


def finite(value: float, where: str) -> float:
    """Return a finite float; -0.0 becomes 0.0, because not every database distinguishes them."""
    try:
        number = float(value) + 0.0
    except (TypeError, ValueError, OverflowError) as error:
        raise BadEntry(f"{where} is {value!r}: only a finite number") from error
    if not math.isfinite(number):
        raise BadEntry(f"{where} is {value}: only a finite number")
    return number


Row = tuple[int, int, str, str, float, str, int]
"""A row of the table of records: seq, epoch, kind, subject, at, data, checksum."""


def checksum(seq: int, epoch: int, kind: str, subject: str, at: float, data: str) -> int:
    """Return the checksum of a whole record, so that a flipped bit is noticed. SQLite has no page checksums."""
    return zlib.crc32(f"{seq}\0{epoch}\0{kind}\0{subject}\0{at!r}\0{data}".encode())


def decode_record(row: Row, location: str) -> Record:
    """Return the record of a row, or raise ``JournalCorrupt``."""
    seq, epoch, kind, subject, at, data, expected = row
    try:
        if checksum(seq, epoch, kind, subject, at, data) == expected:
            return Record(seq, epoch, kind, subject, at, json.loads(data))
    except (ValueError, TypeError):
        pass
    raise JournalCorrupt(
        f"record {seq} of the journal {location} is not what was written (its checksum is wrong). "
        "Restore the journal from a backup; or move it away and start with a new one, which adopts what the provider "
        "shows."
    )


def digest(seq: int, text: str) -> str:
    """Return the digest of a checkpoint."""
    return hashlib.sha256(f"{seq}\0{text}".encode()).hexdigest()


def decode_state(seq: int, text: str, expected: str) -> Mapping[str, Any] | None:
    """Return the state of a checkpoint, or None when it is damaged."""
    try:
        if digest(seq, text) == expected:
            state = json.loads(text)
            return state if isinstance(state, dict) else None
    except (ValueError, TypeError):
        pass
    return None
