"""This module renders one line of a checklist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "problem", "note"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its subject, its result, and the remedy."""

    verdict: Verdict
    about: str
    text: str
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "about": self.about, "text": self.text, "remedy": self.remedy or None}


def ok(about: str, text: str) -> Check:
    return Check("ok", about, text)


def problem(about: str, text: str, remedy: str) -> Check:
    return Check("problem", about, text, remedy)


def note(about: str, text: str, remedy: str = "") -> Check:
    return Check("note", about, text, remedy)
