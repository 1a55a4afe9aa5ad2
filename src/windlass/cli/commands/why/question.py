"""A question of ``windlass why``, with all that answers it, and the form of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from windlass.control.report.current import Picture
from windlass.control.report.history import Life, Wait
from windlass.journal import Journal


@dataclass(frozen=True)
class Asked:
    """The question, with all that answers it."""

    name: str
    at: float | None
    picture: Picture
    journal: Journal
    led: bool
    """Whether a controller runs now."""
    life: Life | None
    wait: Wait | None

    @property
    def kinds(self) -> list[str]:
        """What the name stands for."""
        found = [kind for kind, known in (("slice", self.life), ("demand", self.wait)) if known is not None]
        groups = {*self.picture.settings.by_name, *(one.group for one in self.picture.chronicle.book.slices.values())}
        return [*found, "group"] if self.name in groups else found


@dataclass(frozen=True, slots=True)
class Told:
    """An answer: for programs, for people, and what to ask next."""

    data: dict[str, Any]
    parts: list[RenderableType]
    steps: list[str]
