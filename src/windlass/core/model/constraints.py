"""This module defines constraints between tasks: the classes of a task, and its restrictions on tasks around it.

A domain is one node, one slice, or all nodes with the same value of a label; a node without that label is in no domain
of it. The three constraints count the tasks of a class in a domain:

- ``Apart``: at most a given number of tasks of a class in the domain. It applies in both directions.
- ``Spread``: at most a given number more tasks of a class than in the eligible domain that holds the fewest.
- ``Together``: only in a domain that already holds a task of a class; the first task of that class may go to any
  domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NODE: Final = "node"
"""Each node is a domain of its own."""
SLICE: Final = "slice"
"""Each slice is a domain of its own."""


@dataclass(frozen=True, slots=True, order=True)
class Apart:
    """A domain of ``by`` holds at most ``at_most`` tasks of class ``class_``, the task itself included."""

    class_: str
    by: str
    at_most: int = 1

    def __str__(self) -> str:
        return f"at most {self.at_most} of {self.class_} per {self.by}"


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """A domain of ``over`` holds at most ``max_skew`` more tasks of class ``of`` than the domain with the fewest."""

    of: str
    over: str
    max_skew: int = 1
    min_domains: int = 1
    """With fewer eligible domains than this, the smallest count is taken as 0."""
    elsewhere: tuple[tuple[str, int], ...] = ()
    """Eligible domains on machines that no group owns, and how many tasks of the class each holds there."""

    def __str__(self) -> str:
        return f"{self.of} spread over {self.over} with a skew of at most {self.max_skew}"


@dataclass(frozen=True, slots=True, order=True)
class Together:
    """The domain of ``by`` holds a task of class ``class_`` already."""

    class_: str
    by: str

    def __str__(self) -> str:
        return f"in the same {self.by} as {self.class_}"


@dataclass(frozen=True, slots=True)
class Rules:
    """All constraints of one task, and its classes."""

    classes: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()
    labels: tuple[str, ...] = ()
    """Label keys that its node must have, with any value."""

    @property
    def binding(self) -> bool:
        """Whether the task itself has a constraint."""
        return bool(self.apart or self.spread or self.together)

    def plus(self, other: Rules) -> Rules:
        """Returns both sets of constraints together."""
        if not (other.classes or other.binding):
            return self
        return Rules(
            tuple(sorted({*self.classes, *other.classes})),
            tuple(dict.fromkeys((*self.apart, *other.apart))),
            tuple(dict.fromkeys((*self.spread, *other.spread))),
            tuple(dict.fromkeys((*self.together, *other.together))),
        )

    def named(self) -> set[str]:
        """Returns the classes that its constraints name."""
        return {
            *(rule.class_ for rule in self.apart),
            *(rule.of for rule in self.spread),
            *(rule.class_ for rule in self.together),
        }

    def domains(self) -> set[str]:
        """Returns the kinds of domains that its constraints name: label keys, ``node`` and ``slice``."""
        return {
            *(rule.by for rule in self.apart),
            *(rule.over for rule in self.spread),
            *(rule.by for rule in self.together),
        }


NO_RULES: Final = Rules()
