"""This module converts a file of Ray, KubeRay or Iris into a configuration, with comments on what could not be
converted.

An importer fills an ``ImportDraft``: groups, cluster, policy, and a note for everything that is lost or changes its
meaning. Notes are written as comments at their place, and are also printed. The result is read again before it is
written: an import never makes a file that ``windlass config check`` refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from textwrap import indent, wrap
from typing import Any, Final

from windlass.config.reader import ConfigError, read_config
from windlass.core.model.quantities import parse_quantity
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import DataReader, FileKind, Path, path_text, plainly, shown

KINDS: Final = ("ray", "kuberay", "iris")
WIDTH: Final = 110

IMPORTED_FILE: Final = FileKind(
    "file", ConfigError, "a Ray cluster file, a RayCluster or an Iris configuration is wanted"
)


@dataclass(frozen=True, slots=True)
class Imported:
    """The configuration as text, and one line with the old path for every setting that could not be converted."""

    text: str
    notes: tuple[str, ...]


@dataclass(slots=True)
class ImportDraft:
    """A configuration that an importer fills."""

    system: str
    """Ray or Iris."""
    source: str
    """What a file of that system is called in the comments."""
    cluster: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    """Empty if this version has no workload for that system."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """(the section or ``groups.NAME`` that follows it, the note)."""

    def note(self, at: Path, text: str, above: str = "") -> None:
        self.notes.append((above, f"{path_text(at)}: {plainly(text)}"))


class ImportReader(DataReader):
    """Reads the needed keys of another project's file, and ignores unknown ones."""

    def __init__(self) -> None:
        super().__init__(IMPORTED_FILE)

    def part(self, at: Path, value: object) -> Mapping[str, Any]:
        return {} if value is None else self.mapping(at, value)

    def amount(self, at: Path, value: object, resource: str) -> int | float | str | None:
        """Return the amount as it was written; report a value that is no amount."""
        wanted = "a number such as 4 or 16Gi"
        given = self.parsed(at, value, partial(parse_quantity, resource=resource), wanted)
        return None if given is None else value  # type: ignore[return-value]

    def span(self, at: Path, value: object) -> int | float | None:
        found = self.number(at, value, None, low=0, high=1e9)
        return int(found) if found is not None and found == int(found) else found


def import_config(text: str | bytes, *, kind: str | None = None) -> Imported:
    """Convert a file; ``ConfigError`` if it has another format or mistakes."""
    from . import iris, kuberay, ray

    data = plain_data(text, IMPORTED_FILE)
    if kind is None:
        kind = _kind_of(data)
    importers: dict[str, Callable[[ImportReader, object], ImportDraft]] = {
        "ray": ray.import_ray,
        "kuberay": kuberay.import_ray_cluster,
        "iris": iris.import_iris,
    }
    reader = ImportReader()
    draft = importers[kind](reader, data)
    reader.finish()
    written = _written(draft)
    read_config(written, path="windlass.yaml")
    return Imported(written, tuple(dict.fromkeys(note for _, note in draft.notes)))


def _kind_of(data: object) -> str:
    if isinstance(data, Mapping):
        if data.get("kind") == "RayCluster":
            return "kuberay"
        if "scale_groups" in data or "tpu_pools" in data:
            return "iris"
        if "available_node_types" in data or "cluster_name" in data:
            return "ray"
        hint = "has neither available_node_types (Ray) nor scale_groups (Iris); say --from ray or --from iris"
    else:
        hint = f"must be a mapping, is {shown(data)}"
    raise ConfigError([f"file: {hint}"])


def stand_in(draft: ImportDraft, at: Path, name: str) -> None:
    """Set the provider of the old file. One that this version does not have becomes a simulated one, with a note."""
    here = {"local": "local", "fake_multinode": "local"}
    draft.providers[name] = {"type": here.get(name, "simulated")}
    if name == "aws":
        text = (
            "a simulated provider replaces it, so that plans can be tried without an account; to buy machines, write "
            "type: aws with region, and settings: {instance_type: ...} in each group"
        )
        draft.note(at, text, "providers")
    elif name not in here:
        text = f"there is no provider {name} in this version: a simulated one replaces it, so that plans can be tried"
        draft.note(at, text, "providers")


# -- the text --------------------------------------------------------------------------------------------------------


def _written(draft: ImportDraft) -> str:
    lines = [f"# Made from {draft.source} by windlass config import."]
    if above := _comments(draft, ""):
        lines += ["# Not carried over:", *(line.replace("# ", "#   ", 1) for line in above)]
    lines += _section(draft, "cluster", draft.cluster)
    lines += ["", "groups:" if draft.groups else "groups: {}"]
    for name, group in draft.groups.items():
        lines += [f"  {line}" for line in _comments(draft, f"groups.{name}")]
        lines.append(indent(_yaml({name: group}), "  "))
    lines += _section(draft, "providers", draft.providers)
    if not draft.workload:
        workload = f"there is no workload for {draft.system} in this version: a simulated one replaces it"
        draft.notes.append(("workload", f"workload: {workload}"))
    lines += _section(draft, "workload", draft.workload or {"type": "simulated"})
    lines += _section(draft, "policy", draft.policy)
    return "\n".join(lines) + "\n"


def _section(draft: ImportDraft, name: str, data: dict[str, Any]) -> list[str]:
    lines = [*_comments(draft, name), *([_yaml({name: data})] if data else [])]
    return ["", *lines] if lines else []


def _comments(draft: ImportDraft, above: str) -> list[str]:
    lines = (wrap(note, WIDTH, break_long_words=False) for place, note in draft.notes if place == above)
    return [f"# {line}" if index == 0 else f"#   {line}" for note in lines for index, line in enumerate(note)]


def _yaml(data: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
            return True

    return yaml.dump(data, Dumper=Dumper, sort_keys=False, default_flow_style=None, width=WIDTH).rstrip()
