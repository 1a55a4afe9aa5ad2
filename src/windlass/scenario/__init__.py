"""A scenario file is one snapshot as YAML or JSON.

Text enters in ``parser`` and leaves it as plain data (mappings, lists, text, numbers). ``reader`` walks plain data and
collects every mistake with its path; ``groups`` reads the sections that a configuration has too; ``scenario`` reads the
rest and returns a ``Snapshot``; ``writer`` does the inverse. A wrong file gives a ``ScenarioError`` with one message
per mistake, and never any other exception, for any text.
"""

from .reader import ScenarioError
from .scenario import read_plain, read_scenario
from .writer import write_scenario

__all__ = ["ScenarioError", "read_plain", "read_scenario", "write_scenario"]
