"""A scenario file is one snapshot as YAML or JSON.

Text enters in ``text`` and leaves it as plain data (mappings, lists, text, numbers). ``reading`` walks plain data and
collects every mistake with its path; ``groups`` reads the part that a configuration has too; ``scenario`` says what a
scenario is made of and gives a ``Snapshot``; ``writing`` goes the other way. A wrong file gives a ``ScenarioError``
with one message per mistake and never any other exception, for any text.
"""

from .reader import ScenarioError
from .scenario import read_plain, read_scenario
from .writer import write_scenario

__all__ = ["ScenarioError", "read_plain", "read_scenario", "write_scenario"]
